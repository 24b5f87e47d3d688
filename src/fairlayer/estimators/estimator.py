"""What `FairClassifier` and `FairRegressor` have in common.

Two questions, kept apart: where raw outputs come from (scores.py), and how they are made fair when predicting
(together, by projection, or each by itself, as frozen).
"""

from __future__ import annotations

import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from fairlayer.arrays import as_floats, as_numpy
from fairlayer.constraints import MeanParity
from fairlayer.core.discrepancies import known_name
from fairlayer.errors import InputError
from fairlayer.estimators.blind import STATED, GroupModel, check_blind, part_rows, rows_of
from fairlayer.estimators.models import columns_of, columns_within
from fairlayer.estimators.scores import check_kind, estimator_scores, fit_estimator, network_scores, train
from fairlayer.extras import needs
from fairlayer.frames import frame_column, frame_columns, frame_names, is_frame
from fairlayer.frozen.freeze import freeze
from fairlayer.layer import FairLayer
from fairlayer.plural import plural
from fairlayer.problem.constraint_set import ConstraintSet
from fairlayer.problem.groups import SoftGroup, code_groups
from fairlayer.solution import Status
from fairlayer.stream import Stream
from fairlayer.training import Batch

with needs("fairlayer.sklearn", "scikit-learn"):
    from sklearn.base import BaseEstimator  # type: ignore[import-untyped]
    from sklearn.utils import check_random_state, column_or_1d, get_tags  # type: ignore[import-untyped]
    from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data  # type: ignore[import-untyped]

CHOICES = {"method": ("layer", "projection"), "serving": ("batch", "frozen", "blind")}
OF_THE_NETWORK = (
    *("hidden", "module", "learning_rate", "batch_size", "max_epochs", "patience", "max_minutes"),
    "validation_fraction",
)
NEW_LABELS = "The model was not fitted with "


class Outputs(NamedTuple):
    """Outputs of all rows, (n,) or (n, d) of three and more classes: before and after they are made fair."""

    raw: np.ndarray
    fair: np.ndarray


@dataclass(eq=False, repr=False)  # scikit-learn takes the parameters from what `__init__` takes
class FairEstimator(BaseEstimator, ABC):
    """Common to classifier and regressor.

    constraints: a constraint or a list; None for MeanParity(0.05), [] for none. estimator: the model to make fair, any
    estimator or pipeline with scikit-learn's interface; a copy of it is fitted in `fit` (`estimator_`), unless it is a
    `sklearn.frozen.FrozenEstimator`, which is fitted already. None: a network of our own.
    sensitive_columns: names (positions, where X is an array) of columns of X that are the sensitive features, so that
    they need not be passed. serving: "batch"; "frozen" for shifts learned in `fit`; "blind" for predictions from X
    alone, with shifts chosen in `fit` so that the true groups agree, and a statement on the population in
    `frozen_.certificate`. confidence: of a guarantee for the population: predictions in batches aim at tighter
    tolerances, so that the population keeps the stated ones; so do the shifts of blind serving.

    What follows is for the network, and refused with an estimator, whose outputs are projected after its training.
    method: "layer" trains the network through the projection, "projection" projects its outputs after training.
    hidden: widths of the default network; module: another one, a torch module that maps (n, inputs) to (n, 1) (of three
    and more classes to their logits, (n, d)), or a callable that makes one for a number of inputs.
    The rest is the usual of mini-batch training with Adam and early stopping on `validation_fraction` of the rows;
    max_minutes: stop after the epoch in which so much time is up. `stopped_` says what ended training: "patience",
    "epochs" or "time".
    """

    __metadata_request__fit: ClassVar = {"sensitive_features": True, "sample_weight": None}
    __metadata_request__predict: ClassVar = {"sensitive_features": True}
    __metadata_request__score: ClassVar = {"sensitive_features": True}

    constraints: Any = None
    _: KW_ONLY
    estimator: Any = None
    sensitive_columns: Sequence[Any] | str | None = None
    method: Literal["layer", "projection"] = "layer"
    serving: Literal["batch", "frozen", "blind"] = "batch"
    confidence: float | None = None
    hidden: tuple[int, ...] = (64, 64)
    module: Any = None
    learning_rate: float = 1e-3
    batch_size: int | Literal["auto"] = "auto"
    max_epochs: int = 200
    patience: int = 8
    max_minutes: float | None = None
    validation_fraction: float = 0.1
    random_state: Any = None
    verbose: bool = False

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.non_deterministic = False
        if self.estimator is not None:
            inner = get_tags(self.estimator)
            tags.input_tags = inner.input_tags
            tags.non_deterministic = inner.non_deterministic
        return tags

    # How classifier and regressor differ

    @abstractmethod
    def _wrap(self, inner: nn.Module) -> nn.Module:
        """The network with its output in the units of the targets."""

    @abstractmethod
    def _loss(self, output: Tensor, target: Tensor) -> Tensor:
        """What training the network minimises, one number per sample."""

    @abstractmethod
    def _learn_targets(self, y: Any) -> np.ndarray:
        """The targets of `fit` as float64, once they are checked, and what must be known of them: `bounds_` and such"""

    def _targets(self, y: Any) -> np.ndarray:
        """Targets as float64."""
        return np.asarray(y, dtype=np.float64)

    def _layer_options(self, rules: ConstraintSet) -> dict[str, Any]:
        """Arguments of `FairLayer` that depend on the targets; refuses constraints that do not go with these."""
        return {}

    @property
    def _width(self) -> int:
        """How many outputs a row has."""
        classes = len(getattr(self, "classes_", ()))
        return classes if classes > 2 else 1

    # Learning

    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None, **options: Any) -> Self:
        """Train. sensitive_features: a frame, series, mapping or array with one or more labels per row of X.

        options: `sample_weight`, which the training and the frozen shifts look at; anything else goes to `fit` of the
        estimator.
        """
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        self._check_settings()
        if self.sensitive_columns is not None and sensitive_features is not None:
            raise InputError("sensitive_columns names columns of X, and sensitive_features is passed too: drop one.")
        X, groups = self._read(X, sensitive_features, reset=True)
        if self.sensitive_columns is not None:
            groups = self._groups_in(X)
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        self._check_groups(groups)
        targets = self._learn_targets(y)
        weights = _read_weights(options.pop("sample_weight", None), len(targets))
        self.groups_ = None if groups is None else list(groups)
        self.groups_in_X_ = groups is not None and _are_columns(groups, X)
        self.layer_ = None if groups is None else self._make_layer()
        sample = calibration = Batch(X, targets, groups, self._features(X), weights)
        if self.serving == "blind":
            told = options if weights is None else {**options, "sample_weight": weights}
            check_blind(self, X, groups, None if self.layer_ is None else self.layer_.rules, told)
            learn, kept = part_rows(len(targets), self._seed())
            sample, calibration, y = rows_of(sample, learn), rows_of(sample, kept), np.asarray(y)[learn]
        self._learn(sample, y, options)
        self.group_model_: GroupModel | None = None
        if self.serving == "blind" and self.layer_ is not None:
            _, compared = self.layer_.rules.groupings(tuple(sample.groups))
            self.group_model_ = GroupModel.fit(sample.x, sample.groups, compared, self._seed())
        self._freeze(calibration)
        return self

    def _check_settings(self) -> None:
        """Refuse settings that are not known, or are not for an estimator, rather than ignore them."""
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise InputError(f"{name} must be one of {list(known)}; got {getattr(self, name)!r}.")
        if self.estimator is None:
            return
        check_kind(self.estimator, hasattr(self, "predict_proba"))
        usual = inspect.signature(type(self).__init__).parameters
        told = [name for name in OF_THE_NETWORK if getattr(self, name) != usual[name].default]
        if told:
            raise InputError(
                f"{', '.join(told)} {plural(len(told), 'describes', 'describe')} a network, and estimator takes its "
                f"place: leave {plural(len(told), 'it', 'them')} out."
            )

    def _check_groups(self, groups: Any) -> None:
        """Refuse constraints without groups, and groups with missing labels."""
        if groups is not None:
            code_groups(groups)
        elif self.constraints is None:
            warnings.warn(
                "Fitted without sensitive_features: no constraint is applied, predictions may differ between groups.",
                UserWarning,
                stacklevel=3,
            )
        elif not self._unconstrained():
            raise InputError(
                "sensitive_features is missing: the constraints compare groups. Pass it to fit (with metadata routing "
                "switched on, inside a Pipeline or a search), name columns of X with sensitive_columns, or leave "
                "constraints out."
            )

    def _unconstrained(self) -> bool:
        return isinstance(self.constraints, list | tuple) and not self.constraints

    def _make_layer(self) -> FairLayer | None:
        """The projection onto the constraints; None where there are none."""
        if self._unconstrained():
            return None
        rules = ConstraintSet([MeanParity(0.05)] if self.constraints is None else self.constraints)
        by_target = next((c for c in rules.constraints if c.needs_groups and not c.serves_unknown_targets), None)  # type: ignore[attr-defined]
        if by_target is not None:
            raise InputError(
                f"{type(by_target).__name__} compares samples with the same target, which are unknown when predicting: "
                "outputs cannot be projected onto it. Use MeanParity or RateParity, or a Stream, which learns targets "
                "later."
            )
        confidence = None if self.serving == "blind" else self.confidence
        return FairLayer(rules.constraints, self.bounds_, confidence=confidence, **self._layer_options(rules))

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _learn(self, sample: Batch, y: Any, options: dict[str, Any]) -> None:
        """Raw outputs: from the network, or from an estimator. y: as given; options: for the estimator."""
        self.history_, self.stopped_ = {}, None
        if self.estimator is None:
            if options:
                raise InputError(f"fit got {list(options)}, which are for an estimator: the network takes none.")
            self.preprocessing_, self.model_, fitted = train(self, sample, self._seed())
            self.history_, self.n_iter_, self.stopped_ = fitted.history, fitted.epochs, fitted.stopped
            return
        classes = getattr(self, "classes_", None)
        self.estimator_, self.column_ = fit_estimator(self.estimator, sample.x, y, classes, sample.weights, options)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))

    def _scores(self, X: Any) -> np.ndarray:
        """Raw outputs of rows that were read."""
        if self.estimator is None:
            return network_scores(self.preprocessing_, self.model_, X)
        return estimator_scores(self.estimator_, self.column_, X)

    def _freeze(self, sample: Batch) -> None:
        """Shifts per group from the sample; where there can be none, why."""
        self.frozen_, self.unfrozen_ = None, ""
        if self.layer_ is None:
            return
        stated: dict[str, Any] = {"confidence": None}
        if self.serving == "blind":
            stated = {"confidence": self.confidence or STATED, "tighten": self.confidence is not None}
        try:
            self.frozen_ = self._frozen(sample, stated)
        except InputError as error:
            if self.serving != "batch" or self.layer_.rules.needs_targets:
                raise
            self.unfrozen_ = str(error)

    def _frozen(self, sample: Batch, options: dict[str, Any]) -> Any:
        """The shifts that fit a sample; options: those of `freeze`."""
        X, targets, groups, features, weights = sample
        data = {"targets": targets, "features": features, "weights": weights}
        proxies = None if self.group_model_ is None else self.group_model_(X)
        return freeze(self.layer_, self._scores(X), groups, proxies=proxies, **data, **options)

    def calibrate(
        self, X: Any, y: Any = None, *, sensitive_features: Any = None, confidence: float | None = 0.95, **options: Any
    ) -> Self:
        """Learn the frozen shifts anew from samples not used in `fit`, with a statement on the population's gaps.

        The statement is `frozen_.certificate`; options (tighten, certify, seed, ...) are those of `fairlayer.freeze`.
        """
        self._check_constrained("calibrate")
        self._is_blind()  # or refused
        X, groups = self._read(X, sensitive_features)
        if groups is None:
            groups = self._groups_in(X)
        targets = None if y is None else self._targets(y)
        sample = Batch(X, targets, groups, self._features(X), options.pop("weights", None))
        self.frozen_ = self._frozen(sample, {"confidence": confidence, **options})
        return self

    # Predicting

    def outputs(
        self, X: Any, *, sensitive_features: Any = None, serving: Literal["batch", "frozen"] | None = None
    ) -> Outputs:
        """The model's own outputs and what is made of them, in one pass: probabilities for a classifier.

        serving: for these rows, in place of the model's own; "blind" is settled in `fit`.
        """
        check_is_fitted(self, "layer_")
        blind = self._is_blind()
        X, groups = self._read(X, None if blind else sensitive_features)  # blind predictions ignore the groups
        if self.layer_ is None:
            raw = self._scores(X)
            return Outputs(raw, raw)
        # Columns that are named count as passed; columns found by chance are no batch that anything is promised for.
        how = "frozen" if groups is None and self.sensitive_columns is None else serving or self.serving
        if groups is None:
            groups = self.group_model_(X) if self.group_model_ is not None else self._groups_in(X)
        raw, features = self._scores(X), self._features(X)
        # Constraints that look at targets, which are not known yet, are kept by shifts, too.
        if how == "batch" and not self.layer_.rules.needs_targets:
            return Outputs(raw, self._projected(raw, groups, features))
        if self.frozen_ is None:
            raise InputError(self.unfrozen_)
        return Outputs(raw, self.frozen_.predict(raw, groups, features))

    def _projected(self, raw: np.ndarray, groups: Any, features: Any) -> np.ndarray:
        """All rows together, projected, with warnings about their groups."""
        assert self.layer_ is not None
        layer, told = self.layer_.eval(), []
        value = layer(torch.from_numpy(raw), groups, features=features).numpy()
        if layer.solution is not None and layer.solution.status is Status.VACUOUS:
            told.append(
                f"Some groups are absent from this batch and were not compared: "
                f"{'; '.join(layer.solution.vacuous[:3])}. Predict larger batches, or set serving='frozen' for "
                "predictions that do not depend on the batch."
            )
        # A label that `fit` never saw may be a misspelt one, whose group would then be compared without it.
        for name, known in ({} if self.frozen_ is None else self.frozen_.labels).items():
            met = () if isinstance(groups[name], SoftGroup) else dict.fromkeys(as_numpy(groups[name]).tolist())
            new = [label for label in met if label not in known]
            if new:
                told.append(
                    f"{NEW_LABELS}{name} {', '.join(map(repr, new[:5]))}; it knows {', '.join(map(repr, known[:20]))}. "
                    "New labels were compared like the other groups: correct the spelling, or fit again with such rows."
                )
        for text in told:
            warnings.warn(text, UserWarning, stacklevel=4)
        return value

    def raw_outputs(self, X: Any) -> np.ndarray:
        """The model's own outputs, before anything makes them fair: probabilities for a classifier."""
        check_is_fitted(self, "layer_")
        X, _ = self._read(X, None)
        return self._scores(X)

    def stream(self, store: Any = None, name: str = "default", **options: Any) -> Stream:
        """A stream of decisions under the model's constraints: `stream.update(model.raw_outputs(X), groups)`.

        Options are those of `fairlayer.Stream`.
        """
        layer = self._check_constrained("keep in a stream")
        if self.serving == "blind":
            raise InputError(
                "A stream keeps the books of the groups of its samples, which serving='blind' must not see."
            )
        kind = known_name(layer.discrepancy) or layer.discrepancy
        options = {"discrepancy": kind, "simplex": layer.simplex, **options}
        if layer.simplex:
            options.setdefault("classes", [str(name) for name in self.classes_])
        return Stream(layer.rules.constraints, self.bounds_, store=store, name=name, **options)

    def _check_constrained(self, what: str) -> FairLayer:
        check_is_fitted(self, "layer_")
        if self.layer_ is None:
            raise InputError(f"There is nothing to {what}: the model was fitted without constraints.")
        return self.layer_

    def _is_blind(self) -> bool:
        """Whether predictions look at X alone. `fit` decides that: the shifts for one are not those for the other."""
        self._check_settings()
        blind = self.serving == "blind"
        if blind != (self.group_model_ is not None):
            raise InputError(
                f"serving={self.serving!r} was set after fit: shifts for blind serving are chosen in fit, and serve "
                "nothing else. Fit again."
            )
        return blind

    # Tables and groups

    def _features(self, X: Any) -> dict[Any, Any] | None:
        """The columns of X by name, where a constraint looks at regions of features."""
        return columns_of(X) if self.layer_ is not None and self.layer_.rules.needs_features else None

    def _groups_in(self, X: Any) -> dict[Any, Any]:
        """The protected attributes, where they are columns of X."""
        if self.sensitive_columns is not None:
            named = [self.sensitive_columns] if isinstance(self.sensitive_columns, str) else self.sensitive_columns
            return columns_within(X, list(named), "sensitive_columns")
        if not self.groups_in_X_:
            raise InputError(
                f"sensitive_features is missing: the model was fitted with {self.groups_}, which are not columns "
                "of X, so the group of a sample is unknown. Pass sensitive_features (to a scorer by "
                "scoring=fairlayer.sklearn.fair_scorer('roc_auc')), or name columns of X with sensitive_columns."
            )
        return columns_within(X, self.groups_ or [], "sensitive_features")

    def _read(self, X: Any, sensitive_features: Any, reset: bool = False) -> tuple[Any, Any]:
        """X as the model takes it, and the protected attributes by name, None where there are none."""
        if self.estimator is None:  # any other has checks of its own that are right for it: X may be sparse, or texts
            if is_frame(X):
                validate_data(self, X, reset=reset, skip_check_array=True)
            else:
                X = validate_data(self, X, reset=reset, dtype="numeric", ensure_all_finite="allow-nan")
        if is_frame(X) and len(X) == 0:
            raise InputError("X is empty: 0 sample(s) were found, at least 1 is required.")
        if sensitive_features is None:
            return X, None
        groups = _named(sensitive_features)
        check_consistent_length(X, *groups.values())
        if not reset and (self.groups_ is None or not set(self.groups_) <= set(groups)):
            raise InputError(
                f"sensitive_features has {list(groups)}; the model was fitted with {self.groups_ or 'none'}."
            )
        return X, groups


def _named(sensitive_features: Any) -> dict[Any, Any]:
    """Protected attributes by name: of a frame, a mapping, a series, a list, or an array of one or more columns."""
    if isinstance(sensitive_features, Mapping) or is_frame(sensitive_features):
        return frame_columns(sensitive_features)
    name = getattr(sensitive_features, "name", None)
    if name is not None and name != "":
        return {name: sensitive_features}
    table = as_numpy(sensitive_features, "sensitive_features")
    if table.ndim == 1:
        return {"sensitive_feature": table}
    if table.ndim == 2 and table.shape[1] > 0:
        return {f"sensitive_feature_{j}": table[:, j] for j in range(table.shape[1])}
    raise InputError(f"sensitive_features has shape {table.shape}: pass one label, or one row of labels, per sample.")


def _are_columns(groups: Mapping[Any, Any], X: Any) -> bool:
    """Whether the frame X holds the attributes under the same names."""
    known = frame_names(X) if is_frame(X) else []
    return all(
        name in known and bool((np.asarray(frame_column(X, name)) == np.asarray(labels)).all())
        for name, labels in groups.items()
    )


def _read_weights(weights: Any, n: int) -> np.ndarray | None:
    """Sample weights as numbers, one per row."""
    if weights is None:
        return None
    values = as_floats(weights, "sample_weight", "numbers, one per row")
    if values.shape != (n,) or not np.isfinite(values).all() or (values < 0).any() or not values.any():
        raise InputError(
            f"sample_weight has shape {values.shape} for {n} rows: pass a finite number of at least 0 for each, not "
            "all of them 0."
        )
    return values
