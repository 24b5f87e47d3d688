"""The policies of a stream: what to emit for the next batch, given all before it."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairlayer.core._native import decide as decide_in_order
from fairlayer.core._native import pooled_rows
from fairlayer.core.soft_step import soft_step
from fairlayer.errors import InputError
from fairlayer.problem.bounds import Box, read_bounds
from fairlayer.problem.rows import RATIO, Rows
from fairlayer.problem.system import bind
from fairlayer.projection import project
from fairlayer.solution import Solution, Status
from fairlayer.stream.batch import Batch
from fairlayer.stream.leader import ThresholdLeader
from fairlayer.stream.ledger import Ledger, Outcome, Pending
from fairlayer.stream.log import for_replay
from fairlayer.stream.solver import NONE, Problem, largest_miss

_UNITS = 2.0**30  # of 1, in which decisions are counted: see core/native/decision_ledger.cpp


def decide(ledger: Ledger, batch: Batch, cell: np.ndarray) -> tuple[Solution, np.ndarray, dict[str, Any]]:
    """Decide a batch of at least one sample, and enter it. cell: of each output.

    Returns the solution, the outputs as an array, and what the log says of it.
    """
    settings = ledger.settings
    box = read_bounds(settings.bounds, len(batch.raw), batch.raw.dtype)
    touched = np.flatnonzero(np.bincount(cell))
    before = ledger.record(touched)
    if settings.policy == "primal-dual":
        outcome = _primal_dual(ledger, batch, box)
    elif settings.task == "decisions":
        outcome = _keep_rates(ledger, batch, cell, box)
    else:
        outcome = _keep_means(ledger, batch, cell, box)
    changed, change = ledger.enter(batch, cell, outcome)
    solution = ledger.solution(batch, outcome)
    if settings.policy == "ledger":
        ledger.leader.maybe_resolve(box)
    multipliers = np.asarray(solution.multipliers)
    payload: dict[str, Any] = {
        "kind": "batch",
        "samples": batch.n,
        "cells": ledger.changes(touched, before),
        "multipliers": {solution.rows[j]: float(multipliers[j]) for j in np.flatnonzero(multipliers)},
        "status": solution.status.name,
        "excess": outcome.excess,
        "changed": changed,
        "change": change,
    }
    if settings.task == "decisions":
        payload["overruled"] = outcome.overruled
    if batch.ids:
        decisions = zip(cell.tolist(), outcome.value.tolist(), batch.raw.tolist(), strict=True)
        payload["waiting"] = {key: Pending(*one) for key, one in zip(batch.ids, decisions, strict=True)}
    if batch.batch_id is not None:
        payload |= for_replay(batch, cell, outcome.value, solution)
    return solution, outcome.value, payload


def _keep_means(ledger: Ledger, batch: Batch, cell: np.ndarray, box: Box) -> Outcome:
    """The leader's shift, then the nearest outputs that keep every pooled row, and the batch's own if asked to."""
    settings, plan, raw, width = ledger.settings, ledger.index.plan, batch.raw, ledger.index.width
    solver, nothing = ledger.leader.solver, np.zeros(len(plan.residual))
    rows, local = _rows_after(ledger, batch, cell)
    led = solver.respond(raw, cell, ledger.leader.shift(), width)
    problem = Problem(led, local, rows, box, raw.dtype, width)
    found = solver.nearest(problem)
    if found.certain:
        return Outcome(found.value, found.nu[: len(nothing)], Status.OPTIMAL)  # type: ignore[arg-type]
    # No exact solution was found. For mean parity the overall mean for everyone is one; of equal outputs before which
    # there is nothing, the means are equal.
    promised = np.resize([settings.rules.constraints[owner].always_feasible for owner in plan.owner], len(rows.kind))
    constant = _overall_mean(ledger, raw, solver.inside(box, raw.dtype))
    missed = largest_miss(constant, local, rows)
    if promised.all() and (missed <= 0.0 or not ledger.state.count.any()):
        return Outcome(constant, nothing, Status.OPTIMAL)
    if found.value is not None:
        return Outcome(found.value, found.nu[: len(nothing)], Status.ROUNDED)
    if settings.simplex:
        return Outcome(constant, nothing, Status.ROUNDED)
    # Whatever else must give way, what can always be kept is.
    for status, excess, wider in solver.relaxed(problem, found.absolute, ~promised):
        if wider.value is not None and (wider.missed[promised] <= 0.0).all():
            return Outcome(wider.value, nothing, status, excess)
    return Outcome(constant, nothing, Status.RELAXED, missed)


def _rows_after(ledger: Ledger, batch: Batch, cell: np.ndarray) -> tuple[Rows, np.ndarray]:
    """The pooled rows after a batch, followed by its own if asked for; the cell of each output among those it has."""
    settings, plan = ledger.settings, ledger.index.plan
    lower, upper, *_ = settings.rules.limits(plan)
    known = batch.known if plan.any_residual and batch.known is not None else NONE
    local, start, statistic, value, offset, present, low, high = pooled_rows(
        ledger.state.cell_rows, cell, known, plan.start, plan.statistic, plan.residual, plan.first, plan.kind,
        plan.ratio, lower, upper, settings.each_batch,
    )  # fmt: skip
    first, kind, ratio = plan.first, plan.kind, plan.ratio
    if settings.each_batch:
        first = np.concatenate([first, first[1:] + len(plan.residual)])
        kind, ratio = np.tile(kind, 2), np.tile(ratio, 2)
    family = np.stack([kind, ratio, low, high])
    return Rows(start, statistic, value, offset, present.view(bool), first, family), local


def _overall_mean(ledger: Ledger, raw: np.ndarray, box: Box) -> np.ndarray:
    """The overall mean so far, of each of several outputs, for everyone."""
    state, width = ledger.state, ledger.index.width
    samples = state.count.sum() / width
    middle = state.total.reshape(-1, width).sum(axis=0) / samples if samples else raw.reshape(-1, width).mean(axis=0)
    return np.tile(np.clip(middle, box.lowest, box.highest), len(raw) // width).astype(raw.dtype)


def _keep_rates(ledger: Ledger, batch: Batch, cell: np.ndarray, box: Box) -> Outcome:
    """The leader's decisions, one after another, each turned round where the pooled rates could not be kept with it."""
    state, plan, raw = ledger.state, ledger.index.plan, batch.raw
    leader = ledger.leader
    assert isinstance(leader, ThresholdLeader)
    low, high = _sides(leader.threshold, raw.dtype, box)
    tolerance = np.minimum(ledger.settings.rules.limits(plan)[1], 1.0)
    is_ratio = plan.kind == RATIO
    # Exact: a power of two takes no digit away. Tolerances are rounded down to a unit, ratios up.
    limit = np.where(is_ratio, np.ceil(plan.ratio * _UNITS), np.floor(tolerance * _UNITS)).astype(np.int64)
    group = plan.statistic.reshape(plan.size, len(plan.kind))  # every cell has one in each family
    yes, overruled, state.totals.level = decide_in_order(
        state.cell_rows, cell, raw >= leader.thresholds()[cell], group, plan.first, is_ratio, limit, state.totals.level
    )
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


def _primal_dual(ledger: Ledger, batch: Batch, box: Box) -> Outcome:
    """Algorithm 1: project large batches; let small ones pay for their largest gap, and adapt the price."""
    settings, totals, n, excess = ledger.settings, ledger.state.totals, batch.n, 0.0
    levels = ledger.index.labels_met()  # so that a row of the batch is named as its pooled one
    if n >= settings.b_tau:
        hard = project(
            batch.raw, batch.groups, settings.rules, bounds=settings.bounds, targets=batch.known,
            features=batch.features, levels=levels, infeasible="relax",
        )  # fmt: skip
        value, of_batch, batch_nu, status, excess = hard.value, hard.view, hard.nu, hard.status, hard.excess
        gap = float(np.abs(hard.gaps).max()) if len(hard.gaps) else float("nan")
    else:
        system = bind(settings.rules, n, batch.groups, batch.known, batch.features, levels=levels)
        soft = soft_step(batch.raw, system, box, 0.5 * totals.multiplier * n)
        value, of_batch, batch_nu, status, gap = soft.value, system.view, soft.nu, Status.OPTIMAL, soft.gap
        if not np.isnan(gap):  # a batch that lacks a group has no gap, and makes no step
            totals.soft_steps += 1
            rise = settings.eta / np.sqrt(totals.soft_steps) * n * soft.excess
            totals.multiplier = float(max(0.0, totals.multiplier + rise))
            totals.largest_multiplier = max(totals.largest_multiplier, totals.multiplier)
            totals.accumulated_excess += n * soft.excess
    if not np.isnan(gap):
        totals.judged += n
        totals.weighted_gap += n * gap
    named = dict(zip(of_batch.plan.labels, batch_nu.tolist(), strict=True))
    nu = np.array([named.get(label, 0.0) for label in ledger.index.plan.labels])
    return Outcome(value, nu, status, excess)
