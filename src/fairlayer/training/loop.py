"""`fit`: a plain training loop. It knows nothing of fairness, except that gaps are worth watching."""

from __future__ import annotations

import math
import os
import random
import sys
import time
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from fairlayer.errors import FairlayerError, InputError
from fairlayer.training import checkpoint as checkpoints
from fairlayer.training.evaluation import Loss, Pass, Penalty, find_rules, gaps_of, one_pass

Record = dict[str, float]
Monitor = str | Callable[[Record], float] | None
Stopped = Literal["epochs", "patience", "time", "callback"]


@dataclass
class Fitted:
    """What training did. `history` has one list per column, all of the same length: one entry per finished epoch."""

    history: dict[str, list[float]] = field(default_factory=dict)
    best_epoch: int | None = None  # counted from 0
    stopped: Stopped = "epochs"

    @property
    def epochs(self) -> int:
        """Number of finished epochs."""
        return len(next(iter(self.history.values()), []))


def fit(
    model: nn.Module,
    train: Iterable[Any],
    validation: Iterable[Any] | None = None,
    *,
    loss: Loss,
    epochs: int,
    penalty: Penalty | None = None,
    optimizer: torch.optim.Optimizer | Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
    learning_rate: float = 1e-3,
    scheduler: Callable[[torch.optim.Optimizer], Any] | None = None,
    patience: int | None = None,
    max_minutes: float | None = None,
    min_delta: float = 0.0,
    monitor: Monitor = None,
    restore: Literal["best", "last"] = "best",
    clip_norm: float | None = None,
    device: Any = None,
    seed: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool = False,
    on_epoch: Callable[[Record], Any] | None = None,
) -> Fitted:
    """Train a model in place, and leave it in evaluation mode.

    model: a `FairModel`, or any module called as model(x, groups=, targets=, features=, weights=). train, validation:
    batches, as `batches` makes them; a sampler with `set_epoch` is told the epoch. loss: of outputs and targets, both
    (n,); returns their mean, or one number per sample (as it must where batches carry weights). penalty: of outputs and
    the `Batch`; one number that is added to the mean loss. The two together are the objective.

    optimizer: called as optimizer(parameters, lr=learning_rate); or an optimiser. scheduler: called with the optimiser;
    stepped once per epoch, with the monitored value if it is a ReduceLROnPlateau.

    monitor: a column of the history, or a function of an epoch's record; lower is better. By default the objective on
    the validation data, or on the training data where there are none.
    patience: stop after so many epochs in a row that improved the best by no more than min_delta; None to go on.
    max_minutes: stop after the epoch in which so much time is up; None to go on.
    restore: the weights to end with, also where an error or an interrupt from the keyboard ends training.

    device: where to train, "auto" for a GPU where there is one, None for where the model is. seed: of all global random
    generators. checkpoint: a file written after every epoch; with resume=True a run goes on from it where it exists, to
    the same result as if it had never stopped. progress: report on stderr. on_epoch: called with each epoch's record;
    True stops.
    """
    if restore not in ("best", "last"):
        raise InputError(f"restore must be 'best' or 'last'; got {restore!r}.")
    if max_minutes is not None and not max_minutes > 0:
        raise InputError(f"max_minutes must be above 0, or None for no limit; got {max_minutes!r}.")
    if resume and checkpoint is None:
        raise InputError("resume=True needs a checkpoint to resume from.")
    if not callable(optimizer) and not isinstance(optimizer, torch.optim.Optimizer):
        raise InputError(f"optimizer must be an optimiser or a class of one, as torch.optim.SGD; got {optimizer!r}.")
    watched = _read_monitor(monitor, validation is not None)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device is not None:
        device = torch.device(device)
        model.to(device)
    if seed is not None:
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
    made: Any = optimizer
    if not isinstance(made, torch.optim.Optimizer):
        made = made([parameter for parameter in model.parameters() if parameter.requires_grad], lr=learning_rate)
    run = _Run(model, made, None if scheduler is None else scheduler(made))
    if resume and checkpoint is not None and Path(checkpoint).exists():
        run.load_state(checkpoints.load(checkpoint), train)

    fitted = run.fitted
    end = math.inf if max_minutes is None else time.monotonic() + 60.0 * max_minutes
    try:
        for epoch in range(fitted.epochs, epochs):
            if patience is not None and run.waited >= patience:
                fitted.stopped = "patience"
                break
            began, rate = time.perf_counter(), float(run.optimizer.param_groups[0]["lr"])
            checkpoints.tell_epoch(train, epoch)
            step = partial(run.step, epoch, clip_norm)
            record = _record("train", model, one_pass(model, train, loss, penalty, device, step))
            if validation is not None:
                record |= _record("validation", model, one_pass(model, validation, loss, penalty, device))
            record |= {"learning_rate": rate, "seconds": time.perf_counter() - began}
            value = watched(record)
            run.keep(record, value, min_delta, weights=restore == "best")
            if run.schedule is not None:
                run.schedule.step(*([value] if isinstance(run.schedule, ReduceLROnPlateau) else []))
            if progress and (epoch + 1 == epochs or (epoch + 1) % max(1, epochs // 20) == 0):
                shown = ", ".join(f"{name} {number:.4g}" for name, number in record.items())
                print(f"epoch {epoch + 1} of {epochs}: {shown}", file=sys.stderr)
            if checkpoint is not None:
                checkpoints.save(checkpoint, run.state(train))
            if on_epoch is not None and on_epoch(record) is True:
                fitted.stopped = "callback"
                break
            if time.monotonic() >= end and epoch + 1 < epochs:
                fitted.stopped = "time"
                break
    finally:
        if restore == "best" and run.best_weights is not None:
            model.load_state_dict(run.best_weights)
        model.eval()
    return fitted


@dataclass
class _Run:
    """All that training goes on with from epoch to epoch."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: Any
    fitted: Fitted = field(default_factory=Fitted)
    best_value: float = math.inf
    best_weights: dict[str, Any] | None = None

    def step(self, epoch: int, clip_norm: float | None, objective: Tensor) -> None:
        """Learn from one batch."""
        reached = float(objective.detach())
        if not math.isfinite(reached):
            raise FairlayerError(
                f"The loss became {reached} in epoch {epoch}: lower the learning rate, or clip gradients."
            )
        self.optimizer.zero_grad(set_to_none=True)
        if objective.requires_grad:  # not so where every output of the batch is fixed by the constraints
            objective.backward()
            if clip_norm is not None:
                nn.utils.clip_grad_norm_(self.model.parameters(), clip_norm)
            self.optimizer.step()

    def keep(self, record: Record, value: float, min_delta: float, weights: bool) -> None:
        """Add a finished epoch to the history; remember it, and its weights, where it is the best so far."""
        for name, number in record.items():
            self.fitted.history.setdefault(name, []).append(number)
        if value < self.best_value - min_delta or (self.fitted.best_epoch is None and not math.isnan(value)):
            self.best_value, self.fitted.best_epoch = value, self.fitted.epochs - 1
            self.best_weights = deepcopy(self.model.state_dict()) if weights else None

    @property
    def waited(self) -> int:
        """Epochs since the best."""
        best = self.fitted.best_epoch
        return self.fitted.epochs - (0 if best is None else best + 1)

    def state(self, train: Any) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.schedule is None else self.schedule.state_dict(),
            "history": self.fitted.history,
            "best": [self.fitted.best_epoch, self.best_value, self.best_weights],
            "random": checkpoints.random_state(train),
        }

    def load_state(self, state: dict[str, Any], train: Any) -> None:
        """From a checkpoint."""
        if (self.schedule is None) != (state["scheduler"] is None):
            raise InputError("The checkpoint was written with another scheduler: resume with the same arguments.")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.schedule is not None:
            self.schedule.load_state_dict(state["scheduler"])
        self.fitted.history = state["history"]
        self.fitted.best_epoch, self.best_value, self.best_weights = state["best"]
        checkpoints.set_random_state(state["random"], train)


def _record(prefix: str, model: nn.Module, done: Pass) -> Record:
    """Loss, objective and largest gap of one pass, over all its samples."""
    gaps = gaps_of(*done.pooled(), find_rules(model))
    return {
        f"{prefix}_loss": done.loss,
        f"{prefix}_objective": done.objective,
        f"{prefix}_gap": math.nan if gaps is None else gaps.largest,
    }


def _read_monitor(monitor: Monitor, validated: bool) -> Callable[[Record], float]:
    name = ("validation_objective" if validated else "train_objective") if monitor is None else monitor
    if not isinstance(name, str):
        return name
    parts = ("train", "validation")[: 1 + validated]
    known = [f"{part}_{what}" for part in parts for what in ("loss", "objective", "gap")]
    if name not in known:
        raise InputError(f"monitor {name!r} is not in the history; there are {known}.")
    return lambda record: record[name]
