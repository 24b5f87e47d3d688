"""Inference in batches: what is emitted for every test row, and what is to be said of it in exact arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from experiments import exact
from experiments.synthetic.settings import Settings
from experiments.synthetic.training import Part, Task, parity
from fairlayer import Stream, project
from fairlayer.stream import Certificate
from fairlayer.training import StratifiedBatches

REGIMES = ("large/large", "large/small", "small/small")  # batches in training / in inference
# How raw outputs become predictions. The first two look at one batch, the others at all before it, too.
RAW, PROJECTED, ALGORITHM_1, LEDGER = "raw", "projected", "Algorithm 1", "ledger"
# How rows arrive: every batch with the same share of each group, as published, or in the order of the data.
STRATIFIED, PLAIN = "stratified", "plain"

_POLICIES: dict[str, Literal["primal-dual", "ledger"]] = {ALGORITHM_1: "primal-dual", LEDGER: "ledger"}


def inferences(method: str, regime: str) -> tuple[str, ...]:
    """What is done with the outputs of a method's network."""
    if method not in ("F-Layer", "Projection"):
        return (RAW,)
    if regime == "large/large":
        return (PROJECTED,)
    return (ALGORITHM_1, LEDGER) if method == "F-Layer" else (PROJECTED, LEDGER)


def arrivals(group: np.ndarray, size: int, order: str) -> list[np.ndarray]:
    """Positions of the rows of each batch; every row is in one."""
    if order == STRATIFIED:
        return list(StratifiedBatches({"group": group}, size, shuffle=False))
    positions = np.arange(len(group))
    return [positions[start : start + size] for start in range(0, len(group), size)]


def emit(
    raw: np.ndarray, task: Task, rows: Sequence[np.ndarray], how: str, settings: Settings
) -> tuple[np.ndarray, Certificate | None]:
    """Predictions for every row, batch by batch, and the certificate where they are a stream's."""
    if how == RAW:
        return raw, None
    emitted = np.empty_like(raw)
    if how == PROJECTED:
        for taken in rows:
            groups = {"group": task.test.group[taken]}
            emitted[taken] = project(raw[taken], groups, parity(settings), task.bounds).value
        return emitted, None
    stream = Stream(parity(settings), task.bounds, policy=_POLICIES[how], b_tau=settings.b_tau, eta=settings.infer_eta)
    for taken in rows:
        emitted[taken] = stream.update(raw[taken], {"group": task.test.group[taken]}).value
    return emitted, stream.certificate()


def judge(
    emitted: np.ndarray, part: Part, rows: Sequence[np.ndarray], bounds: Any, settings: Settings
) -> dict[str, Any]:
    """Loss and gaps over all rows; sums are exact, and so is every comparison with the tolerance.

    gap: pooled, group 1 minus group 0. mean_batch_gap: of batches that hold both groups, weighted by their size.
    batches_within: of those, how many keep the tolerance. always_within: whether the pooled gap kept it after every
    batch, from the first after which both groups had been seen.
    """
    tolerance = Fraction(settings.tolerance)
    sums, counts = [Fraction(0), Fraction(0)], [0, 0]
    gaps: list[Fraction] = []
    sizes: list[int] = []
    always = True
    for taken in rows:
        values = [emitted[taken[part.group[taken] == label]] for label in (0, 1)]
        totals = [exact.total(some) for some in values]
        if all(map(len, values)):
            gaps.append(totals[1] / len(values[1]) - totals[0] / len(values[0]))
            sizes.append(len(taken))
        for label in (0, 1):
            sums[label] += totals[label]
            counts[label] += len(values[label])
        always &= not all(counts) or abs(sums[1] / counts[1] - sums[0] / counts[0]) <= tolerance
    pooled = sums[1] / counts[1] - sums[0] / counts[0]
    sizes_of_gaps = zip(sizes, gaps, strict=True)
    return {
        "mse": float(np.mean((emitted.astype(np.float64) - part.y) ** 2)),
        "gap": float(pooled),
        "within": abs(pooled) <= tolerance,
        "always_within": bool(always),
        "mean_batch_gap": float(sum(size * abs(gap) for size, gap in sizes_of_gaps) / sum(sizes)),
        "largest_batch_gap": float(max(map(abs, gaps))),
        "batches": len(rows),
        "batches_complete": len(gaps),
        "batches_within": sum(abs(gap) <= tolerance for gap in gaps),
        "within_bounds": exact.within(emitted, bounds),
    }


def observe(raw: np.ndarray, task: Task, rows: Sequence[np.ndarray], how: str, settings: Settings) -> dict[str, Any]:
    """What comes of raw outputs, and whether they keep what is promised of them; None where nothing is.

    Projected, every batch keeps the tolerance; under the ledger, the pool does after every batch. Algorithm 1 promises
    that the average gap of batches exceeds the tolerance by no more than what its price says.
    """
    emitted, certificate = emit(raw, task, rows, how, settings)
    judged = judge(emitted, task.test, rows, task.bounds, settings)
    kept = {
        RAW: None,
        PROJECTED: judged["batches_within"] == judged["batches_complete"],
        LEDGER: judged["always_within"],
        ALGORITHM_1: certificate is not None and _average_bounded(certificate),
    }[how]
    return {"inference": how, **judged, "promise_kept": None if kept is None else kept and judged["within_bounds"]}


def _average_bounded(certificate: Certificate) -> bool:
    excess, bound = certificate.accumulated_excess, certificate.accumulated_excess_bound
    return excess is not None and bound is not None and excess <= bound + 1e-9 * abs(bound)  # both are rounded


def infer(method: str, regime: str, raw: np.ndarray, task: Task, settings: Settings) -> list[dict[str, Any]]:
    """Everything that a method's network, trained in that regime, gives on the test rows."""
    small = regime.endswith("small")
    found = []
    for order in (STRATIFIED, PLAIN) if small else (STRATIFIED,):
        rows = arrivals(task.test.group, settings.infer_batch[small], order)
        about = {"method": method, "regime": regime, "order": order}
        found += [about | observe(raw, task, rows, how, settings) for how in inferences(method, regime)]
    return found
