"""Raw outputs: of a network of our own, or of any other estimator of scikit-learn's kind, fitted here or before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fairlayer.errors import InputError
from fairlayer.estimators.models import TableNumbers
from fairlayer.extras import needs
from fairlayer.layer import FairModel
from fairlayer.training import Batch, Fitted, batches, fit

with needs("fairlayer.sklearn", "scikit-learn"):
    import sklearn  # type: ignore[import-untyped]
    from sklearn.base import clone, is_classifier, is_regressor  # type: ignore[import-untyped]
    from sklearn.pipeline import Pipeline  # type: ignore[import-untyped]
    from sklearn.utils.validation import has_fit_parameter  # type: ignore[import-untyped]

FEWEST_TO_VALIDATE = 30
ROWS_AT_ONCE = 65_536
WIDEST_FOR_ONE_THREAD = 256  # layers up to this width train no faster on more, and far slower beside other work


# A network of our own


def network(inputs: int, hidden: Sequence[int], module: Any, outputs: int = 1) -> nn.Module:
    """The default network, a copy of a module, or what a callable makes of the number of inputs."""
    if isinstance(module, nn.Module):
        return deepcopy(module)
    if module is not None:
        if not callable(module):
            raise InputError(f"module must be a torch module or a callable that makes one; got {module!r}.")
        return module(inputs)
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


class Probability(nn.Module):
    """A network whose one output is read as a logit; or each of several as that of a class.

    inside: probabilities are kept away from 0 and 1, by the least that their dtype knows, where relative entropy, which
    moves neither, is to move them.
    """

    def __init__(self, inner: nn.Module, inside: bool = False):
        super().__init__()
        self.inner = inner
        self.inside = inside

    def forward(self, x: Tensor) -> Tensor:
        """The probability, (n, 1); or those of all classes, (n, d)."""
        logits = self.inner(x)
        several = logits.ndim == 2 and logits.shape[1] > 1
        p = torch.softmax(logits, dim=1) if several else torch.sigmoid(logits)
        if self.inside:
            limits = torch.finfo(p.dtype)
            p = p.clamp(limits.tiny, None if several else 1.0 - limits.eps / 2)
        return p


class Rescaled(nn.Module):
    """A network whose one output is in standard deviations from the mean of the training targets."""

    mean: Tensor
    scale: Tensor

    def __init__(self, inner: nn.Module, mean: float, scale: float):
        super().__init__()
        self.inner = inner
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32))
        self.register_buffer("scale", torch.tensor(scale, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        """The output in the units of the targets."""
        return self.mean + self.scale * self.inner(x)


@torch.no_grad()
def network_scores(encoder: TableNumbers, model: FairModel, X: Any) -> np.ndarray:
    """(n,) float64, or (n, d) of several classes: rows of a table, encoded and taken through a network.

    The network is in double precision: single precision would let the last digits of an output depend on the batch.
    """
    table = torch.from_numpy(np.ascontiguousarray(encoder.transform(X), dtype=np.float64))
    parts: list[Tensor] = [model.raw(part) for part in table.split(ROWS_AT_ONCE)]
    return torch.cat(parts).numpy()


def train(estimator: Any, sample: Batch, seed: int) -> tuple[TableNumbers, FairModel, Fitted]:
    """Train the network of a `FairEstimator`: through its layer, or without it where outputs are projected later."""
    encoder = TableNumbers().fit(sample.x)
    inputs, n = encoder.transform(sample.x).astype(np.float32), len(sample.targets)
    sample = sample._replace(x=inputs, targets=sample.targets.astype(np.float32))
    order = np.random.default_rng(seed).permutation(n)
    held = round(estimator.validation_fraction * n)
    held = held if held >= FEWEST_TO_VALIDATE else 0
    size = int(np.clip(n // 20, 32, 512)) if estimator.batch_size == "auto" else estimator.batch_size

    def loader(rows: np.ndarray, **options: Any) -> Any:
        return batches(*sample.rows(np.sort(rows)), seed=seed, **options)

    training = loader(order[held:], batch_size=size, shuffle=True, stratify=sample.groups is not None)
    small = estimator.module is None and max(estimator.hidden, default=0) <= WIDEST_FOR_ONE_THREAD
    with torch.random.fork_rng(devices=[]), _threads(1 if small else torch.get_num_threads()):
        torch.manual_seed(seed)
        inner = network(inputs.shape[1], estimator.hidden, estimator.module, estimator._width)
        model = FairModel(estimator._wrap(inner), estimator.layer_ if estimator.method == "layer" else None)
        fitted = fit(
            model,
            training,
            loader(order[:held]) if held else None,
            loss=estimator._loss,
            epochs=estimator.max_epochs,
            learning_rate=estimator.learning_rate,
            patience=estimator.patience,
            max_minutes=estimator.max_minutes,
            progress=estimator.verbose,
        )
    return encoder, model.double(), fitted


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """So many threads for torch, for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# Any other estimator


def estimator_scores(estimator: Any, column: int | list[int] | None, X: Any) -> np.ndarray:
    """(n,) float64, or (n, d): a column of a fitted estimator's probabilities, or several; None for its predictions."""
    if column is not None:
        found = np.asarray(estimator.predict_proba(X))[:, column]
    else:
        found = np.asarray(estimator.predict(X))
        if found.ndim == 2 and found.shape[1] == 1:
            found = found[:, 0]
    if found.ndim != 1 and not isinstance(column, list):
        raise InputError(f"The estimator predicts an array of shape {found.shape}: one number per row is needed.")
    return np.ascontiguousarray(found, dtype=np.float64)


def check_kind(estimator: Any, classify: bool) -> None:
    """Refuse what has no outputs to make fair."""
    name = type(estimator).__name__
    if isinstance(estimator, type) or not hasattr(estimator, "fit") or not hasattr(estimator, "get_params"):
        raise InputError(f"estimator must be an estimator of scikit-learn's kind, or None; got {estimator!r}.")
    if not (is_classifier if classify else is_regressor)(estimator):
        other = "FairRegressor" if classify else "FairClassifier"
        raise InputError(f"{name} is not a {'classifier' if classify else 'regressor'}: see {other}.")
    if classify and not hasattr(estimator, "predict_proba"):
        raise InputError(
            f"{name} predicts no probabilities, which are what is made fair: wrap it in "
            "sklearn.calibration.CalibratedClassifierCV, or set its option for them."
        )


def fit_estimator(
    estimator: Any, X: Any, y: np.ndarray, classes: np.ndarray | None, weights: Any, options: dict[str, Any]
) -> tuple[Any, int | list[int] | None]:
    """Fit a copy; one that is frozen (`FrozenEstimator`) stays as it is. classes: those of y; None for a regressor.

    With it comes the column of its probabilities that scores are, or several; None for its predictions.

    A classifier gets the labels as they are, so that class weights by label mean what they say. Where it refuses them,
    as XGBoost does with words, it gets 0, 1 and so on. Of two classes the scores are those of the second, otherwise of
    all.
    """
    given = {**options, **_weights(estimator, weights)}
    if classes is None:
        fitted = clone(estimator)
        fitted.fit(X, y, **given)
        return fitted, None
    names, numbers = classes.tolist(), list(range(len(classes)))
    attempts: list[Any] = [y] if names == numbers else [y, np.searchsorted(classes, y).astype(np.int64)]
    refused: list[Exception] = []
    for labels in attempts:
        fitted = clone(estimator)
        try:
            fitted.fit(X, labels, **given)
            break
        except (ValueError, TypeError) as error:
            refused.append(error)
    else:
        raise refused[0]
    known = np.asarray(fitted.classes_).tolist()
    order = next((order for order in (names, numbers) if set(order) == set(known)), None)
    if order is None or len(known) != len(order):
        raise InputError(f"The estimator knows the classes {known}; y has {names}. Fit it with the same ones.")
    columns = [known.index(name) for name in order]
    return fitted, columns[1] if len(columns) == 2 else columns


def _weights(estimator: Any, weights: Any) -> dict[str, Any]:
    """Sample weights as the estimator takes them: through a pipeline, to its last step."""
    if weights is None:
        return {}
    if isinstance(estimator, Pipeline) and not sklearn.get_config()["enable_metadata_routing"]:
        name, last = estimator.steps[-1]
        return {f"{name}__{key}": value for key, value in _weights(last, weights).items()}
    if not isinstance(estimator, Pipeline) and not has_fit_parameter(estimator, "sample_weight"):
        raise InputError(f"{type(estimator).__name__} takes no sample_weight: leave it out, or use another estimator.")
    return {"sample_weight": weights}
