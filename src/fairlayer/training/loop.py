"""`fit`: a plain training loop.

It knows nothing of fairness but that a method may add a penalty to the loss, and that gaps are worth watching.
"""

from __future__ import annotations

import copy
import math
import os
import random
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from fairlayer.errors import FairlayerError, InputError
from fairlayer.training import checkpoint as checkpoints
from fairlayer.training.batches import as_batch, move
from fairlayer.training.evaluation import Loss, Tally, find_rules, gaps_of, mean_loss, penalty_of, run_all, run_batch
from fairlayer.training.methods import Method

Record = dict[str, float]
Monitor = str | Callable[[Record], float] | None
Stopped = Literal["epochs", "patience", "time", "callback"]

_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}


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

    @property
    def best(self) -> Record:
        """The history's entries of the best epoch."""
        epoch = self.best_epoch
        return {} if epoch is None else {name: column[epoch] for name, column in self.history.items()}


@dataclass
class _Best:
    """The best epoch so far, its weights, and how long ago it was."""

    value: float = math.inf
    epoch: int | None = None
    weights: dict[str, Any] | None = None
    waited: int = 0

    def see(self, value: float, epoch: int, model: nn.Module, min_delta: float, keep: bool) -> None:
        """An epoch and its monitored value; lower is better, by more than min_delta."""
        if value < self.value - min_delta or (self.epoch is None and not math.isnan(value)):
            self.value, self.epoch, self.waited = value, epoch, 0
            self.weights = checkpoints.copy_state(model) if keep else None
        else:
            self.waited += 1


def fit(
    model: nn.Module,
    train: Iterable[Any],
    validation: Iterable[Any] | None = None,
    *,
    loss: Loss,
    epochs: int,
    optimizer: str | torch.optim.Optimizer | Callable[..., torch.optim.Optimizer] = "adam",
    learning_rate: float = 1e-3,
    scheduler: Any = None,
    patience: int | None = None,
    max_minutes: float | None = None,
    min_delta: float = 0.0,
    monitor: Monitor = None,
    restore: Literal["best", "last"] = "best",
    clip_norm: float | None = None,
    device: Any = None,
    seed: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 1,
    resume: bool = False,
    progress: bool = False,
    on_epoch: Callable[[Record], Any] | None = None,
) -> Fitted:
    """Train a model in place, and leave it in evaluation mode.

    model: a `FairModel`, or any module called as model(x, groups=, targets=, features=, weights=). train, validation:
    batches, as `batches` makes them; a sampler with `set_epoch` is told the epoch. loss: of outputs and targets, both
    (n,); returns their mean, or one number per sample (as it must where batches carry weights).

    optimizer: "adam", "adamw" or "sgd" with `learning_rate`, a callable that takes the parameters, or an optimiser.
    scheduler: "plateau", a callable that takes the optimiser, or a scheduler; stepped once per epoch, with the
    monitored value if it waits for a plateau.

    monitor: a column of the history, or a function of an epoch's record; lower is better. By default the objective,
    which is the loss plus the method's penalty, on the validation data, or on the training data where there are none.
    patience: stop after so many epochs in a row that improved the best by no more than min_delta; None to go on.
    max_minutes: stop after the epoch in which so much time is up; None to go on.
    restore: the weights to end with, also where an error or an interrupt from the keyboard ends training.

    device: where to train, "auto" for a GPU where there is one, None for where the model is. seed: of all global random
    generators. checkpoint: a file written after every `checkpoint_every` epochs; with resume=True a run goes on from it
    where it exists, to the same result as if it had never stopped. on_epoch: called with each epoch's record; True
    stops.
    """
    if restore not in ("best", "last"):
        raise InputError(f"restore must be 'best' or 'last'; got {restore!r}.")
    if max_minutes is not None and not max_minutes > 0:
        raise InputError(f"max_minutes must be above 0, or None for no limit; got {max_minutes!r}.")
    if resume and checkpoint is None:
        raise InputError("resume=True needs a checkpoint to resume from.")
    place = _read_device(device)
    if place is not None:
        model.to(place)
    if seed is not None:
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
    optimiser = _read_optimizer(optimizer, model, learning_rate)
    schedule = _read_scheduler(scheduler, optimiser)
    watched = _read_monitor(monitor, validation is not None)
    fitted, best = Fitted(), _Best()
    run = _Run(model, train, validation, loss, optimiser, schedule, clip_norm, place, fitted, best)
    if resume and checkpoint is not None and Path(checkpoint).exists():
        run.resume(checkpoints.load(checkpoint))

    bar = _Progress(epochs, fitted.epochs) if progress else None
    end = math.inf if max_minutes is None else time.monotonic() + 60.0 * max_minutes
    try:
        for epoch in range(fitted.epochs, epochs):
            if patience is not None and best.waited >= patience:
                fitted.stopped = "patience"
                break
            record = run.epoch(epoch)
            value = watched(record)
            for name, number in record.items():
                fitted.history.setdefault(name, []).append(number)
            best.see(value, epoch, model, min_delta, keep=restore == "best")
            if schedule is not None:
                schedule.step(value) if isinstance(schedule, ReduceLROnPlateau) else schedule.step()
            if bar is not None:
                bar.show(record)
            if checkpoint is not None and ((epoch + 1) % checkpoint_every == 0 or epoch + 1 == epochs):
                checkpoints.save(checkpoint, run.contents())
            if on_epoch is not None and on_epoch(record) is True:
                fitted.stopped = "callback"
                break
            if time.monotonic() >= end and epoch + 1 < epochs:
                fitted.stopped = "time"
                break
    finally:
        if bar is not None:
            bar.close()
        fitted.best_epoch = best.epoch
        if restore == "best" and best.weights is not None:
            model.load_state_dict(best.weights)
        model.eval()
    return fitted


@dataclass(frozen=True)
class _Run:
    """All that training goes on with from epoch to epoch."""

    model: nn.Module
    train: Iterable[Any]
    validation: Iterable[Any] | None
    loss: Loss
    optimiser: torch.optim.Optimizer
    schedule: Any
    clip_norm: float | None
    device: torch.device | None
    fitted: Fitted
    best: _Best

    def epoch(self, number: int) -> Record:
        """One pass over the training data, and one over the validation data."""
        began, model, optimiser = time.perf_counter(), self.model, self.optimiser
        rate = float(optimiser.param_groups[0]["lr"])
        _set_epoch(self.train, number)
        model.train()
        methods = [part for part in model.modules() if isinstance(part, Method)]
        for method in methods:
            method.start_epoch()
        tally = Tally()
        for item in self.train:
            batch = move(as_batch(item), self.device)
            optimiser.zero_grad(set_to_none=True)
            outputs = run_batch(model, batch)
            value, weight = mean_loss(self.loss, outputs, batch)
            objective = value + penalty_of(model)
            reached = float(objective.detach())
            if not math.isfinite(reached):
                raise FairlayerError(
                    f"The loss became {reached} in epoch {number}: lower the learning rate, or clip gradients."
                )
            if objective.requires_grad:  # not so where every output of the batch is fixed by the constraints
                objective.backward()
                if self.clip_norm is not None:
                    nn.utils.clip_grad_norm_(model.parameters(), self.clip_norm)
                optimiser.step()
            for method in methods:
                method.after_step()
            tally.add(outputs, batch, float(value.detach()), float(objective.detach() - value.detach()), weight)
        if not tally.outputs:
            raise InputError("train has no batches: is the loader empty, or an iterator already used up?")
        record = _record(tally, model, "train")
        if self.validation is not None:
            record |= _record(run_all(model, self.validation, self.loss, self.device), model, "validation")
        return record | {"learning_rate": rate, "seconds": time.perf_counter() - began}

    def contents(self) -> dict[str, Any]:
        """All of its state, for a checkpoint."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimiser.state_dict(),
            "scheduler": None if self.schedule is None else self.schedule.state_dict(),
            "history": self.fitted.history,
            "best": dict(vars(self.best)),
            "random": checkpoints.random_state(self.train),
        }

    def resume(self, contents: dict[str, Any]) -> None:
        """Put a checkpoint's state back."""
        if (self.schedule is None) != (contents["scheduler"] is None):
            raise InputError("The checkpoint was written with another scheduler: resume with the same arguments.")
        self.model.load_state_dict(contents["model"])
        self.optimiser.load_state_dict(contents["optimizer"])
        if self.schedule is not None:
            self.schedule.load_state_dict(contents["scheduler"])
        self.fitted.history = copy.deepcopy(contents["history"])
        vars(self.best).update(contents["best"])
        checkpoints.set_random_state(contents["random"], self.train)


def _record(tally: Tally, model: nn.Module, prefix: str) -> Record:
    """Loss, objective and largest gap of one pass, over all its samples."""
    gaps = gaps_of(*tally.pooled(), find_rules(model))
    return {
        f"{prefix}_loss": tally.mean_loss(),
        f"{prefix}_objective": tally.mean_objective(),
        f"{prefix}_gap": math.nan if gaps is None else gaps.largest,
    }


def _set_epoch(loader: Any, epoch: int) -> None:
    for owner in checkpoints.samplers_of(loader):
        if callable(getattr(owner, "set_epoch", None)):
            owner.set_epoch(epoch)


def _read_device(device: Any) -> torch.device | None:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return None if device is None else torch.device(device)


def _read_optimizer(optimizer: Any, model: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
    if isinstance(optimizer, torch.optim.Optimizer):
        return optimizer
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if isinstance(optimizer, str):
        if optimizer not in _OPTIMIZERS:
            raise InputError(f"optimizer {optimizer!r} is unknown; there are {sorted(_OPTIMIZERS)}.")
        return _OPTIMIZERS[optimizer](parameters, lr=learning_rate)
    return optimizer(parameters)


def _read_scheduler(scheduler: Any, optimiser: torch.optim.Optimizer) -> Any:
    if scheduler == "plateau":
        return ReduceLROnPlateau(optimiser, factor=0.5, patience=5)
    if isinstance(scheduler, str):
        raise InputError(f"scheduler {scheduler!r} is unknown: give 'plateau', or a callable that takes the optimiser.")
    return scheduler if scheduler is None or hasattr(scheduler, "step") else scheduler(optimiser)


def _read_monitor(monitor: Monitor, validated: bool) -> Callable[[Record], float]:
    name = ("validation_objective" if validated else "train_objective") if monitor is None else monitor
    if not isinstance(name, str):
        return name
    known = [
        f"{part}_{what}" for part in ("train", "validation")[: 1 + validated] for what in ("loss", "objective", "gap")
    ]
    if name not in known:
        raise InputError(f"monitor {name!r} is not in the history; there are {known}.")
    return lambda record: record[name]


class _Progress:
    """A bar by tqdm where it is installed, otherwise a line now and then."""

    def __init__(self, epochs: int, done: int):
        self.epochs = epochs
        self.done = done
        self.bar: Any = None
        try:
            from tqdm.auto import tqdm  # type: ignore[import-untyped]
        except ImportError:
            return
        self.bar = tqdm(total=epochs, initial=done, unit="epoch", file=sys.stderr)

    def show(self, record: Record) -> None:
        """Move on by an epoch."""
        self.done += 1
        shown = {
            name.replace("validation_", "val_"): f"{record[name]:.4g}"
            for name in ("train_loss", "train_gap", "validation_loss", "validation_gap")
            if name in record
        }
        if self.bar is not None:
            self.bar.set_postfix(shown, refresh=False)
            self.bar.update()
        elif self.done % max(1, self.epochs // 20) == 0:
            text = ", ".join(f"{name} {value}" for name, value in shown.items())
            print(f"epoch {self.done} of {self.epochs}: {text}", file=sys.stderr)

    def close(self) -> None:
        """Leave the bar as it stands."""
        if self.bar is not None:
            self.bar.close()
