"""Tables of the picture experiments, from their results, beside the authors' figures."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from experiments.methods import METHODS, PROMISING
from experiments.pictures import reference
from experiments.pictures.backbones import BACKBONES
from experiments.pictures.inference import LEDGER, ONCE, RAW
from experiments.pictures.settings import Settings

Row = dict[str, Any]


def flatten(results: Iterable[Row], name: str) -> list[Row]:
    """The rows of all trainings, each with where it comes from."""
    shared = ("seed", "strength", "epochs", "constant_accuracy")
    return [
        {"network": BACKBONES[result["network"]].title, **{key: result[key] for key in shared}, **row}
        for result in results
        for row in result[name]
    ]


def titles(settings: Settings) -> list[str]:
    """The networks as the paper calls them."""
    return [BACKBONES[network.name].title for network in settings.networks]


def where(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """The rows with these values."""
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by the values of some columns, in the order in which they come."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def headline(method: str) -> str:
    """How a method's outputs are made where one row stands for it: so that all pictures together are fair."""
    return LEDGER if method in PROMISING else RAW


def over_runs(rows: Sequence[Row]) -> Row:
    """Mean accuracy and worst gap over runs that differ by their seed."""
    accuracies = [row["accuracy"] for row in rows]
    return {
        "runs": len(rows),
        "accuracy": statistics.fmean(accuracies),
        "accuracy_sd": statistics.stdev(accuracies) if len(rows) > 1 else None,
        "bce": statistics.fmean(row["bce"] for row in rows),
        "batches": sum(row["batches"] for row in rows),
        "batches_exact": sum(row["batches_exact"] for row in rows),
        "moments_exact": sum(row["moments_exact"] for row in rows),
        "largest_batch_gap": max(row["largest_batch_gap"] for row in rows),
        "mean_batch_gap": statistics.fmean(row["mean_batch_gap"] for row in rows),
        "pooled_gap": max(row["pooled_gap"] for row in rows),
        "runs_pooled_exact": sum(row["pooled_exact"] for row in rows),
        "pairs_violated": max(row["pairs_violated"] for row in rows),
    }


def method_table(name: str, rows: Sequence[Row], settings: Settings) -> list[Row]:
    """Every network, method and kind of inference at the paper's tolerance; the authors' figures where they exist."""
    stored = {(row["network"], row["method"]): row for row in reference.stored_runs(name)}
    table = []
    chosen = sorted(where(rows, tolerance=settings.tolerance), key=lambda row: METHODS.index(row["method"]))
    networks = titles(settings)
    for (network, method, how), part in sorted(
        grouped(chosen, "network", "method", "inference").items(), key=lambda entry: networks.index(entry[0][0])
    ):
        theirs = stored.get((network, method), {})
        if method == "Unconstrained":
            theirs = {"accuracy": stored.get((network, "Projection"), {}).get("raw_accuracy")}
        strengths = sorted({row["strength"] for row in part if row["strength"] is not None})
        table.append(
            {
                "network": network,
                "method": method,
                "inference": how,
                **over_runs(part),
                "constant_accuracy": part[0]["constant_accuracy"],
                "strengths": " ".join(f"{strength:g}" for strength in strengths),
                "epochs": statistics.fmean(row["epochs"] for row in part),
                "stored_accuracy": theirs.get("accuracy"),
                "stored_pooled_gap": theirs.get("pooled_gap"),
                "stored_satisfied": theirs.get("satisfied"),
            }
        )
    return table


def rank_table(name: str, rows: Sequence[Row], settings: Settings) -> list[Row]:
    """Rank by accuracy of the methods whose pooled gap keeps the tolerance in every run; ours, then the authors'."""
    ours = []
    for (network, method, how), part in grouped(
        where(rows, tolerance=settings.tolerance), "network", "method", "inference"
    ).items():
        if how == headline(method):
            found = over_runs(part)
            satisfied = found["runs_pooled_exact"] == found["runs"]
            entry = {"network": network, "method": method, "accuracy": found["accuracy"], "satisfied": satisfied}
            ours.append({"source": "measured", **entry, "pooled_gap": found["pooled_gap"]})
    names = ("network", "method", "accuracy", "satisfied", "pooled_gap")
    theirs = [
        {"source": "stored by the authors", **{name: row[name] for name in names}}
        for row in reference.stored_runs(name)
    ]
    table = []
    for part in grouped([*ours, *theirs], "source", "network").values():
        order = sorted((row for row in part if row["satisfied"]), key=lambda row: -row["accuracy"])
        for row in sorted(part, key=lambda row: METHODS.index(row["method"])):
            rank = 1 + sum(other["accuracy"] > row["accuracy"] for other in order) if row["satisfied"] else None
            table.append({**row, "rank": rank})
    return table


def tolerance_table(name: str, rows: Sequence[Row], settings: Settings) -> list[Row]:
    """Accuracy by tolerance, of the methods that look at it."""
    wide, printed = reference.printed_wider(name)
    stored = {(row["network"], row["method"]): row["accuracy"] for row in reference.stored_runs(name)}
    table = []
    for (network, method, how, tolerance), part in grouped(rows, "network", "method", "inference", "tolerance").items():
        if method in ("F-Layer", "Projection", "Penalty"):
            theirs = printed if tolerance == wide else stored if tolerance == settings.tolerance else {}
            entry = {"network": network, "method": method, "inference": how, "tolerance": tolerance}
            table.append({**entry, **over_runs(part), "published_accuracy": theirs.get((network, method))})
    order = {name: position for position, name in enumerate(METHODS)}
    return sorted(table, key=lambda row: (row["network"], order[row["method"]], row["inference"], row["tolerance"]))


def size_table(name: str, served: Sequence[Row]) -> list[Row]:
    """Accuracy and gaps by batch size in inference; the paper's and the stored figures where they exist."""
    printed = reference.printed_batch_sizes(name)
    stored = reference.stored_batch_sizes(name)
    table = []
    for key, part in grouped(served, "network", "method", "inference", "arrival", "batch_size").items():
        network, method, how, arrival, size = key
        theirs = stored.get((network, method, how, size), {})
        columns: Row = {
            "printed_accuracy": printed.get((network, how, size)) if method == "F-Layer" else None,
            "stored_accuracy": theirs.get("accuracy"),
            "stored_pooled_gap": theirs.get("pooled_gap"),
        }
        if arrival == ONCE:  # the authors' pictures came in equal shares
            columns = dict.fromkeys(columns)
        entry = {"network": network, "method": method, "inference": how, "arrival": arrival, "batch_size": size}
        table.append({**entry, **over_runs(part), "pairs": part[0]["pairs"], **columns})
    return table


def strength_table(results: Sequence[Row]) -> list[Row]:
    """Every strength of the penalty that was tried."""
    return [
        {
            "network": BACKBONES[result["network"]].title,
            **{name: result[name] for name in ("seed", "tolerance")},
            **{name: trial[name] for name in ("strength", "loss", "gap", "satisfied")},
            "chosen": trial["strength"] == result["strength"],
        }
        for result in results
        for trial in result["trials"]
    ]
