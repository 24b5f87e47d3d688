"""Raw outputs from a network of our own: what it is made of, and how it is trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fairlayer.errors import InputError
from fairlayer.estimators.encoder import Encoder
from fairlayer.layer import FairModel
from fairlayer.training import Batch, batches, fit
from fairlayer.training.loop import Fitted

FEWEST_TO_VALIDATE = 30
ROWS_AT_ONCE = 65_536
WIDEST_FOR_ONE_THREAD = 256  # layers up to this width train no faster on more, and far slower beside other work


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


class NetworkScores:
    """Raw outputs of rows of a table: encoded, then taken through a network in double precision."""

    def __init__(self, encoder: Encoder, model: FairModel):
        self.encoder = encoder
        self.model = model.double()  # single precision would let the last digits of an output depend on the batch

    @torch.no_grad()
    def __call__(self, X: Any) -> np.ndarray:
        """(n,) float64, or (n, d) of several classes."""
        table = torch.from_numpy(np.ascontiguousarray(self.encoder.transform(X), dtype=np.float64))
        parts: list[Tensor] = [self.model.raw(part) for part in table.split(ROWS_AT_ONCE)]
        return torch.cat(parts).numpy()


def train(estimator: Any, sample: Batch, seed: int) -> tuple[NetworkScores, Fitted]:
    """Train the network of a `FairEstimator`: through its layer, or without it where outputs are projected later."""
    encoder = Encoder.fit(sample.x)
    inputs, n = encoder.transform(sample.x).astype(np.float32), len(sample.targets)
    sample = sample._replace(x=inputs, targets=sample.targets.astype(np.float32))
    order = np.random.default_rng(seed).permutation(n)
    held = round(estimator.validation_fraction * n)
    held = held if held >= FEWEST_TO_VALIDATE else 0
    size = int(np.clip(n // 20, 32, 512)) if estimator.batch_size == "auto" else estimator.batch_size

    def loader(rows: np.ndarray, **options: Any) -> Any:
        return batches(*sample.rows(rows), seed=seed, **options)

    small = estimator.module is None and max(estimator.hidden, default=0) <= WIDEST_FOR_ONE_THREAD
    training = loader(np.sort(order[held:]), batch_size=size, shuffle=True, stratify=sample.groups is not None)
    validation = loader(np.sort(order[:held])) if held else None
    with torch.random.fork_rng(devices=[]), _threads(1 if small else torch.get_num_threads()):
        torch.manual_seed(seed)
        inner = network(inputs.shape[1], estimator.hidden, estimator.module, estimator._outputs())
        model = FairModel(estimator._wrap(inner), estimator.layer_ if estimator.method == "layer" else None)
        fitted = fit(
            model,
            training,
            validation,
            loss=estimator._loss,
            epochs=estimator.max_epochs,
            learning_rate=estimator.learning_rate,
            patience=estimator.patience,
            max_minutes=estimator.max_minutes,
            progress=estimator.verbose,
        )
    return NetworkScores(encoder, model), fitted


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """So many threads for torch, for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
