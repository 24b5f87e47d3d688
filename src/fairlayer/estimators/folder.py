"""A fitted estimator as a folder: `model.safetensors` for the tensors, `model.json` for the rest.

    save(model, "model/");  model = load("model/")

A model that is not our own network, `estimator=`, is in a third file, `estimator.skops`; what tells groups from X where
serving is blind in a fourth, `groups.skops`. All are data: loading a folder runs no code from it, and the predictions
of what is loaded are those of what was saved, to the last bit.
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

from fairlayer.constraints import read_constraint
from fairlayer.constraints.plain_data import from_plain, record_from_plain, record_to_plain, to_plain
from fairlayer.errors import FairlayerError, InputError
from fairlayer.estimators.blind import GroupModel
from fairlayer.estimators.encoder import Encoder
from fairlayer.estimators.estimator import FairEstimator
from fairlayer.estimators.network import NetworkScores, network
from fairlayer.estimators.safe import pack, unpack
from fairlayer.estimators.wrapped import EstimatorScores
from fairlayer.extras import MissingExtraError, needs
from fairlayer.frozen.certificate import Certificate
from fairlayer.frozen.freeze import unfitted
from fairlayer.layer import FairModel
from fairlayer.sklearn import FairClassifier, FairRegressor

FORMAT = 2  # of the folder; raised when another release could not read it
TENSORS, FACTS, INNER, GROUPS = "model.safetensors", "model.json", "estimator.skops", "groups.skops"
_ESTIMATORS: dict[str, type[FairEstimator]] = {"FairClassifier": FairClassifier, "FairRegressor": FairRegressor}
_ELSEWHERE = ("constraints", "estimator", "module")  # settings that are not among the others
_FITTED = (  # attributes that `fit` sets, where it does
    *("bounds_", "groups_", "groups_in_X_", "n_features_in_", "feature_names_in_", "classes_", "threshold_"),
    *("mean_", "scale_", "history_", "n_iter_", "stopped_", "unfrozen_"),
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
    packed = {TENSORS: _safetensors().save(_tensors(estimator))}
    if estimator.estimator is not None:
        packed[INNER] = pack(estimator.estimator_)
    if estimator.group_model_ is not None:
        packed[GROUPS] = pack(list(estimator.group_model_.models.values()))
    content = _describe(estimator)
    content["table"] = _as_json_has_it(table)
    content["sha256"] = {name: _sum(part) for name, part in packed.items()}
    content["digest"] = _digest(content)
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in (INNER, GROUPS):
        (folder / name).unlink(missing_ok=True)  # of a model that was there before
    for name, part in packed.items():
        (folder / name).write_bytes(part)
    (folder / FACTS).write_text(text, "utf-8")
    return folder


def load(folder: Any) -> FairClassifier | FairRegressor:
    """The estimator that was saved."""
    content = read(folder)
    packed = {name: _read_part(folder, name, expected) for name, expected in content["sha256"].items()}
    reader = _safetensors()
    try:
        return _rebuild(
            content,
            reader.load(packed[TENSORS]),
            unpack(packed[INNER]) if INNER in packed else None,
            unpack(packed[GROUPS]) if GROUPS in packed else None,
        )
    except MissingExtraError:
        raise
    except Exception as error:  # what a forged or foreign file makes its reader raise is not known beforehand
        raise FolderError(f"{folder} cannot be read as a model ({error}): fit the model again.") from error


def read(folder: Any) -> dict[str, Any]:
    """What `model.json` says, once it is known to be whole and of the format that this release reads."""
    folder = Path(folder)
    path = folder / FACTS
    if not folder.is_dir():
        raise FolderError(f"{folder} is not a model folder: name the folder that `fairlayer fit -o` wrote.")
    if not path.is_file():
        raise FolderError(f"{folder} has no {FACTS}: name the folder that `fairlayer fit -o` wrote.")
    try:
        content = json.loads(path.read_text("utf-8"), parse_constant=_refuse)
    except (ValueError, OSError) as error:
        raise FolderError(f"{path} cannot be read ({error}): copy the folder again.") from error
    if not isinstance(content, dict) or not isinstance(content.get("format"), int):
        raise FolderError(f"{path} is not the description of a model: name the folder that `fairlayer fit -o` wrote.")
    if content["format"] != FORMAT:
        made = content.get("versions", {}).get("fairlayer", "another release")
        raise FolderError(
            f"{path} has format {content['format']}, and this release reads {FORMAT}: use the release of fairlayer "
            f"that made it ({made}), or fit the model again."
        )
    if content.get("digest") != _digest(content):
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
    """Everything but the tensors, as JSON has it."""
    settings = {name: value for name, value in estimator.get_params(deep=False).items() if name not in _ELSEWHERE}
    if hasattr(settings["random_state"], "randint"):
        settings["random_state"] = None  # a generator is no data
    layer, frozen, groups = estimator.layer_, estimator.frozen_, estimator.group_model_
    return {
        "format": FORMAT,
        "versions": {
            "fairlayer": metadata.version("fairlayer"),
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in ("torch", "numpy", "scikit-learn")},
        },
        "estimator": type(estimator).__name__,
        "settings": {name: to_plain(value, name) for name, value in settings.items()},
        "constraints": None if layer is None else [_constraint(one) for one in layer.rules.constraints],
        "fitted": {name: to_plain(getattr(estimator, name), name) for name in _FITTED if hasattr(estimator, name)},
        # Where raw outputs come from: a network of our own, or columns of what another estimator predicts.
        "encoder": estimator.preprocessing_.to_data() if estimator.estimator is None else None,
        "column": getattr(estimator._scores, "column", None),
        "labels": None if frozen is None else to_plain(frozen.labels),
        "certificate": None if frozen is None else record_to_plain(frozen.certificate),
        "proxied": None if groups is None else to_plain(list(groups.models)),
    }


def _constraint(constraint: Any) -> dict[str, Any]:
    if not constraint.needs_groups:
        raise InputError(f"{type(constraint).__name__} is about one batch: a model with it cannot be saved.")
    return constraint.to_data()


def _tensors(estimator: FairEstimator) -> dict[str, Any]:
    tensors = {}
    if estimator.estimator is None:
        tensors = {f"network.{name}": value for name, value in estimator.model_.backbone.state_dict().items()}
    if estimator.frozen_ is not None:
        tensors |= {"frozen.shifts": estimator.frozen_.shifts, "frozen.seen": estimator.frozen_.seen}
    return {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}


def _rebuild(content: dict[str, Any], tensors: dict[str, Any], inner: Any, groups: Any) -> Any:
    kind = _ESTIMATORS[content["estimator"]]
    asked = content["constraints"]
    constraints = [] if asked is None else [read_constraint(data) for data in asked]
    settings = {name: from_plain(value) for name, value in content["settings"].items()}
    estimator: Any = kind(constraints, estimator=inner, **settings)
    for name, value in content["fitted"].items():
        known = from_plain(value)
        setattr(estimator, name, np.array(known, dtype=_ARRAYS[name]) if name in _ARRAYS else known)
    estimator.layer_ = estimator._make_layer()
    if inner is None:
        state = {name.removeprefix("network."): value for name, value in tensors.items() if name.startswith("network.")}
        encoder = Encoder.from_data(content["encoder"])
        backbone = estimator._wrap(network(encoder.width, estimator.hidden, None, estimator._outputs()))
        model = FairModel(backbone, estimator.layer_).double().eval()
        backbone.load_state_dict(state)
        estimator._know_network(NetworkScores(encoder, model))
    else:
        estimator._know_estimator(EstimatorScores(inner, content["column"]))
    estimator.group_model_ = None
    if groups is not None:
        estimator.group_model_ = GroupModel(dict(zip(from_plain(content["proxied"]), groups, strict=True)))
    estimator.frozen_ = None
    if content["labels"] is not None:
        shifts = tensors["frozen.shifts"]
        frozen = unfitted(estimator.layer_, from_plain(content["labels"]), classes=shifts.shape[-1])
        frozen.shifts.copy_(shifts)
        frozen.seen.copy_(tensors["frozen.seen"])
        frozen.certificate = record_from_plain(Certificate | None, content["certificate"])
        estimator.frozen_ = frozen.eval()
    return estimator


def _safetensors() -> Any:
    with needs("A model folder", "safetensors"):
        import safetensors.torch
    return safetensors.torch
