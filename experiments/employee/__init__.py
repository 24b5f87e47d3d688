"""Employee wages: predicted so that no group of five attributes is over- or underestimated by more than 1e-4.

In two settings: "replica" trains as the paper did (plain gradient descent, stopped early, last epoch), "converged"
trains the same network until it no longer improves and keeps the best epoch. Beside both stand three anchors that need
no network: the overall mean, least squares on all inputs, and least squares on the protected attributes alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from experiments.employee.data import Wages, wages
from experiments.employee.summary import claims, summarise
from experiments.exact import residual_means, within
from experiments.methods import as_projection, build, train
from experiments.runner import Experiment, Result, Unit
from fairlayer import ResidualMean
from fairlayer.training import Batch


@dataclass(frozen=True)
class Training:
    """How a network is trained, and which epoch counts."""

    optimizer: str
    learning_rate: float
    penalty_rate: float  # learning rate of penalties above 0.01
    plateau_factor: float
    plateau_patience: int
    patience: int
    penalty_patience: int
    min_delta: float
    epochs: int
    epoch: str  # "last" or "best"


REPLICA = Training("sgd", 0.01, 1e-4, 0.66, 10, 20, 200, 1e-4, 30_000, "last")
CONVERGED = Training("adam", 0.01, 0.01, 0.5, 100, 500, 500, 1e-7, 10_000, "best")


@dataclass(frozen=True)
class Settings:
    """As published; the first seed is the paper's, the others show how much F-Layer and Projection depend on it."""

    seeds: tuple[int, ...] = (1234, 1, 2, 3, 4)
    trainings: tuple[tuple[str, Training], ...] = (("replica", REPLICA), ("converged", CONVERGED))
    strengths: tuple[float, ...] = (0.01, 1.0, 10.0, 100.0)
    tolerance: float = 1e-4
    allowance: float = 1e-5  # by which the paper let a constraint exceed its tolerance
    lowered_by: float = 0.01  # what counts as a prediction that was lowered
    flagged: float = 0.1  # share of employees reported as underpaid
    hidden: int = 5

    @property
    def seed(self) -> int:
        """The paper's."""
        return self.seeds[0]


_QUICK = Training("sgd", 0.01, 1e-4, 0.66, 10, 20, 20, 1e-4, 60, "last")
PROFILES = {
    "paper": Settings(),
    "quick": Settings(
        seeds=(1234,),
        trainings=(
            ("replica", _QUICK),
            ("converged", Training("adam", 0.02, 0.02, 0.5, 20, 50, 50, 1e-6, 200, "best")),
        ),
        strengths=(0.01, 100.0),
    ),
}


def units(settings: Settings) -> list[Unit]:
    """The anchors, and one per setting, seed and training."""
    fair: list[tuple[str, float | None]] = [("F-Layer", None), ("Unconstrained", None)]
    penalties: list[tuple[str, float | None]] = [("Penalty", strength) for strength in settings.strengths]
    trained = [
        Unit(
            f"{name}/{seed}/{method}" + ("" if strength is None else f" {strength:g}"),
            {"setting": name, "seed": seed, "method": method, "strength": strength},
        )
        for name, _ in settings.trainings
        for seed in settings.seeds
        for method, strength in (fair + penalties if seed == settings.seed else fair)
    ]
    return [Unit("anchors"), *trained]


def run(unit: Unit, settings: Settings) -> Result:
    """Fit once, and judge the predictions for all employees."""
    data = wages()
    if unit.key == "anchors":
        return {"setting": "anchors", "seed": None, "rows": [_judge(*entry, settings) for entry in anchors(data)]}
    name, seed, method, strength = (unit.arguments[key] for key in ("setting", "seed", "method", "strength"))
    training = dict(settings.trainings)[name]
    torch.manual_seed(seed)
    squash = method == "Penalty"  # the others leave the range to the projection
    bounds = None if squash else (0.0, 1.0)
    constraints = [ResidualMean(settings.tolerance)]
    model = build(method, network(data.x.shape[1], settings.hidden, squash), constraints, bounds, strength=strength)
    batch = _batch(data)
    slow = strength is not None and strength > 0.01
    trained = train(
        model,
        [batch],
        loss=nn.functional.mse_loss,
        epochs=training.epochs,
        optimizer={"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[training.optimizer],
        learning_rate=training.penalty_rate if slow else training.learning_rate,
        scheduler=partial(
            ReduceLROnPlateau,
            factor=training.plateau_factor,
            patience=training.plateau_patience,
            min_lr=8e-16 if slow else 8e-10,
        ),
        patience=training.penalty_patience if squash else training.patience,
        min_delta=training.min_delta,
    )
    fitted = trained.at(training.epoch).eval()
    named = {method: fitted} | ({"Projection": as_projection(fitted)} if method == "Unconstrained" else {})
    with torch.no_grad():
        raw = fitted.raw(batch.x).numpy()
        judged = [
            _judge(label, model(batch.x, groups=batch.groups, targets=batch.targets).numpy(), raw, settings)
            for label, model in named.items()
        ]
    return {
        "setting": name,
        "seed": seed,
        "strength": strength,
        "epochs": trained.fitted.epochs,
        "best_epoch": trained.fitted.best_epoch,
        "rows": judged,
    }


def network(inputs: int, hidden: int, squash: bool) -> nn.Module:
    """One hidden layer; the output of penalties is squashed into [0, 1]."""
    first, last = nn.Linear(inputs, hidden), nn.Linear(hidden, 1)
    for linear in (first, last):
        nn.init.kaiming_uniform_(linear.weight, nonlinearity="relu")
        nn.init.zeros_(linear.bias)
    if not squash:
        nn.init.constant_(last.bias, 0.5)
    layers = [first, nn.LayerNorm(hidden), nn.ReLU(), last]
    return nn.Sequential(*layers, nn.Sigmoid()) if squash else nn.Sequential(*layers)


def anchors(data: Wages) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Predictions that need no network: name, predictions, and once more as raw predictions."""
    y = data.y.astype(np.float64)
    protected = np.column_stack(list(data.groups.values()))
    predictions = {
        "overall mean": np.full(len(y), y.mean()),
        "least squares": _least_squares(data.x, y),
        "least squares on protected attributes": _least_squares(protected, y),
    }
    return [(name, values, values) for name, values in predictions.items()]


def _least_squares(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    design = np.column_stack([np.ones(len(y)), x.astype(np.float64)])
    return design @ np.linalg.lstsq(design, y, rcond=None)[0]


def _batch(data: Wages) -> Batch:
    groups = {name: torch.from_numpy(labels) for name, labels in data.groups.items()}
    return Batch(torch.from_numpy(data.x), torch.from_numpy(data.y), groups)


def _judge(method: str, predicted: np.ndarray, raw: np.ndarray, settings: Settings) -> Result:
    """Every metric of predictions; raw: what the network said before a projection."""
    data = wages()
    residuals = residual_means(predicted, data.y, data.groups)
    fall = raw.astype(np.float64) - predicted
    excess = predicted.astype(np.float64) - data.y  # who is paid less than predicted may be underpaid
    order = np.argsort(-excess, kind="stable")
    flagged = order[: round(settings.flagged * len(order))]
    return {
        "method": method,
        "mse": float(np.square(excess).mean()),
        "constraints": len(residuals),
        "satisfied": sum(abs(value) <= settings.tolerance for value in residuals.values()),  # fractions: exact
        "satisfied_with_allowance": sum(
            abs(float(value)) <= settings.tolerance + settings.allowance for value in residuals.values()
        ),
        "largest_residual": float(max(abs(value) for value in residuals.values())),
        "within_bounds": within(predicted, (0.0, 1.0)),
        "lowered": int((fall > settings.lowered_by).sum()),
        "raised": int((-fall > settings.lowered_by).sum()),
        "most_lowered_percent": float((100 * fall / np.abs(raw)).max()),
        "residuals": {f"{name}: {_label(name, label)}": float(value) for (name, label), value in residuals.items()},
        "flagging": [_flagging(name, labels, flagged, order[:50]) for name, labels in data.groups.items()],
    }


def _label(name: str, label: Any) -> str:
    return "members" if label == 1 else "others"


def _flagging(name: str, labels: np.ndarray, flagged: np.ndarray, fifty: np.ndarray) -> Result:
    """How often members and others are flagged, and how many members are among the 50 largest residuals."""
    rates = np.bincount(labels[flagged], minlength=2) / np.bincount(labels, minlength=2)
    return {
        "attribute": name,
        "rate_members": rates[1],
        "rate_others": rates[0],
        "members_of_50": int(labels[fifty].sum()),
        "share_of_all": float(labels.mean()),
    }


EXPERIMENT = Experiment("employee", PROFILES, units, run, summarise, claims)
