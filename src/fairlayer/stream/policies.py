"""The two policies of a stream: what to emit for the next batch, given all before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from fairlayer.binding.bounds import Box
from fairlayer.binding.exact_sums import exact_sums
from fairlayer.binding.row_plan import PresentRows, RowPlan
from fairlayer.binding.rows import Rows
from fairlayer.binding.system import bind
from fairlayer.projection import project
from fairlayer.solution import Status
from fairlayer.solve import statistic_scale
from fairlayer.solve.certify import shortfalls
from fairlayer.solve.discrepancy import find_discrepancy, inner_limits
from fairlayer.solve.feasibility import least_excess, widened
from fairlayer.solve.loops import solve_loops
from fairlayer.solve.newton import DONE
from fairlayer.solve.priced_step import soft_step
from fairlayer.solve.smooth import shifted
from fairlayer.stream.kernels import history, localised, pooled_rows, target_sums

if TYPE_CHECKING:
    from fairlayer.stream.cell_sums import CellSums
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
    nu: np.ndarray  # multipliers of the pooled statistics; under Algorithm 1 of the batch's own, in their places
    status: Status
    excess: float = 0.0


def keep_ledger(ledger: Ledger, settings: Settings, batch: Incoming) -> Outcome:
    """The leader's shift, then the nearest outputs that keep every pooled row, and the batch's own if asked to."""
    account, plan, raw, box = ledger.account, ledger.book.plan, batch.raw, batch.box
    inside = box.within(*inner_limits(find_discrepancy(settings.discrepancy), torch.from_numpy(raw[:0]).dtype))
    shift, tolerances = ledger.leader.shift(), np.array(settings.tolerances)[plan.owner]
    cells, local, count = localised(batch.cell, len(account))
    known = batch.targets if plan.any_residual and batch.targets is not None else _NONE
    entries = (plan.start, plan.statistic, plan.share)
    so_far = history(*entries, plan.residual, account.cells["sums"], account.cells["error"])
    family = np.stack([plan.kind, plan.ratio, -tolerances, tolerances])
    rows = Rows(*_parts(plan, *pooled_rows(
        *entries, plan.residual, so_far, cells, count, target_sums(known, local, len(cells)), plan.first, family
    )))  # fmt: skip
    if settings.each_batch:
        rows = _with_batch_rows(rows, plan, cells, count, target_sums(known, local, len(cells)), family)
    led = shifted(settings.kind, raw, batch.cell, shift)
    sides = tuple(side.astype(np.float64) for side in (box.lo, box.hi))
    single, out = raw.dtype == np.float32, np.empty(len(raw))
    unit = float(np.finfo(raw.dtype).eps) / 2

    def attempt(wanted: Rows, allowed: float) -> tuple[Any, ...]:
        forced = np.zeros(len(wanted.offset))  # the last word on what rounding leaves in doubt is not said here
        return solve_loops(settings.kind, led, local, _NONE, count, count, *sides, wanted, forced, allowed, single, out)

    outcome, nu, _, _, missed, _, absolute = attempt(rows, unit)
    nu = nu[: len(plan.residual)]
    if outcome == DONE and (missed <= 0.0).all():
        return Outcome(out.astype(raw.dtype), nu, Status.OPTIMAL)
    # No exact solution was found. For mean parity the overall mean for everyone is one.
    promised = np.resize([settings.rules.constraints[owner].always_feasible for owner in plan.owner], len(rows.kind))
    constant = _constant(account, inside, raw)
    if promised.all() and _holds(constant, local, rows, not account.count.any()):
        return Outcome(constant, np.zeros(len(nu)), Status.OPTIMAL)
    if outcome == DONE:
        return Outcome(out.astype(raw.dtype), nu, Status.ROUNDED)
    # Whatever else must give way, what can always be kept is.
    least, most = (count * float(side[0]) for side in (inside.lo, inside.hi))
    scale = statistic_scale(rows, absolute, count, (least, most))
    excess, push = least_excess(rows, least, most, scale, ~promised)
    for wider, wide in widened(rows, excess, scale, ~promised):
        outcome, nu, _, _, missed, _, _ = attempt(wide, unit)
        if outcome == DONE and (missed[promised] <= 0.0).all():
            status = Status.RELAXED if excess > 1e-9 * scale[push != 0].max(initial=0.0) else Status.ROUNDED
            return Outcome(out.astype(raw.dtype), np.zeros(len(plan.residual)), status, wider)
    return Outcome(constant, np.zeros(len(plan.residual)), Status.RELAXED, _excess(constant, local, rows))


_NONE = np.zeros(0)


def _parts(plan: RowPlan, start: Any, statistic: Any, value: Any, offset: Any, present: Any, family: Any) -> tuple:
    return start, statistic, value, offset, present, plan.first, family


def _with_batch_rows(
    rows: Rows, plan: RowPlan, cells: np.ndarray, count: np.ndarray, targets: np.ndarray, family: np.ndarray
) -> Rows:
    """`rows`, followed by those of the batch alone: the same comparisons, of means within it."""
    alone = pooled_rows(
        plan.start, plan.statistic, plan.share, plan.residual, np.zeros((4, len(plan.residual))), cells, count, targets,
        plan.first, family,
    )  # fmt: skip
    batch, K = Rows(*_parts(plan, *alone)), len(plan.residual)
    widths = np.diff(rows.start)
    # The entries of a cell stand together: first those of the pooled rows, then those of its own.
    order = np.argsort(np.concatenate([np.repeat(np.arange(len(cells)), widths)] * 2), kind="stable")
    return Rows(
        2 * rows.start,
        np.concatenate([rows.statistic, batch.statistic + K])[order],
        np.concatenate([rows.value, batch.value])[order],
        np.concatenate([rows.offset, batch.offset]),
        np.concatenate([rows.present, batch.present]),
        np.concatenate([rows.first, rows.first[1:] + K]),
        np.concatenate([rows.family, batch.family], axis=1),
    )


def _constant(account: CellSums, box: Box, raw: np.ndarray) -> np.ndarray:
    """The overall mean so far, for everyone."""
    samples = account.count.sum()
    middle = account.total.sum() / samples if samples else float(raw.mean())
    return np.full_like(raw, min(max(middle, box.lowest), box.highest))


def _holds(value: np.ndarray, local: np.ndarray, rows: Rows, first: bool) -> bool:
    """Whether outputs keep the rows. first: there is nothing before them, so that equal outputs have equal means."""
    return first or _excess(value, local, rows) <= 0.0


def _excess(value: np.ndarray, local: np.ndarray, rows: Rows) -> float:
    """By how much outputs may miss their rows."""
    S, error, missed = np.zeros(len(rows.start) - 1), np.zeros(len(rows.start) - 1), np.zeros(len(rows.kind))
    exact_sums(value.astype(np.float64), local, _NONE, S, error)
    shortfalls(rows, S, error, missed)
    return float(missed.max(initial=-np.inf))


def primal_dual(ledger: Ledger, settings: Settings, batch: Incoming) -> Outcome:
    """Algorithm 1: project large batches; let small ones pay for their largest gap, and adapt the price."""
    numbers, n, pooled = ledger.account.numbers, len(batch.raw), ledger.view(batch.cell)
    data = {"groups": batch.groups, "targets": batch.targets, "features": batch.features}
    data["levels"] = ledger.book.labels_met()  # so that a row of the batch is named as its pooled one
    if n >= settings.b_tau:
        solution = project(batch.raw, constraints=settings.rules, bounds=settings.bounds, infeasible="relax", **data)
        gap = float(np.abs(solution.gaps).max()) if len(solution.gaps) else float("nan")
        facts: Any = solution.facts
        nu = _placed(pooled, facts.view.plan.labels, facts.nu)
        outcome = Outcome(solution.value, nu, solution.status, solution.excess)
    else:
        system = bind(settings.rules, n, **data)
        softened = soft_step(batch.raw, system, batch.box, 0.5 * numbers["multiplier"] * n)
        gap = softened.gap
        nu = _placed(pooled, system.view.plan.labels, softened.nu)
        outcome = Outcome(softened.value, nu, Status.OPTIMAL)
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


def _placed(pooled: PresentRows, labels: Sequence[str], nu: np.ndarray) -> np.ndarray:
    """Multipliers of a batch's own statistics in the places of the pooled ones."""
    known = dict(zip(labels, nu.tolist(), strict=True))
    return np.array([known.get(label, 0.0) for label in pooled.plan.labels])


POLICIES: dict[str, Callable[..., Outcome]] = {"ledger": keep_ledger, "primal-dual": primal_dual}
