"""Loan default: 25 splits, five methods; a small network, and in a profile of its own a large one.

Equal mean logits for new and existing, and for urban and other businesses, within 0.01; all rows of a part are one
batch. Training stops on the validation loss. The published figures are those of the last epoch (the best was meant to
be restored and was not); here every row is computed for both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score, roc_curve
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from experiments.exact import largest_gap, mean
from experiments.loan.data import Part, loan_split
from experiments.loan.summary import claims, summarise
from experiments.methods import Trained, as_projection, build, train
from experiments.runner import Experiment, Result, Unit
from experiments.strength import Selection, select_strength
from fairlayer import FairModel, MeanParity
from fairlayer.training import Batch, evaluate

POINTS = np.linspace(0.0, 1.0, 100)  # at which curves are kept
TRAININGS = ("F-Layer", "Unconstrained", "Penalty", "Strict Penalty")  # Projection is Unconstrained, projected


@dataclass(frozen=True)
class Settings:
    """As published, unless said otherwise; `networks` gives the widths of hidden layers."""

    splits: tuple[int, ...] = tuple(range(25))
    networks: tuple[tuple[str, tuple[int, ...]], ...] = (("small", (2,)),)
    tolerance: float = 0.01
    epochs: int = 15_000
    patience: int = 180
    min_delta: float = 5e-5
    learning_rate: float = 0.01
    plateau_factor: float = 0.6
    plateau_patience: int = 60
    smallest_rate: float = 8e-6
    strengths: tuple[float, ...] = (0.01, 0.1, 1.0, 5.0, 10.0, 25.0, 100.0)
    strength_epochs: int = 100
    strict_strength: float = 1000.0
    gain: float = 0.08
    seed: int = 123_456_789


PROFILES = {
    "paper": Settings(),  # the published figures are all of the small network
    "large": Settings(networks=(("large", (250, 50, 5)),)),
    "quick": Settings(
        splits=(0, 1), networks=(("small", (2,)),), epochs=60, patience=30, strengths=(0.1, 5.0), strength_epochs=20
    ),
}


def units(settings: Settings) -> list[Unit]:
    """One per network, split and training."""
    return [
        Unit(f"{name}/{split:02d}/{training}", {"network": name, "split": split, "training": training})
        for name, _ in settings.networks
        for split in settings.splits
        for training in TRAININGS
    ]


def run(unit: Unit, settings: Settings) -> Result:
    """Train once; judge what comes of it on the test rows, at the best and at the last epoch."""
    name, split, training = (unit.arguments[key] for key in ("network", "split", "training"))
    task = Task(loan_split(split), dict(settings.networks)[name], settings)
    selection = task.choose_strength() if training == "Penalty" else None
    strength = selection.strength if selection else settings.strict_strength if training == "Strict Penalty" else None
    trained = task.train(training, strength)
    rows = []
    for epoch in ("last", "best"):
        model = trained.at(epoch)
        named = {training: model}
        if training == "Unconstrained":
            named["Projection"] = as_projection(model)
        rows += [{"method": method, "epoch": epoch, **task.judge(judged)} for method, judged in named.items()]
    return {
        "network": name,
        "split": split,
        "training": training,
        "strength": strength,
        "epochs": trained.fitted.epochs,
        "best_epoch": trained.fitted.best_epoch,
        "trials": [vars(trial) for trial in selection.trials] if selection else [],
        "rows": rows,
    }


class Task:
    """One split and one shape of network."""

    def __init__(self, parts: dict[str, Part], hidden: tuple[int, ...], settings: Settings):
        self.hidden, self.settings = hidden, settings
        self.data = {name: [_batch(part)] for name, part in parts.items()}
        self.parts = parts
        y = parts["train"].y
        self.rate = float(y.mean())
        weight = torch.tensor((len(y) - y.sum()) / y.sum())
        self.loss = partial(nn.functional.binary_cross_entropy_with_logits, pos_weight=weight)

    def train(self, method: str, strength: float | None = None, epochs: int | None = None) -> Trained:
        """Train with a method, always from the same initial weights."""
        s = self.settings
        torch.manual_seed(s.seed)
        model = build(method, self.network(), [MeanParity(s.tolerance)], strength=strength)
        return train(
            model,
            self.data["train"],
            self.data["validation"],
            loss=self.loss,
            epochs=epochs or s.epochs,
            learning_rate=s.learning_rate,
            scheduler=partial(
                ReduceLROnPlateau, factor=s.plateau_factor, patience=s.plateau_patience, min_lr=s.smallest_rate
            ),
            patience=s.patience,
            min_delta=s.min_delta,
            monitor="validation_loss",
        )

    def network(self) -> nn.Module:
        """Logits of all methods."""
        widths = [self.data["train"][0].x.shape[1], *self.hidden, 1]
        linears = [nn.Linear(before, after) for before, after in pairwise(widths)]
        for linear in linears:  # after all were made: the order in which random numbers are drawn is the authors'
            nn.init.xavier_uniform_(linear.weight, gain=self.settings.gain)
            nn.init.zeros_(linear.bias)
        nn.init.constant_(linears[-1].bias, math.log(self.rate / (1 - self.rate)))
        hidden = [layer for linear in linears[:-1] for layer in (linear, nn.ReLU())]
        return nn.Sequential(*hidden, linears[-1])

    def choose_strength(self) -> Selection:
        """The smallest strength with which training rows satisfy the constraints, else that of the lowest loss."""

        def attempt(strength: float) -> Any:
            model = self.train("Penalty", strength, self.settings.strength_epochs).at("last")
            seen = evaluate(model, self.data["train"], loss=self.loss)
            return replace(seen, loss=evaluate(model, self.data["validation"], loss=self.loss).loss)

        return select_strength(attempt, self.settings.strengths, rule="smallest", fallback="loss")

    def judge(self, model: FairModel) -> Result:
        """Every metric on the test rows."""
        part = self.parts["test"]
        judged = evaluate(model, self.data["test"], loss=self.loss)
        logits = judged.outputs.numpy()
        probability = torch.sigmoid(judged.outputs.double()).numpy()
        wrong = (logits >= 0) != (part.y == 1)
        precision, recall, thresholds = precision_recall_curve(part.y, probability)
        f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
        false_rate, true_rate, _ = roc_curve(part.y, logits)
        gap = largest_gap(logits, part.groups)
        return {
            "auc": roc_auc_score(part.y, logits),
            "ap": average_precision_score(part.y, logits),
            "loss": judged.loss,
            "error": wrong.mean(),
            "error_repaid": wrong[part.y == 0].mean(),
            "error_default": wrong[part.y == 1].mean(),
            "best_f1": f1.max(),
            "best_f1_threshold": thresholds[min(int(f1.argmax()), len(thresholds) - 1)],
            **{f"gap_{name}": _signed_gap(logits, labels) for name, labels in part.groups.items()},
            **{f"probability_gap_{name}": _signed_gap(probability, labels) for name, labels in part.groups.items()},
            "gap": float(gap),
            "satisfied": gap <= self.settings.tolerance,  # a fraction against a float: Python compares exactly
            "roc": np.interp(POINTS, false_rate, true_rate).round(4),
            "pr": np.interp(POINTS, recall[::-1], precision[::-1]).round(4),
        }


def _batch(part: Part) -> Batch:
    groups = {name: torch.from_numpy(labels) for name, labels in part.groups.items()}
    return Batch(torch.from_numpy(part.x), torch.from_numpy(part.y), groups)


def _signed_gap(values: np.ndarray, labels: np.ndarray) -> float:
    """Mean of group 0 less mean of group 1."""
    return float(mean(values[labels == 0]) - mean(values[labels == 1]))


EXPERIMENT = Experiment("loan", PROFILES, units, run, summarise, claims)
