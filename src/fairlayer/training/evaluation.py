"""`evaluate`: loss and gaps over all samples of a loader, each counted once, whatever batches they came in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fairlayer.constraints import Constraint
from fairlayer.errors import InputError
from fairlayer.gaps import Gaps, measure
from fairlayer.problem.constraint_set import ConstraintSet
from fairlayer.training.batches import Batch, as_batch, join, move

Loss = Callable[[Tensor, Tensor], Tensor]  # of outputs and targets
Penalty = Callable[[Tensor, Batch], Tensor]  # of outputs and all that the batch brings


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Outputs for every sample, and what is to be said of them together.

    A number is nan where it has no meaning: the loss without a loss function, gaps without constraints or groups.
    """

    outputs: Tensor  # (n,), or (n, d)
    loss: float  # mean over samples (weighted, where there are weights)
    gaps: dict[str, float]  # of all samples together, by row; signed
    gap: float  # the largest |gap|
    excess: float  # the most by which a gap exceeds its tolerance; negative where all are kept
    satisfied: bool  # whether all samples together keep every constraint, in exact arithmetic
    batches: int
    batch_gap: float  # the largest |gap| within a batch
    batches_satisfied: int  # batches that keep every constraint that can be stated in them
    batches_incomplete: int  # batches that lack a group


def evaluate(
    model: nn.Module,
    data: Iterable[Any],
    *,
    loss: Loss | None = None,
    constraints: Sequence[Constraint] | Constraint | None = None,
    device: Any = None,
) -> Evaluation:
    """Run a model over batches in evaluation mode and judge the outputs of all of them together.

    loss: as for `fit`. constraints: what to measure, where it is not what the model's layer enforces.
    """
    rules = find_rules(model) if constraints is None else ConstraintSet(constraints)
    done = one_pass(model, data, loss, None, None if device is None else torch.device(device))
    outputs, whole = done.pooled()
    pooled = gaps_of(outputs, whole, rules)
    each = [gaps_of(*part, rules) for part in done.parts]
    return Evaluation(
        outputs=outputs,
        loss=done.loss,
        gaps=dict(zip(pooled.names, pooled.values.tolist(), strict=True)) if pooled else {},
        gap=pooled.largest if pooled else nan,
        excess=pooled.excess if pooled else nan,
        satisfied=bool(pooled and pooled.satisfied),
        batches=len(each),
        batch_gap=max((gaps.largest for gaps in each if gaps and len(gaps.values)), default=nan),
        batches_satisfied=sum(bool(gaps and gaps.satisfied) for gaps in each),
        batches_incomplete=sum(bool(gaps and gaps.vacuous) for gaps in each),
    )


class Pass(NamedTuple):
    """What one pass over the data gave."""

    parts: list[tuple[Tensor, Batch]]  # outputs of each batch
    loss: float  # these two: means over samples
    objective: float

    def pooled(self) -> tuple[Tensor, Batch]:
        """All samples as one batch."""
        if len(self.parts) == 1:
            return self.parts[0]
        outputs, batches = zip(*self.parts, strict=True)
        return torch.cat(outputs), Batch(*map(join, zip(*batches, strict=True)))


def one_pass(
    model: nn.Module,
    data: Iterable[Any],
    loss: Loss | None,
    penalty: Penalty | None,
    device: torch.device | None,
    learn: Callable[[Tensor], None] | None = None,
) -> Pass:
    """Outputs for every sample, in evaluation mode; or in training mode, where `learn` gets each batch's objective."""
    was_training, parts, sums = model.training, [], np.zeros(3)
    model.train(learn is not None)
    try:
        for item in data:
            batch = move(as_batch(item), device)
            known = batch._asdict()
            with torch.set_grad_enabled(learn is not None):
                outputs = model(known.pop("x"), **known)
                outputs = outputs if outputs.ndim == 2 and outputs.shape[1] > 1 else outputs.reshape(-1)
                value, weight = (outputs.new_tensor(nan), 0.0) if loss is None else _mean_loss(loss, outputs, batch)
                objective = value if penalty is None else value + penalty(outputs, batch)
                if learn is not None:
                    learn(objective)
            parts.append((outputs.detach().cpu(), batch._replace(x=None)))
            sums += weight * np.array([float(value.detach()), float(objective.detach()), 1.0])
    finally:
        if model.training is not was_training:  # to begin training anew is to forget the epoch, for some layers
            model.train(was_training)
    if not parts:
        raise InputError("The data have no batches: is the loader empty, or an iterator already used up?")
    return Pass(parts, *((sums[:2] / sums[2]).tolist() if sums[2] else (nan, nan)))


def _mean_loss(loss: Loss, outputs: Tensor, batch: Batch) -> tuple[Tensor, float]:
    """Mean loss of a batch, and the number of samples (or their weight) that it is a mean over."""
    if batch.targets is None:
        raise InputError("targets is missing: a loss compares outputs with them; yield batches (x, targets, ...).")
    value = loss(outputs, batch.targets.reshape(-1))
    if value.ndim > 0 and value.numel() != len(outputs):
        raise InputError(f"loss returned shape {tuple(value.shape)}: return a mean, or one number per sample.")
    if batch.weights is None:
        return value.mean(), float(len(outputs))
    if value.ndim == 0:
        raise InputError("Batches carry weights but the loss returns a mean: let it return one number per sample.")
    weights = batch.weights.reshape(-1).to(value)
    total = weights.sum()
    return (weights * value.reshape(-1)).sum() / total, float(total)


def find_rules(model: nn.Module) -> ConstraintSet | None:
    """The constraints of the model's layer."""
    found = (getattr(part, "rules", None) for part in model.modules())
    return next((rules for rules in found if isinstance(rules, ConstraintSet)), None)


def gaps_of(outputs: Tensor, batch: Batch, rules: ConstraintSet | None) -> Gaps | None:
    """Gaps, where the batch brings what the constraints look at."""
    if (
        rules is None
        or (rules.needs_groups and batch.groups is None)
        or (rules.needs_targets and batch.targets is None)
    ):
        return None
    return measure(outputs, rules, batch.groups, batch.targets, batch.features, batch.weights)
