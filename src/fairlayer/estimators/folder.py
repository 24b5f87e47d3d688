"""A fitted estimator as a folder: `model.safetensors` for tensors, `estimator.skops` for what scikit-learn learned.

    save(model, "model/");  model = load("model/")

The rest is in `model.json`. All are data: loading a folder runs no code from it, and the predictions of what is loaded
are those of what was saved, to the last bit.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fairlayer.constraints import read_constraint
from fairlayer.constraints.plain_data import from_plain, record_from_plain, record_to_plain, to_plain
from fairlayer.errors import FairlayerError, InputError
from fairlayer.estimators.blind import GroupModel
from fairlayer.estimators.estimator import FairEstimator
from fairlayer.estimators.safe import pack, unpack
from fairlayer.estimators.scores import network
from fairlayer.extras import MissingExtraError, needs
from fairlayer.frozen.certificate import Certificate
from fairlayer.frozen.freeze import unfitted
from fairlayer.layer import FairModel
from fairlayer.sklearn import FairClassifier, FairRegressor

FORMAT = 3  # of the folder; raised when another release could not read it
TENSORS, LEARNED, FACTS = "model.safetensors", "estimator.skops", "model.json"
_ESTIMATORS: dict[str, type[FairEstimator]] = {"FairClassifier": FairClassifier, "FairRegressor": FairRegressor}
_ELSEWHERE = ("constraints", "estimator", "module")  # settings that are not among the others
_FITTED = (  # attributes that `fit` sets, where it does
    *("bounds_", "groups_", "groups_in_X_", "n_features_in_", "feature_names_in_", "classes_", "threshold_"),
    *("mean_", "scale_", "history_", "n_iter_", "stopped_", "unfrozen_", "column_"),
)
_ARRAYS: dict[str, Any] = {"classes_": None, "feature_names_in_": object}  # of the fitted attributes, with their dtype


class FolderError(FairlayerError):
    """A model folder is not there, not whole, or of another kind."""


def save(estimator: FairEstimator, folder: Any, *, table: Mapping[str, Any] | None = None) -> Path:
    """Write a fitted estimator to a folder, which is made where it is not there.

    table: plain data to keep beside it, such as what the columns of its table mean; `read_table` gives it back.
    """
    if type(estimator).__name__ not in _ESTIMATORS or not hasattr(estimator, "layer_"):
        raise InputError("save takes a fitted FairClassifier or FairRegressor; fit it first.")
    if estimator.module is not None:
        raise InputError(
            "The estimator has a network of its own, module=: a folder holds no code, so it could not be made again. "
            "Keep its weights with torch.save(estimator.model_.state_dict(), ...) and its code beside them."
        )
    packed = {TENSORS: _safetensors().save(_tensors(estimator)), LEARNED: pack(_learned(estimator))}
    content = _describe(estimator)
    content["table"] = _as_json_has_it(table)
    content["sha256"] = {name: _sum(part) for name, part in packed.items()}
    content["digest"] = _digest(content)
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in packed.items():
        (folder / name).write_bytes(part)
    (folder / FACTS).write_text(text, "utf-8")
    return folder


def load(folder: Any) -> FairClassifier | FairRegressor:
    """The estimator that was saved."""
    content = read(folder)
    try:
        tensors, learned = (_read_part(folder, name, content["sha256"][name]) for name in (TENSORS, LEARNED))
        return _rebuild(content, _safetensors().load(tensors), unpack(learned))
    except (FolderError, MissingExtraError):
        raise
    except Exception as error:  # what a forged or foreign file makes its reader raise is not known beforehand
        raise FolderError(f"{folder} cannot be read as a model ({error}): fit the model again.") from error


def read(folder: Any) -> dict[str, Any]:
    """What `model.json` says, once it is known to be whole and of the format that this release reads."""
    folder = Path(folder)
    path = folder / FACTS
    if not path.is_file():
        what = f"has no {FACTS}" if folder.is_dir() else "is not a model folder"
        raise FolderError(f"{folder} {what}: name the folder that `fairlayer fit -o` wrote.")
    try:
        content = json.loads(path.read_text("utf-8"), parse_constant=_refuse)
        digest = _digest(content) if isinstance(content, dict) else None
    except (ValueError, OSError, RecursionError) as error:
        raise FolderError(f"{path} cannot be read ({error}): copy the folder again.") from error
    if digest is None or not isinstance(content.get("format"), int):
        raise FolderError(f"{path} is not the description of a model: name the folder that `fairlayer fit -o` wrote.")
    if content["format"] != FORMAT:
        made = content.get("versions", {}).get("fairlayer", "another release")
        raise FolderError(
            f"{path} has format {content['format']}, and this release reads {FORMAT}: use the release of fairlayer "
            f"that made it ({made}), or fit the model again."
        )
    if content.get("digest") != digest:
        raise FolderError(f"{path} was changed after it was written: copy the folder again, or fit the model again.")
    return content


def read_table(folder: Any) -> dict[str, Any] | None:
    """What `save` was given as `table`."""
    return read(folder)["table"]


def _read_part(folder: Any, name: str, expected: str) -> bytes:
    """One file of a folder, once it is known to be the one that was written."""
    path = Path(folder) / name
    if not path.is_file():
        raise FolderError(f"{folder} has no {name}: copy the whole folder, or fit the model again.")
    packed = path.read_bytes()
    if _sum(packed) != expected:
        raise FolderError(f"{path} is not the file that {FACTS} was written with: copy the folder again.")
    return packed


def _sum(packed: bytes) -> str:
    return hashlib.sha256(packed).hexdigest()


def _digest(content: Mapping[str, Any]) -> str:
    """Of everything but itself."""
    rest = {key: value for key, value in content.items() if key != "digest"}
    return _sum(json.dumps(rest, sort_keys=True, allow_nan=False).encode())


def _as_json_has_it(table: Mapping[str, Any] | None) -> Any:
    """What reading the table again will give: the digest is taken of that."""
    try:
        return json.loads(json.dumps(table, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InputError(f"table must be plain data, as JSON has it: {error}.") from error


def _refuse(constant: str) -> None:
    """NaN and the like, which are not JSON."""
    raise ValueError(f"{constant} is no JSON")


def _describe(estimator: FairEstimator) -> dict[str, Any]:
    """All that is plain data, as JSON has it."""
    settings = {name: value for name, value in estimator.get_params(deep=False).items() if name not in _ELSEWHERE}
    if hasattr(settings["random_state"], "randint"):
        settings["random_state"] = None  # a generator is no data
    layer, frozen = estimator.layer_, estimator.frozen_
    of_batch = [c for c in layer.rules.constraints if not c.needs_groups] if layer is not None else []
    if of_batch:
        raise InputError(f"{type(of_batch[0]).__name__} is about one batch: a model with it cannot be saved.")
    return {
        "format": FORMAT,
        "versions": {
            "fairlayer": metadata.version("fairlayer"),
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in ("torch", "numpy", "scikit-learn")},
        },
        "estimator": type(estimator).__name__,
        "settings": {name: to_plain(value, name) for name, value in settings.items()},
        "constraints": None if layer is None else [one.to_data() for one in layer.rules.constraints],
        "fitted": {name: to_plain(getattr(estimator, name), name) for name in _FITTED if hasattr(estimator, name)},
        "labels": None if frozen is None else to_plain(frozen.labels),
        "certificate": None if frozen is None else record_to_plain(frozen.certificate),
    }


def _learned(estimator: FairEstimator) -> dict[str, Any]:
    """What scikit-learn knows how to write: where raw outputs come from, and what tells groups from X."""
    groups = None if estimator.group_model_ is None else estimator.group_model_.models
    if estimator.estimator is None:
        return {"preprocessing": estimator.preprocessing_, "groups": groups}
    return {"estimator": estimator.estimator_, "groups": groups}


def _tensors(estimator: FairEstimator) -> dict[str, Any]:
    tensors = {}
    if estimator.estimator is None:
        tensors = {f"network.{name}": value for name, value in estimator.model_.backbone.state_dict().items()}
    if estimator.frozen_ is not None:
        tensors |= {"frozen.shifts": estimator.frozen_.shifts, "frozen.seen": estimator.frozen_.seen}
    return {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}


def _rebuild(content: dict[str, Any], tensors: dict[str, Any], learned: dict[str, Any]) -> Any:
    asked, settings = content["constraints"], {name: from_plain(value) for name, value in content["settings"].items()}
    constraints = [] if asked is None else [read_constraint(data) for data in asked]
    estimator: Any = _ESTIMATORS[content["estimator"]](constraints, estimator=learned.get("estimator"), **settings)
    for name, value in content["fitted"].items():
        known = from_plain(value)
        setattr(estimator, name, np.array(known, dtype=_ARRAYS[name]) if name in _ARRAYS else known)
    estimator.layer_ = estimator._make_layer()
    if estimator.estimator is None:
        state = {name.removeprefix("network."): value for name, value in tensors.items() if name.startswith("network.")}
        width = state["inner.0.weight"].shape[1]
        with torch.device("meta"):  # it takes no memory until it is known to be what the tensors are for
            backbone = estimator._wrap(network(width, estimator.hidden, None, estimator._width))
        backbone.load_state_dict(state, assign=True)
        estimator.preprocessing_ = learned["preprocessing"]
        estimator.model_ = FairModel(backbone, estimator.layer_).double().eval()
    else:
        estimator.estimator_ = estimator.estimator
    estimator.group_model_ = None if learned["groups"] is None else GroupModel(learned["groups"])
    estimator.frozen_ = None
    if content["labels"] is not None:
        shifts = tensors["frozen.shifts"]
        frozen = unfitted(estimator.layer_, from_plain(content["labels"]), classes=shifts.shape[-1])
        frozen.load_state_dict({"shifts": shifts, "seen": tensors["frozen.seen"]}, strict=False)
        frozen.certificate = record_from_plain(Certificate | None, content["certificate"])
        estimator.frozen_ = frozen.eval()
    return estimator


def _safetensors() -> Any:
    with needs("A model folder", "safetensors"):
        import safetensors.torch
    return safetensors.torch
