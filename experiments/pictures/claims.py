"""What becomes of the paper's claims about pictures, from the results."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import product

from experiments.claims import Finding, at_least, in_all, together
from experiments.methods import PROMISING
from experiments.pictures import reference
from experiments.pictures.inference import EQUAL, HARD, LEDGER, ONCE, PROJECTED, RAW, SOFT, TOGETHER
from experiments.pictures.settings import Settings
from experiments.pictures.tables import Row, flatten, grouped, headline, over_runs, where

PENALTIES = ("Penalty", "Strict Penalty")
GAIN, WIDER_GAIN = 2.0, 1.0  # percent, the lower ends of what the paper says of its two tolerances
NEGLIGIBLE, FAR = 0.005, 0.05  # of accuracy
MODERATE, SMALL = 64, 16  # pictures in a batch


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
        means += [statistics.fmean(values) for values in gains.values()]
    stored = {network: _percent(found["F-Layer"], found["Projection"]) for network, found in theirs.items()}
    return Finding(
        "; ".join(said),
        together(at_least(mean, least) for mean in means),
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

    first, known = count(ours), ", ".join(network for network in ours if network in theirs) or "none"
    return Finding(
        f"{first} of {len(ours)} networks ({', '.join(ours)}; of these, among the paper's {len(theirs)}: {known})",
        in_all(first, len(ours)),
        f"{count(theirs)} of {len(theirs)}",
    )


def _satisfied(rows: Sequence[Row], stored: Sequence[Row]) -> Finding:
    """Over all pictures: kept by the ledger, or each batch projected by itself, or, the penalties, as they are."""
    pooled = {
        "under the ledger": [where(rows, method=method, inference=LEDGER) for method in PROMISING],
        "projected batch by batch": [where(rows, method=method, inference=PROJECTED) for method in PROMISING],
        "penalties": [where(rows, method=method, inference=RAW) for method in PENALTIES],
    }
    said = [
        f"{how}: " + ", ".join(f"{part[0]['method']} {_exact(part)} of {len(part)} runs" for part in parts)
        for how, parts in pooled.items()
    ]
    projected = [row for part in pooled["projected batch by batch"] for row in part]
    batches, exact = (sum(row[name] for row in projected) for name in ("batches", "batches_exact"))
    worst = max(row["pooled_gap"] / row["tolerance"] for row in projected)
    theirs = ", ".join(
        f"{method} {sum(row['satisfied'] for row in part)} of {len(part)}"
        for (method,), part in grouped(stored, "method").items()
    )
    runs = [row for parts in pooled.values() for part in parts for row in part]
    return Finding(
        f"over all pictures, in exact arithmetic: {'; '.join(said)} (worst {worst:.3g} times the tolerance where "
        f"projected batch by batch, although {exact} of {batches} batches are satisfied)",
        in_all(_exact(runs), len(runs)),
        theirs,
    )


def _exact(rows: Sequence[Row]) -> int:
    """In how many runs all pictures together keep the tolerance."""
    return sum(row["pooled_exact"] for row in rows)


def _penalties(ours: dict[str, dict[str, float]], theirs: dict[str, dict[str, float]]) -> Finding:
    def listed(accuracies: dict[str, dict[str, float]]) -> str:
        return ", ".join(
            f"{network} {found['Penalty']:.3f} and {found['Strict Penalty']:.3f}"
            for network, found in accuracies.items()
        )

    similar = [abs(found["Penalty"] - found["Strict Penalty"]) <= NEGLIGIBLE for found in ours.values()]
    below = [max(found[name] for name in PENALTIES) < found["F-Layer"] - FAR for found in ours.values()]
    parts = [in_all(sum(cases), len(cases)) for cases in (similar, below)]
    return Finding(listed(ours), together(parts), listed(theirs))


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
    small = sum(abs(difference) <= NEGLIGIBLE for difference in differences)
    return Finding(
        f"at most {max(map(abs, differences)):.4f}",
        in_all(small, len(differences)),
        f"at most {max(theirs):.3f} in the table",
    )


def _small(served: Sequence[Row], stored: dict[tuple[str, str, str, int], Row]) -> Finding:
    differences = {
        (network, size): difference
        for (network, size), part in grouped(served, "network", "batch_size").items()
        if size <= SMALL and (difference := _difference(part, size, network)) is not None
    }
    theirs = [
        found["accuracy"] - stored[network, method, HARD, size]["accuracy"]
        for (network, method, how, size), found in stored.items()
        if how == SOFT and size <= SMALL
    ]
    listed = ", ".join(f"{network} {difference:+.4f} at {size}" for (network, size), difference in differences.items())
    higher = sum(difference > 0 for difference in differences.values())
    kept = [
        f"{network} {over_runs(part)['accuracy']:.3f} at {size}"
        for (network, size), part in grouped(
            where(served, method="F-Layer", inference=LEDGER, arrival=ONCE), "network", "batch_size"
        ).items()
        if size <= SMALL
    ]
    constant = served[0]["constant_accuracy"]
    said = f"{min(theirs):+.4f} to {max(theirs):+.4f} at 14 and 16" if theirs else ""
    return Finding(
        f"{listed} (accuracies under the ledger: {', '.join(kept)}; of a constant: {constant:.3f})",
        in_all(higher, len(differences)),
        said,
    )


def _aggregate(served: Sequence[Row], stored: dict[tuple[str, str, str, int], Row], settings: Settings) -> Finding:
    """With exactly equal shares in all batches, as the authors had them, and with shares as equal as can be."""
    said, held = {}, {}
    for how, arrival in product((HARD, SOFT, LEDGER), (EQUAL, ONCE)):
        rows = where(served, inference=how, arrival=arrival)
        held[how, arrival] = in_all(_exact(rows), len(rows))
        worst = max(row["pooled_gap"] for row in rows) / settings.tolerance
        said[how, arrival] = (
            f"{how}, {arrival}: {_exact(rows)} of {len(rows)} streams, worst {worst:.3g} times the tolerance"
        )
    judged = [(how, EQUAL) for how in (HARD, SOFT)]
    beside = [text for key, text in said.items() if key not in judged]
    theirs = [
        f"{how}: worst {max(gaps) / settings.tolerance:.3g} times the tolerance"
        for how in (HARD, SOFT)
        if (gaps := [row["pooled_gap"] for (_, _, regime, _), row in stored.items() if regime == how])
    ]
    measured = f"{'; '.join(said[key] for key in judged)} ({'; '.join(beside)})"
    return Finding(measured, together(held[key] for key in judged), "; ".join(theirs))
