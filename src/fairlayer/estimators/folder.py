"""A fitted estimator as a folder: `model.safetensors` for the tensors, `model.json` for the rest.

    save(model, "model/");  model = load("model/")

A model that is not our own network, `estimator=`, is in a third file, `estimator.skops`; what tells groups from X where
serving is blind in a fourth, `groups.skops`. All are data: loading a folder runs no code from it, and the predictions
of what is loaded are those of what was saved, to the last bit.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from fairlayer.constraints import Constraint, read_constraint
from fairlayer.constraints.plain_data import from_plain, to_plain
from fairlayer.errors import FairlayerError, InputError
from fairlayer.estimators.blind import GroupModel
from fairlayer.estimators.encoder import Encoder
from fairlayer.estimators.estimator import METHODS, OF_THE_NETWORK, FairEstimator
from fairlayer.estimators.network import NetworkScores, network
from fairlayer.estimators.safe import pack, unpack
from fairlayer.estimators.wrapped import EstimatorScores
from fairlayer.extras import MissingExtraError, needs
from fairlayer.frozen.certificate import Certificate, GapBound
from fairlayer.frozen.freeze import unfitted
from fairlayer.frozen.frozen import Frozen
from fairlayer.layer import FairLayer
from fairlayer.model import FairModel
from fairlayer.sklearn import FairClassifier, FairRegressor
from fairlayer.solve.discrepancy import known_name

FORMAT = 1  # of the folder; raised when an older release could not read it
TENSORS, FACTS, INNER, GROUPS = "model.safetensors", "model.json", "estimator.skops", "groups.skops"
_ESTIMATORS: dict[str, type[FairEstimator]] = {"FairClassifier": FairClassifier, "FairRegressor": FairRegressor}
_SETTINGS = ("serving", "confidence", *(name for name in OF_THE_NETWORK if name != "module"))


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
    if estimator.serving == "blind":
        packed[GROUPS] = pack(list(estimator.group_model_.models.values()))
    content = _describe(estimator)
    content["table"] = _as_json_has_it(table)
    content["sha256"] = _sum(packed[TENSORS])
    content["estimator_sha256"] = _sum(packed[INNER]) if INNER in packed else None
    if GROUPS in packed:
        names = to_plain(list(estimator.group_model_.models))
        content["group_model"] = {"attributes": names, "sha256": _sum(packed[GROUPS])}
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


def _sum(packed: bytes) -> str:
    return hashlib.sha256(packed).hexdigest()


def _as_json_has_it(table: Mapping[str, Any] | None) -> Any:
    """What reading the table again will give: the digest is taken of that."""
    try:
        return json.loads(json.dumps(table, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InputError(f"table must be plain data, as JSON has it: {error}.") from error


def load(folder: Any) -> FairClassifier | FairRegressor:
    """The estimator that was saved."""
    content = read(folder)
    told = content.get("group_model")
    sums = {TENSORS: content["sha256"], INNER: content.get("estimator_sha256"), GROUPS: told and told["sha256"]}
    packed = {name: _read_part(folder, name, expected) for name, expected in sums.items() if expected is not None}
    reader = _safetensors()
    try:
        inner = unpack(packed[INNER]) if INNER in packed else None
        estimator = _rebuild(content, reader.load(packed[TENSORS]), inner)
        if told is not None:
            models = unpack(packed[GROUPS])
            estimator.group_model_ = GroupModel(dict(zip(from_plain(told["attributes"]), models, strict=True)))
        return estimator
    except MissingExtraError:
        raise
    except Exception as error:  # what a forged or foreign file makes its reader raise is not known beforehand
        raise FolderError(f"{folder} cannot be read as a model ({error}): fit the model again.") from error


def _read_part(folder: Any, name: str, expected: str) -> bytes:
    """One file of a folder, once it is known to be the one that was written."""
    path = Path(folder) / name
    if not path.is_file():
        raise FolderError(f"{folder} has no {name}: copy the whole folder, or fit the model again.")
    packed = path.read_bytes()
    if _sum(packed) != expected:
        raise FolderError(f"{path} is not the file that {FACTS} was written with: copy the folder again.")
    return packed


def read(folder: Any) -> dict[str, Any]:
    """What `model.json` says, once it is known to be whole and of a format that this release reads."""
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
    if content["format"] > FORMAT:
        raise FolderError(
            f"{path} has format {content['format']}, this release reads up to {FORMAT}: update fairlayer "
            f"(the model was made with {content.get('versions', {}).get('fairlayer', 'a newer one')})."
        )
    if content.get("digest") != _digest(content):
        raise FolderError(f"{path} was changed after it was written: copy the folder again, or fit the model again.")
    return content


def read_table(folder: Any) -> dict[str, Any] | None:
    """What `save` was given as `table`."""
    return read(folder)["table"]


def _refuse(constant: str) -> None:
    """NaN and the like, which are not JSON."""
    raise ValueError(f"{constant} is no JSON")


def _digest(content: Mapping[str, Any]) -> str:
    """Of everything but itself."""
    rest = {key: value for key, value in content.items() if key != "digest"}
    return _sum(json.dumps(rest, sort_keys=True, allow_nan=False).encode())


def _describe(estimator: FairEstimator) -> dict[str, Any]:
    """Everything but the tensors, as JSON has it."""
    layer: Any = estimator.layer_
    frozen = estimator.frozen_
    projection = layer if isinstance(layer, FairLayer) else getattr(layer, "projection", None)
    seed, named = estimator.random_state, estimator.sensitive_columns
    content: dict[str, Any] = {
        "format": FORMAT,
        "versions": {
            "fairlayer": metadata.version("fairlayer"),
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in ("torch", "numpy", "scikit-learn")},
        },
        "estimator": type(estimator).__name__,
        "settings": {
            **{name: getattr(estimator, name) for name in _SETTINGS},
            "hidden": list(estimator.hidden),
            "random_state": None if hasattr(seed, "randint") else to_plain(seed),
        },
        "method": None if layer is None else _method(layer),
        "constraints": [] if layer is None else [_constraint_data(c) for c in layer.rules.constraints],
        "layer": None if projection is None else _layer_data(projection),
        "bounds": None if estimator.bounds_ is None else to_plain(list(estimator.bounds_)),
        # Where raw outputs come from: a network of our own, or what another estimator says.
        "encoder": estimator.preprocessing_.to_data() if estimator.estimator is None else None,
        "column": getattr(estimator._scores, "column", None),
        "columns": to_plain(getattr(estimator, "feature_names_in_", None)),
        "inputs": getattr(estimator, "n_features_in_", None),
        "sensitive_columns": to_plain(named if named is None or isinstance(named, str) else list(named)),
        "groups": None if estimator.groups_ is None else to_plain(list(estimator.groups_)),
        "groups_in_X": bool(estimator.groups_in_X_),
        "history": {
            name: [value if math.isfinite(value) else None for value in values]
            for name, values in estimator.history_.items()
        },
        "epochs": getattr(estimator, "n_iter_", None),
        "stopped": estimator.stopped_,
        "frozen": None if frozen is None else _frozen_data(frozen),
        "unfrozen": estimator.unfrozen_,
    }
    if isinstance(estimator, FairClassifier):
        content["discrepancy"] = estimator.discrepancy
        content["classes"] = to_plain(estimator.classes_)
        content["thresholds"] = [estimator.threshold, estimator.threshold_]
    return content


def _tensors(estimator: FairEstimator) -> dict[str, Any]:
    tensors = {}
    if estimator.estimator is None:
        tensors = {f"network.{name}": value for name, value in estimator.model_.backbone.state_dict().items()}
    if estimator.frozen_ is not None:
        tensors |= {"frozen.shifts": estimator.frozen_.shifts, "frozen.seen": estimator.frozen_.seen}
    return {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}


def _rebuild(content: dict[str, Any], tensors: dict[str, Any], inner: Any) -> Any:
    kind = _ESTIMATORS[content["estimator"]]
    settings = dict(content["settings"], hidden=tuple(content["settings"]["hidden"]))
    settings["sensitive_columns"] = from_plain(content.get("sensitive_columns"))
    constraints = [read_constraint(data) for data in content["constraints"]]
    bounds = None if content["bounds"] is None else tuple(from_plain(content["bounds"]))
    if kind is FairRegressor:
        settings["bounds"] = bounds
    estimator: Any = kind(constraints or None, method=content["method"] or "unconstrained", estimator=inner, **settings)
    estimator.layer_ = None
    if content["method"] is not None:
        estimator.layer_ = METHODS[content["method"]](constraints, bounds, **_layer_options(content["layer"]))
    estimator.bounds_ = bounds
    estimator.groups_ = from_plain(content["groups"])
    estimator.groups_in_X_ = content["groups_in_X"]
    estimator.history_ = {
        name: [math.nan if value is None else value for value in values] for name, values in content["history"].items()
    }
    estimator.stopped_ = content["stopped"]
    if content["inputs"] is not None:
        estimator.n_features_in_ = content["inputs"]
    if content["columns"] is not None:
        estimator.feature_names_in_ = np.array(from_plain(content["columns"]), dtype=object)
    if kind is FairClassifier:
        estimator.discrepancy = content.get("discrepancy", "squared")
        estimator.classes_ = np.array(from_plain(content["classes"]))
        estimator.threshold, estimator.threshold_ = content.get("thresholds", (None, 0.5))
    if inner is None:
        _rebuild_network(estimator, content, tensors)
    else:
        estimator._know_estimator(EstimatorScores(inner, content["column"]))
    estimator.unfrozen_ = content.get("unfrozen", "")
    estimator.frozen_ = None if content["frozen"] is None else _frozen(content["frozen"], estimator.layer_, tensors)
    return estimator


def _rebuild_network(estimator: Any, content: dict[str, Any], tensors: dict[str, Any]) -> None:
    encoder = Encoder.from_data(content["encoder"])
    state = {name.removeprefix("network."): value for name, value in tensors.items() if name.startswith("network.")}
    if isinstance(estimator, FairRegressor):
        estimator.mean_, estimator.scale_ = float(state["mean"]), float(state["scale"])
    backbone = estimator._wrap(network(encoder.width, estimator.hidden, None, estimator._outputs()))
    estimator._scores = NetworkScores(encoder, FairModel(backbone, estimator.layer_).eval())
    backbone.load_state_dict(state)
    estimator.model_, estimator.preprocessing_ = estimator._scores.model, encoder
    estimator.n_iter_ = content["epochs"]


# Each part, to data and back


def _method(layer: Any) -> str:
    """By what the estimator goes when it predicts; methods that only train count as what is left: nothing."""
    kinds: dict[str, Any] = METHODS
    return next((name for name, kind in kinds.items() if isinstance(layer, kind)), "unconstrained")


def _layer_data(layer: FairLayer) -> dict[str, Any]:
    discrepancy = known_name(layer.discrepancy)
    if discrepancy is None:
        raise InputError(f"A layer with discrepancy {layer.discrepancy!r} cannot be saved; one of the library's can.")
    levels = None if layer.levels is None else _labels_data(layer.levels)
    data = {"absent": layer.absent, "infeasible": layer.infeasible, "levels": levels, "confidence": layer.confidence}
    data |= {"simplex": True} if layer.simplex else {}
    return data if discrepancy == "squared" else {**data, "discrepancy": discrepancy}


def _layer_options(data: dict[str, Any]) -> dict[str, Any]:
    """Of a layer or a method; what an older release did not write is as it is by default."""
    return {**data, "levels": None if data["levels"] is None else _labels(data["levels"])}


def _labels_data(labels: Mapping[Any, Any]) -> Any:
    return to_plain([[name, list(known)] for name, known in labels.items()])


def _labels(data: Any) -> dict[Any, tuple[Any, ...]]:
    return {name: tuple(known) for name, known in from_plain(data)}


def _constraint_data(constraint: Constraint) -> dict[str, Any]:
    if not constraint.needs_groups:
        raise InputError(f"{type(constraint).__name__} is about one batch: a model with it cannot be saved.")
    return constraint.to_data()


def _frozen_data(frozen: Frozen) -> dict[str, Any]:
    return {
        "labels": _labels_data(frozen.labels),
        "certificate": None if frozen.certificate is None else asdict(frozen.certificate),
    }


def _frozen(data: dict[str, Any], layer: Any, tensors: dict[str, Any]) -> Frozen:
    projection = layer if isinstance(layer, FairLayer) else layer.projection
    frozen = unfitted(projection, _labels(data["labels"]), classes=tensors["frozen.shifts"].shape[-1])
    frozen.shifts.copy_(tensors["frozen.shifts"])
    frozen.seen.copy_(tensors["frozen.seen"])
    kept = data["certificate"]
    if kept is not None:
        rows = tuple(GapBound(**row) for row in kept["rows"])
        frozen.certificate = Certificate(**{**kept, "rows": rows})
    return frozen.eval()


def _safetensors() -> Any:
    with needs("A model folder", "safetensors"):
        import safetensors.torch
    return safetensors.torch
