"""What can be reached at all: anchors that need no network, and a network that is trained until it converges.

The published networks are far from trained. These show how much of the difference between methods is one of
optimisation: a model that fits well and is then projected comes near the lower bound, the projected truth.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
from torch import nn
from torch.nn.functional import mse_loss
from torch.optim.lr_scheduler import ReduceLROnPlateau

from experiments.methods import build
from experiments.synthetic.inference import LEDGER, PROJECTED, RAW, STRATIFIED, arrivals, observe
from experiments.synthetic.settings import Settings
from experiments.synthetic.training import Part, Task, fair_layer, loader, network, parity, raw_outputs
from fairlayer import FairModel
from fairlayer.training import Fitted, fit


def anchors(task: Task, settings: Settings) -> list[dict[str, Any]]:
    """Simple predictors, as they are and projected over all test rows at once."""
    test = task.test
    predictors = {
        "constant": np.full(len(test.y), task.train.y.mean(dtype=np.float64)),
        "least squares": least_squares(task.train, test),
        "least squares without the group": least_squares(task.train, test, blind=True),
        "truth": test.y.astype(np.float64),
    }
    whole = [np.arange(len(test.y))]
    return [
        {"model": name, "batch": "all", **observe(raw, task, whole, how, settings)}
        for name, raw in predictors.items()
        for how in (RAW, PROJECTED)
    ]


def least_squares(train: Part, test: Part, blind: bool = False) -> np.ndarray:
    """Predictions of a linear model with an intercept; blind: to the group, which is the first column."""

    def design(part: Part) -> np.ndarray:
        x = part.x[:, 1:] if blind else part.x
        return np.column_stack([np.ones(len(x)), x]).astype(np.float64)

    coefficients = np.linalg.lstsq(design(train), train.y.astype(np.float64), rcond=None)[0]
    return design(test) @ coefficients


def well_trained(task: Task, settings: Settings) -> list[dict[str, Any]]:
    """A network trained with Adam to its best epoch, then projected; and the F-Layer trained on from there."""
    net = network(task.train.x.shape[1], settings.well_hidden, task.seed, normalise=False)
    free = build("Unconstrained", net, parity(settings))
    fitted = _converge(free, task, settings, settings.well_batch, settings.well_rate, settings.well_epochs)
    found = _outcomes("network", free, fitted, task, settings, with_raw=True)
    tuned = FairModel(copy.deepcopy(net), fair_layer(task, settings))
    large = settings.train_batch[0]
    fitted = _converge(tuned, task, settings, large, settings.tuned_rate, settings.tuned_epochs)
    return found + _outcomes("F-Layer from it", tuned, fitted, task, settings)


def _converge(model: nn.Module, task: Task, settings: Settings, size: int, rate: float, epochs: int) -> Fitted:
    return fit(
        model,
        loader(task.train, size, shuffle=True),
        loader(task.validation, settings.infer_batch[0]),
        loss=mse_loss,
        epochs=epochs,
        learning_rate=rate,
        scheduler=partial(ReduceLROnPlateau, factor=0.5, patience=5),
        patience=settings.well_patience,
        monitor="validation_loss",
        seed=task.seed,
    )


def _outcomes(
    name: str, model: FairModel, fitted: Fitted, task: Task, settings: Settings, with_raw: bool = False
) -> list[dict[str, Any]]:
    """Its outputs in large batches projected, and in small ones under the ledger."""
    raw = raw_outputs(model, task.test)
    found = []
    for small, batch, how in ((0, "large", RAW), (0, "large", PROJECTED), (1, "small", LEDGER)):
        if how == RAW and not with_raw:
            continue
        rows = arrivals(task.test.group, settings.infer_batch[small], STRATIFIED)
        about = {"model": name, "batch": batch, "epochs": fitted.epochs}
        found.append(about | observe(raw, task, rows, how, settings))
    return found
