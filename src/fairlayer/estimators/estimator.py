"""What `FairClassifier` and `FairRegressor` have in common: training, and how predictions are made fair."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.constraints import MeanParity
from fairlayer.errors import InputError
from fairlayer.estimators.preprocessing import (
    are_columns,
    columns_of,
    is_frame,
    named_groups,
    network,
    preprocessing,
)
from fairlayer.extras import needs
from fairlayer.frozen.freeze import freeze
from fairlayer.layer import FairLayer
from fairlayer.model import FairModel
from fairlayer.solution import Status
from fairlayer.stream import Stream
from fairlayer.training import AugmentedLagrangian, Penalty, Projection, Unconstrained, batches, fit
from fairlayer.training.batches import take

with needs("fairlayer.sklearn", "scikit-learn"):
    from sklearn.base import BaseEstimator  # type: ignore[import-untyped]
    from sklearn.utils import check_random_state, column_or_1d  # type: ignore[import-untyped]
    from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data  # type: ignore[import-untyped]

METHODS: dict[str, Callable[..., nn.Module]] = {
    "layer": FairLayer,
    "projection": Projection,
    "penalty": Penalty,
    "lagrangian": AugmentedLagrangian,
    "unconstrained": Unconstrained,
}
FEWEST_TO_VALIDATE = 30
ROWS_AT_ONCE = 65_536
WIDEST_FOR_ONE_THREAD = 256  # layers up to this width train no faster on more, and far slower beside other work


class Outputs(NamedTuple):
    """Outputs of all rows: as the network gives them, and as they are made fair."""

    raw: np.ndarray  # (n,)
    fair: np.ndarray  # (n,)


class FairEstimator(BaseEstimator, ABC):
    """Common to classifier and regressor.

    constraints: a constraint or a list; None for MeanParity(0.05). method: "layer" trains through the projection;
    "projection" (only after training), "penalty", "lagrangian", "unconstrained", or a callable that takes constraints
    and bounds, for comparison. serving: "batch", or "frozen" for shifts learned in `fit`.
    hidden: widths of the default network; module: another one, a torch module that maps (n, inputs) to (n, 1), or a
    callable that makes one for a number of inputs. The rest is the usual of mini-batch training with Adam and early
    stopping on `validation_fraction` of the rows; max_minutes: stop after the epoch in which so much time is up.
    `stopped_` says what ended training: "patience", "epochs" or "time".
    """

    __metadata_request__fit: ClassVar = {"sensitive_features": True}
    __metadata_request__predict: ClassVar = {"sensitive_features": True}
    __metadata_request__score: ClassVar = {"sensitive_features": True}

    def __init__(
        self,
        constraints: Any = None,
        *,
        method: str | Callable[..., nn.Module] = "layer",
        serving: Literal["batch", "frozen"] = "batch",
        hidden: tuple[int, ...] = (64, 64),
        module: Any = None,
        learning_rate: float = 1e-3,
        batch_size: int | Literal["auto"] = "auto",
        max_epochs: int = 200,
        patience: int = 8,
        max_minutes: float | None = None,
        validation_fraction: float = 0.1,
        random_state: Any = None,
        verbose: bool = False,
    ):
        self.constraints = constraints
        self.method = method
        self.serving = serving
        self.hidden = hidden
        self.module = module
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.max_minutes = max_minutes
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.non_deterministic = False
        return tags

    def _fit(self, X: Any, targets: np.ndarray, groups: Any, bounds: Any, wrap: Callable[..., nn.Module]) -> None:
        """Train on targets as float64; `wrap` puts the output of the inner network into their units."""
        if self.serving not in ("batch", "frozen"):
            raise InputError(f"serving must be 'batch' or 'frozen'; got {self.serving!r}.")
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31 - 1))
        self.preprocessing_ = preprocessing(X)
        inputs = np.asarray(self.preprocessing_.fit_transform(X), dtype=np.float32)
        self.bounds_ = bounds
        self.groups_ = None if groups is None else list(groups)
        layer = self._layer(groups, bounds)
        features = columns_of(X) if _needs_features(layer) else None
        n = len(targets)
        order = np.random.default_rng(seed).permutation(n)
        held = round(self.validation_fraction * n)
        held = held if held >= FEWEST_TO_VALIDATE else 0
        size = int(np.clip(n // 20, 32, 512)) if self.batch_size == "auto" else self.batch_size

        def loader(rows: np.ndarray, **options: Any) -> Any:
            return batches(
                inputs[rows],
                targets[rows].astype(np.float32),
                take(groups, rows),
                take(features, rows),
                seed=seed,
                **options,
            )

        small = self.module is None and max(self.hidden, default=0) <= WIDEST_FOR_ONE_THREAD
        train = loader(np.sort(order[held:]), batch_size=size, shuffle=True, stratify=groups is not None)
        validation = loader(np.sort(order[:held])) if held else None
        with torch.random.fork_rng(devices=[]), _threads(1 if small else torch.get_num_threads()):
            torch.manual_seed(seed)
            self.model_ = FairModel(wrap(network(inputs.shape[1], self.hidden, self.module)), layer)
            fitted = fit(
                self.model_,
                train,
                validation,
                loss=self._loss,
                epochs=self.max_epochs,
                learning_rate=self.learning_rate,
                patience=self.patience,
                max_minutes=self.max_minutes,
                progress=self.verbose,
            )
        self.model_.double()  # single precision would let the last digits of a prediction depend on the batch
        self.history_ = fitted.history
        self.n_iter_ = fitted.epochs
        self.stopped_ = fitted.stopped
        self.frozen_ = None
        projection = _projection(layer)
        if projection is not None:
            self.frozen_ = freeze(
                projection, self._raw(inputs), groups, targets=targets, features=features, confidence=None
            )
        self.groups_in_X_ = groups is not None and are_columns(groups, X)

    def _layer(self, groups: Any, bounds: Any) -> nn.Module | None:
        """What follows the network; nothing without sensitive features."""
        if groups is None:
            if self.constraints is not None and self.method != "unconstrained":
                raise InputError(
                    "sensitive_features is missing: the constraints compare groups. Pass it to fit (with metadata "
                    "routing switched on, inside a Pipeline or a search), or leave constraints out."
                )
            return None
        make = METHODS.get(self.method) if isinstance(self.method, str) else self.method
        if make is None:
            raise InputError(f"method must be one of {list(METHODS)} or a callable; got {self.method!r}.")
        rules = ConstraintSet([MeanParity(0.05)] if self.constraints is None else self.constraints)
        layer = make(rules.constraints, bounds)
        by_target = next((c for c in rules.constraints if any(part.source == "target" for part in c.conditions)), None)
        if by_target is not None and _projection(layer) is not None:
            raise InputError(
                f"{type(by_target).__name__} compares samples with the same target, which are unknown when predicting: "
                "outputs cannot be projected onto it. Use method='lagrangian' to train the network itself towards it."
            )
        return layer

    def calibrate(
        self, X: Any, y: Any = None, *, sensitive_features: Any, confidence: float | None = 0.95, **options: Any
    ) -> Any:
        """Learn the frozen shifts anew from samples not used in `fit`, with a statement on the population's gaps.

        The statement is `frozen_.certificate`; options (tighten, certify, seed, ...) are those of `fairlayer.freeze`.
        """
        check_is_fitted(self, "model_")
        layer = _projection(self.model_.layer)
        if layer is None:
            raise InputError("There is nothing to calibrate: the model was fitted without a projection.")
        X, groups = self._read(X, sensitive_features)
        features = columns_of(X) if _needs_features(layer) else None
        raw = self._raw(self.preprocessing_.transform(X))
        targets = None if y is None else self._targets(y)
        self.frozen_ = freeze(layer, raw, groups, targets=targets, features=features, confidence=confidence, **options)
        return self

    def outputs(self, X: Any, *, sensitive_features: Any = None) -> Outputs:
        """What the network itself says and what is made of it, in one pass: probabilities for a classifier."""
        check_is_fitted(self, "model_")
        X, groups = self._read(X, sensitive_features)
        raw = self._raw(self.preprocessing_.transform(X))
        return Outputs(raw, self._made_fair(raw, X, groups))

    def raw_outputs(self, X: Any) -> np.ndarray:
        """What the network itself says, before anything makes it fair: probabilities for a classifier."""
        check_is_fitted(self, "model_")
        X, _ = self._read(X, None)
        return self._raw(self.preprocessing_.transform(X))

    def stream(self, store: Any = None, name: str = "default", **options: Any) -> Stream:
        """A stream of decisions under the model's constraints: `stream.update(model.raw_outputs(X), groups)`.

        Options are those of `fairlayer.Stream`.
        """
        check_is_fitted(self, "model_")
        layer = _projection(self.model_.layer)
        if layer is None:
            raise InputError("There is nothing to keep in a stream: the model was fitted without a projection.")
        return Stream(layer.rules.constraints, self.bounds_, store=store, name=name, **options)

    @abstractmethod
    def _loss(self, output: Tensor, target: Tensor) -> Tensor:
        """What training minimises."""

    def _targets(self, y: Any) -> np.ndarray:
        return np.asarray(y, dtype=np.float64)

    def _made_fair(self, raw: np.ndarray, X: Any, groups: Any) -> np.ndarray:
        """The network's outputs as float64: projected, shifted, or as they are."""
        layer = self.model_.layer
        if layer is None:
            return raw
        features = columns_of(X) if _needs_features(layer) else None
        projection = _projection(layer)
        if projection is None:  # the network itself was trained towards the constraints
            return raw if self.bounds_ is None else np.clip(raw, *self.bounds_)
        if groups is not None and self.serving == "batch" and not projection.rules.needs_targets:
            value = projection(torch.from_numpy(raw), groups, features=features).numpy()
            if projection.solution is not None and projection.solution.status is Status.VACUOUS:
                absent = "; ".join(projection.solution.vacuous[:3])
                warnings.warn(
                    f"Some groups are absent from this batch and were not compared: {absent}. Predict larger batches, "
                    "or set serving='frozen' for predictions that do not depend on the batch.",
                    UserWarning,
                    stacklevel=4,
                )
            return value
        if groups is None:
            if not self.groups_in_X_:
                raise InputError(
                    f"sensitive_features is missing: the model was fitted with {self.groups_}, which are not columns "
                    "of X, so the group of a sample is unknown. Pass sensitive_features, or fit with a frame X that "
                    "has these columns."
                )
            groups = {name: X[name] for name in self.groups_ or ()}
        assert self.frozen_ is not None
        return self.frozen_.predict(raw, groups, features)

    @torch.no_grad()
    def _raw(self, inputs: Any) -> np.ndarray:
        """The network's own outputs."""
        table = torch.from_numpy(np.ascontiguousarray(inputs, dtype=np.float64))
        parts: list[Tensor] = [self.model_.raw(part) for part in table.split(ROWS_AT_ONCE)]
        return torch.cat(parts).numpy()

    def _read(self, X: Any, sensitive_features: Any, reset: bool = False) -> tuple[Any, Any]:
        """X as a frame or an array of numbers, and the protected attributes by name, None where there are none."""
        if is_frame(X):
            validate_data(self, X, reset=reset, skip_check_array=True)
            if len(X) == 0:
                raise InputError("X is empty: 0 sample(s) were found, at least 1 is required.")
        else:
            X = validate_data(self, X, reset=reset, dtype="numeric", ensure_all_finite="allow-nan")
        if sensitive_features is None:
            return X, None
        groups = named_groups(sensitive_features)
        check_consistent_length(X, *groups.values())
        if not reset:
            absent = [name for name in self.groups_ or () if name not in groups]
            if self.groups_ is None or absent:
                raise InputError(
                    f"sensitive_features has {list(groups)}; the model was fitted with {self.groups_ or 'none'}."
                )
        return X, groups

    def _start(self, X: Any, y: Any, sensitive_features: Any) -> tuple[Any, Any, Any]:
        """Check what `fit` got."""
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        X, groups = self._read(X, sensitive_features, reset=True)
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        if groups is None and self.constraints is None and self.method == "layer":
            warnings.warn(
                "Fitted without sensitive_features: no constraint is applied, predictions may differ between groups.",
                UserWarning,
                stacklevel=3,
            )
        return X, y, groups


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """So many threads for torch, for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _projection(layer: nn.Module | None) -> FairLayer | None:
    """The projection that outputs pass through when predicting, if any."""
    projection = layer.projection if isinstance(layer, Projection) else layer
    return projection if isinstance(projection, FairLayer) else None


def _needs_features(layer: Any) -> bool:
    """Whether a constraint looks at regions of features."""
    return layer is not None and layer.rules.needs_features
