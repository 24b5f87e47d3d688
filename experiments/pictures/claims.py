"""What becomes of the paper's claims about pictures, from the results."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import product

from experiments.claims import Finding, verdict
from experiments.methods import PROMISING
from experiments.pictures import reference
from experiments.pictures.inference import EQUAL, HARD, LEDGER, ONCE, PROJECTED, RAW, SOFT, TOGETHER
from experiments.pictures.settings import Settings
from experiments.pictures.tables import Row, flatten, grouped, headline, over_runs, where

PENALTIES = ("Penalty", "Strict Penalty")
GAIN, WIDER_GAIN = 2.0, 1.0  # percent, the lower ends of what the paper says of its two tolerances
NEGLIGIBLE = 0.005  # of accuracy
MODERATE = 64  # pictures in a batch


def claims(name: str, results: list[Row], settings: Settings) -> dict[str, Finding]:
    """A finding for every claim."""
    rows, served = flatten(results, "rows"), flatten(results, "served")
    ours = _accuracies(rows, settings.tolerance)
    stored = reference.stored_runs(name)
    theirs = _nested({(row["network"], row["method"]): row["accuracy"] for row in stored})
    wide, printed = reference.printed_wider(name)
    found = {
        "highest": _highest(ours, theirs),
        "gain": _gain(rows, settings.tolerance, theirs, GAIN),
        "satisfied": _satisfied(where(rows, tolerance=settings.tolerance), stored),
        "penalties": _penalties(ours, theirs),
        "moderate": _moderate(served, reference.printed_batch_sizes(name)),
        "small": _small(served, reference.stored_batch_sizes(name)),
        "aggregate": _aggregate(served, reference.stored_batch_sizes(name), settings),
    }
    if any(row["tolerance"] == wide for row in rows):
        found["slack"] = _gain(rows, wide, _nested(printed), WIDER_GAIN)
    return {claim: finding for claim, finding in found.items() if finding is not None}


def _accuracies(rows: Sequence[Row], tolerance: float) -> dict[str, dict[str, float]]:
    """Mean accuracy by network and method, the fair ones kept so by the ledger."""
    parts = grouped(where(rows, tolerance=tolerance), "network", "method", "inference")
    return _nested(
        {
            (network, method): over_runs(part)["accuracy"]
            for (network, method, how), part in parts.items()
            if how == headline(method)
        }
    )


def _nested(values: dict[tuple[str, str], float]) -> dict[str, dict[str, float]]:
    """By network, then by method."""
    found: dict[str, dict[str, float]] = {}
    for (network, method), value in values.items():
        found.setdefault(network, {})[method] = value
    return found


def _percent(ours: float, other: float) -> float:
    return 100 * (ours - other) / other


def _gain(rows: Sequence[Row], tolerance: float, theirs: dict[str, dict[str, float]], least: float) -> Finding:
    """Of F-Layer over Projection, in percent of Projection's accuracy; least: what the paper says."""
    said, means = [], []
    for how in (LEDGER, TOGETHER):
        gains = _seed_gains(where(rows, tolerance=tolerance, inference=how))
        said.append(f"{how}: " + ", ".join(f"{network} {_range(values)}" for network, values in gains.items()))
        if how == LEDGER:
            means = [statistics.fmean(values) for values in gains.values()]
    stored = {network: _percent(found["F-Layer"], found["Projection"]) for network, found in theirs.items()}
    holds = all(mean >= least for mean in means)
    return Finding(
        "; ".join(said),
        verdict(holds, any(mean > 0 for mean in means)),
        ", ".join(f"{network} {value:+.2f} %" for network, value in stored.items()),
    )


def _seed_gains(rows: Sequence[Row]) -> dict[str, list[float]]:
    """By network, one per seed."""
    found: dict[str, list[float]] = {}
    for (network, _), part in grouped(rows, "network", "seed").items():
        accuracy = {row["method"]: row["accuracy"] for row in part}
        found.setdefault(network, []).append(_percent(accuracy["F-Layer"], accuracy["Projection"]))
    return found


def _range(values: Sequence[float]) -> str:
    spread = f" ({min(values):+.2f} to {max(values):+.2f} over {len(values)} seeds)" if len(values) > 1 else ""
    return f"{statistics.fmean(values):+.2f} %{spread}"


def _highest(ours: dict[str, dict[str, float]], theirs: dict[str, dict[str, float]]) -> Finding:
    def count(accuracies: dict[str, dict[str, float]]) -> int:
        fair = [{m: a for m, a in found.items() if m != "Unconstrained"} for found in accuracies.values()]
        return sum(found["F-Layer"] == max(found.values()) for found in fair)

    first = count(ours)
    return Finding(
        f"{first} of {len(ours)} networks", verdict(first == len(ours), first > 0), f"{count(theirs)} of {len(theirs)}"
    )


def _satisfied(rows: Sequence[Row], stored: Sequence[Row]) -> Finding:
    """Batches are judged where each is projected, all pictures where they are kept by the ledger or not at all."""
    said, kept = [], True
    for method in (*PROMISING, *PENALTIES):
        pooled = where(rows, method=method, inference=headline(method))
        held = sum(row["pooled_exact"] for row in pooled)
        kept &= method not in PROMISING or held == len(pooled)
        said.append(f"{method} {held} of {len(pooled)} runs")
    projected = [row for row in rows if row["inference"] == PROJECTED]
    batches, exact = (sum(row[name] for row in projected) for name in ("batches", "batches_exact"))
    kept &= batches == exact
    everyone = all(row["pooled_exact"] for row in rows if row["method"] in PENALTIES and row["inference"] == RAW)
    theirs = ", ".join(
        f"{method} {sum(row['satisfied'] for row in part)} of {len(part)}"
        for (method,), part in grouped(stored, "method").items()
    )
    measured = f"{', '.join(said)}; F-Layer and Projection batch by batch: {exact} of {batches}, in exact arithmetic"
    return Finding(measured, verdict(kept and everyone, kept), theirs)


def _penalties(ours: dict[str, dict[str, float]], theirs: dict[str, dict[str, float]]) -> Finding:
    def listed(accuracies: dict[str, dict[str, float]]) -> str:
        return ", ".join(
            f"{network} {found['Penalty']:.3f} and {found['Strict Penalty']:.3f}"
            for network, found in accuracies.items()
        )

    similar = [abs(found["Penalty"] - found["Strict Penalty"]) <= 0.01 for found in ours.values()]
    below = [max(found[name] for name in PENALTIES) < found["F-Layer"] - 0.01 for found in ours.values()]
    holds = [a and b for a, b in zip(similar, below, strict=True)]
    return Finding(listed(ours), verdict(all(holds), any(holds) or all(below)), listed(theirs))


def _difference(served: Sequence[Row], size: int, network: str) -> float | None:
    """Accuracy of F-Layer by the primal-dual step less that by hard projection, at one batch size."""
    soft, hard = (
        where(served, network=network, method="F-Layer", inference=how, arrival=ONCE, batch_size=size)
        for how in (SOFT, HARD)
    )
    return over_runs(soft)["accuracy"] - over_runs(hard)["accuracy"] if soft and hard else None


def _moderate(served: Sequence[Row], printed: dict[tuple[str, str, int], float]) -> Finding | None:
    differences = [
        difference
        for (network, size), _ in grouped(served, "network", "batch_size").items()
        if size >= MODERATE and (difference := _difference(served, size, network)) is not None
    ]
    if not differences:
        return None
    theirs = [
        abs(accuracy - printed[network, SOFT, size])
        for (network, how, size), accuracy in printed.items()
        if how == HARD and size >= MODERATE
    ]
    most = max(map(abs, differences))
    return Finding(f"at most {most:.4f}", verdict(most <= NEGLIGIBLE), f"at most {max(theirs):.3f} in the table")


def _small(served: Sequence[Row], stored: dict[tuple[str, str, str, int], Row]) -> Finding:
    differences = {
        (network, size): difference
        for (network, size), part in grouped(served, "network", "batch_size").items()
        if size <= 16 and (difference := _difference(part, size, network)) is not None
    }
    theirs = [
        found["accuracy"] - stored[network, method, HARD, size]["accuracy"]
        for (network, method, how, size), found in stored.items()
        if how == SOFT and size <= 16
    ]
    listed = ", ".join(f"{network} {difference:+.4f} at {size}" for (network, size), difference in differences.items())
    higher = [difference > 0 for difference in differences.values()]
    said = f"{min(theirs):+.4f} to {max(theirs):+.4f} at 14 and 16" if theirs else ""
    return Finding(listed, verdict(all(higher), any(higher)), said)


def _aggregate(served: Sequence[Row], stored: dict[tuple[str, str, str, int], Row], settings: Settings) -> Finding:
    """With exactly equal shares in all batches, as the authors had them, and with shares as equal as can be."""
    said, held = [], {}
    for how, arrival in product((HARD, SOFT, LEDGER), (EQUAL, ONCE)):
        rows = where(served, inference=how, arrival=arrival)
        kept = sum(row["pooled_exact"] for row in rows)
        held[how, arrival] = kept == len(rows)
        worst = max(row["pooled_gap"] for row in rows) / settings.tolerance
        said.append(f"{how}, {arrival}: {kept} of {len(rows)} streams, worst {worst:.3g} times the tolerance")
    theirs = [
        f"{how}: worst {max(gaps) / settings.tolerance:.3g} times the tolerance"
        for how in (HARD, SOFT)
        if (gaps := [row["pooled_gap"] for (_, _, regime, _), row in stored.items() if regime == how])
    ]
    hard, soft = held[HARD, EQUAL], held[SOFT, EQUAL]
    return Finding("; ".join(said), verdict(hard and soft, hard or soft), "; ".join(theirs))
