"""The two policies of a stream: what to emit for the next batch, given all before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairlayer.binding.bounds import Box
from fairlayer.binding.rows import Rows
from fairlayer.binding.system import View, bind
from fairlayer.projection import is_contradiction, project
from fairlayer.solution import Status
from fairlayer.solve.feasibility import least_excess, widened
from fairlayer.solve.fused import reach_and_magnitude, solve_fused
from fairlayer.solve.newton import DONE
from fairlayer.solve.priced_step import soft_step
from fairlayer.stream.kernels import constant_step, ledger_step

if TYPE_CHECKING:
    from fairlayer.stream.ledger import Ledger
    from fairlayer.stream.settings import Settings


class Incoming(NamedTuple):
    """A batch that has arrived, read and checked."""

    raw: np.ndarray  # (n,)
    cell: np.ndarray  # (n,) int32
    box: Box
    groups: Any
    features: Any
    targets: np.ndarray | None


class Outcome(NamedTuple):
    """What a policy emits."""

    value: np.ndarray  # (n,)
    multipliers: np.ndarray  # of the pooled rows; under Algorithm 1 those of the batch's own, in their places
    status: Status
    excess: float = 0.0


def keep_ledger(ledger: Ledger, settings: Settings, batch: Incoming) -> Outcome:
    """The leader's shift, then the nearest outputs that keep every pooled row, and the batch's own if asked to."""
    raw, cell, box, targets = batch.raw, batch.cell, batch.box, batch.targets
    account, plan, shift = ledger.account, ledger.book.plan, ledger.leader.shift()
    view = ledger.view(cell)
    lower, upper = view.limits(settings.tolerances)
    out = np.empty_like(raw)
    unit = float(np.finfo(raw.dtype).eps) / 2
    known = targets if plan.any_residual and targets is not None else np.empty(0)
    outcome, hold, multipliers, rows, least, most = ledger_step(
        raw, cell, box.lo, box.hi, unit, known, account.cells["sums"], plan.membership, plan.residual, view.plus,
        view.minus, lower, upper, shift, settings.each_batch, out,
    )  # fmt: skip
    if outcome == DONE and hold:
        return Outcome(out, multipliers, Status.OPTIMAL)
    # No exact solution was found. For mean parity the overall mean for everyone is one.
    samples = account.count.sum()
    middle = account.total.sum() / samples if samples else float(raw.mean())
    constant = np.empty_like(raw)
    if constant_step(cell, min(max(middle, box.lowest), box.highest), rows, constant):
        return Outcome(constant, np.zeros(len(view.plus)), Status.OPTIMAL)
    if outcome == DONE:
        return Outcome(out, multipliers, Status.ROUNDED)
    led = raw.astype(np.float64) - shift[cell]
    return _least_violation(led, cell, box, rows, (least, most), out, len(view.plus))


def _least_violation(
    led: np.ndarray,
    cell: np.ndarray,
    box: Box,
    rows: Rows,
    extremes: tuple[np.ndarray, np.ndarray],
    out: np.ndarray,
    size: int,
) -> Outcome:
    """Widen the rows by as little as makes them feasible."""
    excess, _ = least_excess(rows, *extremes)
    count = np.bincount(cell, minlength=len(extremes[0])).astype(np.float64)
    reach, magnitude = reach_and_magnitude(float(led.min()), float(led.max()), box.lowest, box.highest)
    unit = float(np.finfo(out.dtype).eps) / 2
    for wider, wide in widened(rows, excess, magnitude):  # noqa: B007
        end = solve_fused(
            led, cell, np.empty(0), count, count, box.lo, box.hi, *extremes, reach, magnitude, unit, wide, out
        )
        if end[0] == DONE:
            break
    else:
        out[:] = np.clip(led, box.lo, box.hi)
    status = Status.RELAXED if is_contradiction(excess, magnitude) else Status.ROUNDED
    return Outcome(out, np.zeros(size), status, wider)


def primal_dual(ledger: Ledger, settings: Settings, batch: Incoming) -> Outcome:
    """Algorithm 1: project large batches; let small ones pay for their largest gap, and adapt the price."""
    numbers, n, pooled = ledger.account.numbers, len(batch.raw), ledger.view(batch.cell)
    data = {"groups": batch.groups, "targets": batch.targets, "features": batch.features}
    data["levels"] = ledger.book.labels_met()  # so that a row of the batch is named as its pooled one
    if n >= settings.b_tau:
        solution = project(batch.raw, constraints=settings.rules, bounds=settings.bounds, infeasible="relax", **data)
        gap = float(np.abs(solution.gaps).max()) if len(solution.gaps) else float("nan")
        multipliers = _placed(pooled, solution.rows, solution.multipliers)
        outcome = Outcome(solution.value, multipliers, solution.status, solution.excess)
    else:
        system = bind(settings.rules, n, **data)
        softened = soft_step(batch.raw, system, batch.box, 0.5 * numbers["multiplier"] * n)
        gap = softened.gap
        multipliers = _placed(pooled, system.view.names, softened.multipliers)
        outcome = Outcome(softened.value, multipliers, Status.OPTIMAL)
        if not np.isnan(gap):  # a batch that lacks a group has no gap, and makes no step
            numbers["soft_steps"] += 1
            step = settings.eta / np.sqrt(numbers["soft_steps"])
            numbers["multiplier"] = max(0.0, numbers["multiplier"] + step * n * softened.excess)
            numbers["largest_multiplier"] = max(numbers["largest_multiplier"], numbers["multiplier"])
            numbers["accumulated_excess"] += n * softened.excess
    if not np.isnan(gap):
        numbers["judged"] += n
        numbers["weighted_gap"] += n * gap
    return outcome


def _placed(pooled: View, names: Sequence[str], multipliers: np.ndarray) -> np.ndarray:
    """Multipliers of a batch's own rows in the places of the pooled ones."""
    known = dict(zip(names, multipliers.tolist(), strict=True))
    return np.array([known.get(name, 0.0) for name in pooled.names])


POLICIES: dict[str, Callable[..., Outcome]] = {"ledger": keep_ledger, "primal-dual": primal_dual}
