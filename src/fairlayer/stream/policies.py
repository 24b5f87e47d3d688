"""The policies of a stream: what to emit for the next batch, given all before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from fairlayer.binding.bounds import Box
from fairlayer.binding.rows import Rows
from fairlayer.binding.system import bind
from fairlayer.errors import InputError
from fairlayer.projection import project
from fairlayer.solution import Status
from fairlayer.solve import statistic_scale
from fairlayer.solve.class_driver import nearest_classes
from fairlayer.solve.class_rows import by_class, class_problem, missed_by, spread_multipliers
from fairlayer.solve.discrepancy import find_discrepancy, inner_limits
from fairlayer.solve.feasibility import least_excess, widened
from fairlayer.solve.loops import solve_loops
from fairlayer.solve.newton import DONE
from fairlayer.solve.priced_step import soft_step
from fairlayer.solve.simplex_passes import write
from fairlayer.solve.smooth import shifted
from fairlayer.stream.fair_rounding import decide
from fairlayer.stream.kernels import history, localised, pooled_rows, target_sums

if TYPE_CHECKING:
    from fairlayer.stream.ledger import Ledger
    from fairlayer.stream.reading import Arrival
    from fairlayer.stream.threshold_leader import ThresholdLeader


class Outcome(NamedTuple):
    """What a policy emits."""

    value: np.ndarray  # as the raw ones
    nu: np.ndarray  # multipliers of the pooled statistics; under Algorithm 1 of the batch's own, in their places
    status: Status
    excess: float = 0.0
    overruled: int = 0  # decisions that are not the leader's


def keep_ledger(ledger: Ledger, batch: Arrival, cell: np.ndarray, box: Box) -> Outcome:
    """The leader's shift, then the nearest outputs that keep every pooled row, and the batch's own if asked to."""
    settings, account, plan, raw = ledger.settings, ledger.account, ledger.book.plan, batch.raw
    inside = box.within(*inner_limits(find_discrepancy(settings.discrepancy), torch.from_numpy(raw[:0]).dtype))
    rows, local, count = _rows(ledger, batch, cell)
    led = shifted(settings.kind, raw, cell, ledger.leader.shift())
    sides = box.wide()
    single, out = raw.dtype == np.float32, np.empty(len(raw))
    unit = float(np.finfo(raw.dtype).eps) / 2

    def attempt(wanted: Rows, allowed: float) -> tuple[Any, ...]:
        forced = np.zeros(len(wanted.offset))  # the last word on what rounding leaves in doubt is not said here
        return solve_loops(settings.kind, led, local, _NONE, count, count, *sides, wanted, forced, allowed, single, out)

    outcome, nu, _, _, missed, _, absolute, _ = attempt(rows, unit)
    nu = nu[: len(plan.residual)]
    if outcome == DONE and (missed <= 0.0).all():
        return Outcome(out.astype(raw.dtype), nu, Status.OPTIMAL)
    # No exact solution was found. For mean parity the overall mean for everyone is one; of equal outputs before which
    # there is nothing, the means are equal.
    promised = np.resize([settings.rules.constraints[owner].always_feasible for owner in plan.owner], len(rows.kind))
    constant = _constant(ledger, raw, inside.lowest, inside.highest)
    if promised.all() and (not account.count.any() or _excess(constant, local, rows) <= 0.0):
        return Outcome(constant, np.zeros(len(nu)), Status.OPTIMAL)
    if outcome == DONE:
        return Outcome(out.astype(raw.dtype), nu, Status.ROUNDED)
    # Whatever else must give way, what can always be kept is.
    least, most = (count * float(side[0]) for side in (inside.lo, inside.hi))
    scale = statistic_scale(rows, absolute, count, (least, most))
    excess, _ = least_excess(rows, least, most, scale, ~promised)
    for wider, wide in widened(rows, excess, scale, ~promised):
        outcome, nu, _, _, missed, *_ = attempt(wide, unit)
        if outcome == DONE and (missed[promised] <= 0.0).all():
            status = Status.RELAXED if excess else Status.ROUNDED
            return Outcome(out.astype(raw.dtype), np.zeros(len(plan.residual)), status, wider)
    return Outcome(constant, np.zeros(len(plan.residual)), Status.RELAXED, _excess(constant, local, rows))


_NONE = np.zeros(0)


def keep_classes(ledger: Ledger, batch: Arrival, cell: np.ndarray, box: Box) -> Outcome:
    """The same for class probabilities: the nearest on the simplex that keep every pooled row of every class."""
    settings, classes, raw, size = ledger.settings, ledger.book.width, batch.raw, len(ledger.book.plan.residual)
    rows, local, _ = _rows(ledger, batch, cell)
    z, led = raw.astype(np.float64).reshape(-1, classes), np.empty((len(raw) // classes, classes))
    write(settings.kind, z, cell[::classes] // classes, ledger.leader.shift().reshape(-1, classes), led)
    ahead = by_class(rows, classes, 1 + settings.each_batch, np.ones(len(rows.start) - 1, dtype=bool))
    own = local[::classes] // classes
    problem = class_problem(settings.kind, led, own, _NONE, ahead)
    least = np.finfo(raw.dtype).tiny if settings.discrepancy == "entropy" else 0.0

    def rounded(out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value = np.maximum(out.astype(raw.dtype), raw.dtype.type(least))
        return value, value.astype(np.float64)

    def certify(exact: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sums, missed = missed_by(exact, own, _NONE, rows)
        return sums, missed[ahead.families]

    value, found, missed, _, _, solved = nearest_classes(problem, float(np.finfo(raw.dtype).eps) / 2, rounded, certify)
    if solved and (missed <= 0.0).all():
        nu = spread_multipliers(found.nu, float(len(z)), ahead, len(rows.offset))
        return Outcome(value.reshape(-1), nu[:size], Status.OPTIMAL)
    constant = _constant(ledger, raw, least, np.inf)
    if not ledger.account.count.any() or _excess(constant, local, rows) <= 0.0:
        return Outcome(constant, np.zeros(size), Status.OPTIMAL)
    return Outcome(value.reshape(-1) if solved else constant, np.zeros(size), Status.ROUNDED)


def _rows(ledger: Ledger, batch: Arrival, cell: np.ndarray) -> tuple[Rows, np.ndarray, np.ndarray]:
    """The pooled rows after a batch, and its own if asked for; the cell of each output among those of the batch, and
    how many outputs each has."""
    settings, account, plan = ledger.settings, ledger.account, ledger.book.plan
    lower, upper, _, _ = settings.rules.limits(plan)
    cells, local, count = localised(cell, len(account))
    known = batch.known if plan.any_residual and batch.known is not None else _NONE
    entries = (plan.start, plan.statistic, plan.share, plan.residual)
    family, targets = np.stack([plan.kind, plan.ratio, lower, upper]), target_sums(known, local, len(cells))

    def after(so_far: np.ndarray) -> Rows:
        start, statistic, value, offset, present, own = pooled_rows(
            *entries, so_far, cells, count, targets, plan.first, family
        )
        return Rows(start, statistic, value, offset, present, plan.first, own)

    rows = after(history(*entries, account.cells["sums"], account.cells["error"]))
    return _both(rows, after(np.zeros((4, len(plan.residual))))) if settings.each_batch else rows, local, count


def _both(rows: Rows, batch: Rows) -> Rows:
    """The pooled rows, followed by those of the batch alone: the same comparisons, of means within it."""
    K = len(rows.offset)
    # The entries of a cell stand together: first those of the pooled rows, then those of its own.
    cell = np.repeat(np.arange(len(rows.start) - 1), np.diff(rows.start))
    order = np.argsort(np.concatenate([cell, cell]), kind="stable")
    return Rows(
        2 * rows.start,
        np.concatenate([rows.statistic, batch.statistic + K])[order],
        np.concatenate([rows.value, batch.value])[order],
        np.concatenate([rows.offset, batch.offset]),
        np.concatenate([rows.present, batch.present]),
        np.concatenate([rows.first, rows.first[1:] + K]),
        np.concatenate([rows.family, batch.family], axis=1),
    )


def _constant(ledger: Ledger, raw: np.ndarray, low: float, high: float) -> np.ndarray:
    """The overall mean so far, of each of several outputs, for everyone."""
    account, width = ledger.account, ledger.book.width
    samples = account.count.sum() / width
    middle = account.total.reshape(-1, width).sum(axis=0) / samples if samples else raw.reshape(-1, width).mean(axis=0)
    return np.tile(np.clip(middle, low, high), len(raw) // width).astype(raw.dtype)


def _excess(value: np.ndarray, local: np.ndarray, rows: Rows) -> float:
    """By how much outputs may miss their rows."""
    missed = missed_by(value.astype(np.float64).reshape(-1, 1), local, _NONE, rows)[1]
    return float(missed.max(initial=-np.inf))


def keep_decisions(ledger: Ledger, batch: Arrival, cell: np.ndarray, box: Box) -> Outcome:
    """The leader's decisions, one after another, each turned round where the pooled rates could not be kept with it."""
    account, plan, raw = ledger.account, ledger.book.plan, batch.raw
    leader: ThresholdLeader = ledger.leader  # type: ignore[assignment]
    low, high = _sides(leader.threshold, raw.dtype, box)
    wanted = raw >= leader.thresholds()[cell]
    group, limit = ledger.decision_limits()
    yes = np.empty(len(raw), dtype=np.bool_)
    overruled, level = decide(
        wanted, cell, group, plan.first, plan.kind, limit, account.cells["sums"], account.cells["off"],
        int(account.numbers["level"]), yes,
    )  # fmt: skip
    account.numbers["level"] = float(level)
    # The scores nearest to the raw ones from which these decisions follow, whether a score is compared with the
    # threshold as it is, or as its own dtype rounds it.
    within = np.clip(raw, box.lo, box.hi)
    value = np.where(yes, np.maximum(within, high), np.minimum(within, low)).astype(raw.dtype, copy=False)
    return Outcome(value, np.zeros(len(plan.residual)), Status.OPTIMAL, overruled=overruled)


def _sides(threshold: float, dtype: np.dtype[Any], box: Box) -> tuple[Any, Any]:
    """The numbers next to a threshold, in a dtype: the largest that is a no, and the least that is a yes.

    A dtype that leaves no room for one of them within the bounds is refused.
    """
    near = dtype.type(threshold)
    low = np.nextafter(near, dtype.type(-np.inf))
    high = near if float(near) >= threshold else np.nextafter(near, dtype.type(np.inf))
    if high > box.highest or low < box.lowest:
        raise InputError(
            f"z holds {dtype}, which has no number within bounds ({box.lowest:g}, {box.highest:g}) on both sides of "
            f"the threshold {threshold:g}: pass float64, or widen the bounds."
        )
    return low, high


def primal_dual(ledger: Ledger, batch: Arrival, cell: np.ndarray, box: Box) -> Outcome:
    """Algorithm 1: project large batches; let small ones pay for their largest gap, and adapt the price."""
    settings, numbers, n = ledger.settings, ledger.account.numbers, len(batch.raw)
    data = {"groups": batch.groups, "targets": batch.known, "features": batch.features}
    data["levels"] = ledger.book.labels_met()  # so that a row of the batch is named as its pooled one
    if n >= settings.b_tau:
        solution = project(batch.raw, constraints=settings.rules, bounds=settings.bounds, infeasible="relax", **data)
        gap = float(np.abs(solution.gaps).max()) if len(solution.gaps) else float("nan")
        facts: Any = solution.facts
        nu = _placed(ledger, facts.view.plan.labels, facts.nu)
        outcome = Outcome(solution.value, nu, solution.status, solution.excess)
    else:
        system = bind(settings.rules, n, **data)
        softened = soft_step(batch.raw, system, box, 0.5 * numbers["multiplier"] * n)
        gap = softened.gap
        nu = _placed(ledger, system.view.plan.labels, softened.nu)
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


def _placed(ledger: Ledger, labels: Sequence[str], nu: np.ndarray) -> np.ndarray:
    """Multipliers of a batch's own statistics in the places of the pooled ones."""
    known = dict(zip(labels, nu.tolist(), strict=True))
    return np.array([known.get(label, 0.0) for label in ledger.book.plan.labels])


POLICIES: dict[str, Callable[..., Outcome]] = {
    "ledger": keep_ledger,
    "classes": keep_classes,
    "decisions": keep_decisions,
    "primal-dual": primal_dual,
}
