"""The synthetic sets as they are split and the networks as they are trained, with every method."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.optim.lr_scheduler import ReduceLROnPlateau

from experiments.baselines import SoftStep, penalty_of
from experiments.datasets import synthetic_arrays, synthetic_factors
from experiments.methods import build
from experiments.strength import Selection, select_strength
from experiments.synthetic.settings import Settings
from fairlayer import FairModel, MeanParity
from fairlayer.errors import FairlayerError
from fairlayer.training import Fitted, batches, evaluate, fit

HELD_OUT, SPLIT_SEED, VALIDATION = 0.4, 1, 10_000  # the published split: 24,000, 10,000 and 6,000 rows


@dataclass(frozen=True)
class Part:
    """Rows of one part of the split."""

    x: np.ndarray  # (n, 151) float32; the first column is the group
    y: np.ndarray  # (n,) float32
    group: np.ndarray  # (n,) 0 or 1


@dataclass(frozen=True)
class Task:
    """One synthetic set."""

    train: Part
    validation: Part
    test: Part
    bounds: tuple[float, float]
    seed: int  # of its own: published runs seed once and train set after set, so no two start from equal weights


@lru_cache(maxsize=1)
def load_task(index: int, generator: str, settings: Settings) -> Task:
    """A set, split as published and cut to the rows that the settings ask for."""
    X, y, group = synthetic_arrays(index, corrected=generator == "corrected")
    train, held = train_test_split(np.arange(len(y)), test_size=HELD_OUT, random_state=SPLIT_SEED)
    parts = (
        train[: settings.train_rows],
        held[:VALIDATION][: settings.validation_rows],
        held[VALIDATION:][: settings.test_rows],
    )
    x = np.column_stack([group, X]).astype(np.float32)
    taken = [Part(x[rows], y[rows].astype(np.float32), group[rows]) for rows in parts]
    return Task(taken[0], taken[1], taken[2], synthetic_factors(index).bounds, settings.seed + index)


class Squash(nn.Module):
    """Any number to one within bounds, as the penalty methods do where the layer has a box."""

    def __init__(self, bounds: tuple[float, float]):
        super().__init__()
        self.low, self.high = bounds

    def forward(self, z: Tensor) -> Tensor:
        """low + (high - low) sigmoid(z)."""
        return self.low + (self.high - self.low) * torch.sigmoid(z)


def network(inputs: int, hidden: tuple[int, ...], seed: int, normalise: bool = True) -> nn.Sequential:
    """Linear layers, each but the last followed by layer normalisation and ReLU, initialised as published.

    normalise: without it a network is better at functions that are nearly linear, as these are.
    """
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    width = inputs
    for wide in hidden:
        layers += [nn.Linear(width, wide), *([nn.LayerNorm(wide)] if normalise else []), nn.ReLU()]
        width = wide
    layers.append(nn.Linear(width, 1))
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_uniform_(layer.weight, mode="fan_in", nonlinearity="relu")
            nn.init.constant_(layer.bias, 0.01)
    return nn.Sequential(*layers)


def parity(settings: Settings) -> list[MeanParity]:
    """The one constraint of this experiment."""
    return [MeanParity(settings.tolerance)]


def fair_layer(task: Task, settings: Settings) -> SoftStep:
    """The layer as it trains: hard from b_tau samples on, the primal-dual step below."""
    return SoftStep(parity(settings), task.bounds, b_tau=settings.b_tau, eta=settings.train_eta)


def model_of(method: str, task: Task, settings: Settings, strength: float | None = None) -> FairModel:
    """An untrained model. "Unconstrained" serves Projection too, whose training is the same."""
    net = network(task.train.x.shape[1], settings.hidden, task.seed)
    if method == "F-Layer":
        return FairModel(net, fair_layer(task, settings))
    if method == "Unconstrained":
        return build(method, net, parity(settings))
    return build(method, nn.Sequential(net, Squash(task.bounds)), parity(settings), task.bounds, strength=strength)


def loader(part: Part, size: int, stratify: bool = True, shuffle: bool = False) -> Any:
    """Batches of a part, the same in every epoch unless shuffled; no row is left out."""
    return batches(part.x, part.y, {"group": part.group}, batch_size=size, stratify=stratify, shuffle=shuffle)


def train(model: FairModel, task: Task, settings: Settings, size: int, epochs: int, stratify: bool = True) -> Fitted:
    """Train as published: SGD whose rate falls when the validation loss stays, and early stopping on that loss."""
    plateau = partial(
        ReduceLROnPlateau,
        factor=settings.plateau_factor,
        patience=settings.plateau_patience,
        min_lr=settings.least_rate,
    )
    return fit(
        model,
        loader(task.train, size, stratify),
        loader(task.validation, settings.infer_batch[0]),
        loss=mse_loss,
        epochs=epochs,
        penalty=penalty_of(model),
        optimizer=torch.optim.SGD,
        learning_rate=settings.learning_rate,
        scheduler=plateau,
        patience=settings.patience,
        min_delta=settings.min_delta,
        monitor="validation_loss",
        restore=settings.epoch,
        seed=task.seed,
    )


def search_strength(task: Task, settings: Settings) -> Selection:
    """The penalty's strength: of those within the tolerance on the validation rows, the one with the lowest loss."""

    def attempt(strength: float) -> Any:
        model = model_of("Penalty", task, settings, strength)
        try:
            train(model, task, settings, settings.train_batch[0], settings.search_epochs, stratify=False)
        except FairlayerError:  # so strong that the loss is no number any more
            return SimpleNamespace(loss=np.inf, gap=np.inf, excess=np.inf)
        return evaluate(model, loader(task.validation, settings.validation_rows), loss=mse_loss)

    return select_strength(attempt, settings.strengths, rule="best", fallback="gap")


@torch.no_grad()
def raw_outputs(model: FairModel, part: Part) -> np.ndarray:
    """The network's outputs for every row, before any layer."""
    model.eval()
    return model.raw(torch.from_numpy(part.x)).numpy()
