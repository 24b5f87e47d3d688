"""Tables, figures and findings of the loan experiment, from its results."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.claims import Finding, about, at_least, in_all, published_number
from experiments.figures import band, boxes, figure
from experiments.methods import METHODS, PROMISING
from experiments.tables import markdown, published, write_csv

HEADLINE = "last"  # the epoch that the published figures are of; tables have both
STORED = {"f_layer": "F-Layer", "projection": "Projection", "penalty": "Penalty", "strict_penalty": "Strict Penalty"}
TOLERANCE = 0.01  # of the published results
COLLAPSED = 0.51  # an AUC this close to 1/2 tells nothing apart
THREE = ("F-Layer", "Projection", "Strict Penalty")  # the methods of the paper's table
Row = dict[str, Any]


def summarise(results: list[Row], settings: Any, folder: Path) -> None:
    """Write every table and figure."""
    rows = flatten(results)
    write_csv(folder / "splits.csv", [{k: v for k, v in row.items() if k not in ("roc", "pr")} for row in rows])
    summary = [_summary_row(key, part) for key, part in _grouped(rows, "network", "epoch", "method").items()]
    summary += [_stored_row(network, method) for network, _ in settings.networks for method in STORED.values()]
    summary = [row for row in summary if row["splits"]]
    write_csv(folder / "summary.csv", summary)
    (folder / "summary.md").write_text(markdown(summary) + "\n")
    write_csv(folder / "paired.csv", _paired_rows(rows))
    write_csv(folder / "strengths.csv", _strength_rows(results))
    for network, _ in settings.networks:
        for epoch in ("last", "best"):
            chosen = [row for row in rows if row["network"] == network and row["epoch"] == epoch]
            _draw(chosen, folder / f"curves_{network}_{epoch}.svg", folder / f"boxes_{network}_{epoch}.svg")


def flatten(results: Sequence[Row]) -> list[Row]:
    """One row per network, split, epoch and method, in this order."""
    shared = ("network", "split", "strength", "epochs", "best_epoch", "seconds")
    rows = [{**{name: result[name] for name in shared}, **row} for result in results for row in result["rows"]]
    return sorted(rows, key=lambda row: (row["network"] != "small", row["epoch"], _rank(row["method"]), row["split"]))


def _rank(method: str) -> int:
    return METHODS.index(method)


def _grouped(rows: Sequence[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def _summary_row(key: tuple[Any, ...], rows: Sequence[Row]) -> Row:
    """Means and standard deviations over the splits."""
    source, network, epoch, method = key if len(key) == 4 else ("measured", *key)
    out: Row = {"source": source, "network": network, "epoch": epoch, "method": method, "splits": len(rows)}
    for name in ("auc", "ap", "error", "best_f1"):
        values = [row[name] for row in rows]
        out[name] = _mean(values)
        out[f"{name}_sd"] = statistics.stdev(values) if len(values) > 1 else None
    for name in ("gap_new", "gap_urban"):
        out[f"largest_{name}"] = max((abs(row[name]) for row in rows), default=None)
    out["splits_satisfied"] = sum(row["satisfied"] for row in rows)
    return out


def stored_rows(network: str, method: str) -> list[Row]:
    """The authors' stored results of a method, in our names; those of the other file's copies are left out."""
    names = {
        "auc": "test_auc", "ap": "test_ap", "error": "misclass_at_0_5", "best_f1": "best_f1",
        "gap_new": "logit_gap_new", "gap_urban": "logit_gap_urban",
        "error_repaid": "misclass_y0", "error_default": "misclass_y1",
    }  # fmt: skip
    rows = []
    for row in published(f"loan_{network}"):
        if STORED[row["method"]] == method and row["copied_from_small"] != "True":
            ours: Row = {"split": int(row["data_seed"]), **{our: float(row[their]) for our, their in names.items()}}
            ours["gap"] = max(abs(ours["gap_new"]), abs(ours["gap_urban"]))
            ours["satisfied"] = ours["gap"] <= TOLERANCE
            rows.append(ours)
    return sorted(rows, key=lambda row: row["split"])


def _stored_row(network: str, method: str) -> Row:
    rows = stored_rows(network, method)
    if not rows:
        return {"splits": 0}
    return _summary_row(("stored by the authors", network, "last", method), rows)


def _paired_rows(rows: Sequence[Row]) -> list[Row]:
    """F-Layer against every other method, split by split."""
    out = []
    for (network, epoch), part in _grouped(rows, "network", "epoch").items():
        methods = _grouped(part, "method")
        for (method,), others in methods.items():
            if method != "F-Layer":
                ours = methods[("F-Layer",)]
                row: Row = {"network": network, "epoch": epoch, "against": method, "splits": len(ours)}
                for name in ("auc", "ap"):
                    row[f"{name}_higher"] = wins(ours, others, name)
                    row[f"{name}_mean_gain_percent"] = gain(ours, others, name)
                out.append(row)
    return out


def wins(ours: Sequence[Row], others: Sequence[Row], name: str) -> int:
    """On how many splits we are higher."""
    return sum(a[name] > b[name] for a, b in _pairs(ours, others))


def gain(ours: Sequence[Row], others: Sequence[Row], name: str) -> float:
    """By how many percent we are higher, the mean over the splits of (ours - other) / other."""
    return 100 * _mean([(a[name] - b[name]) / b[name] for a, b in _pairs(ours, others)])


def _pairs(ours: Sequence[Row], others: Sequence[Row]) -> list[tuple[Row, Row]]:
    by_split = {row["split"]: row for row in others}
    return [(row, by_split[row["split"]]) for row in ours]


def _strength_rows(results: Sequence[Row]) -> list[Row]:
    """Every strength tried, beside what the authors logged for it."""
    logged = {
        (network, int(row["data_seed"]), float(row["lambda"])): row
        for network in ("small", "large")
        for row in published(f"loan_lambda_{network}")
    }
    out = []
    for result in results:
        for trial in result["trials"]:
            theirs = logged.get((result["network"], result["split"], trial["strength"]))
            gaps = [abs(float(theirs[f"train_logit_gap_{name}"])) for name in ("new", "urban")] if theirs else []
            row = {"network": result["network"], "split": result["split"], **trial}
            row["chosen"] = trial["strength"] == result["strength"]
            out.append(row | {"gap_logged_by_the_authors": max(gaps, default=None)})
    return out


def _draw(rows: Sequence[Row], curves: Path, distribution: Path) -> None:
    """Mean curves with a band of one standard deviation, and boxes of the areas below them."""
    methods = {method: part for (method,), part in _grouped(rows, "method").items()}
    points = np.linspace(0.0, 1.0, len(rows[0]["roc"]))
    with figure(curves, columns=2) as (roc, pr):
        for method, part in methods.items():
            band(roc, points, [row["roc"] for row in part], method)
            band(pr, points, [row["pr"] for row in part], method)
        roc.plot([0, 1], [0, 1], color="black", linewidth=0.6, linestyle=":")
        roc.set(xlabel="false positive rate", ylabel="true positive rate", ylim=(0, 1.02))
        pr.set(xlabel="recall", ylabel="precision", ylim=(0, 1.02))
        roc.legend()
    ours = methods["F-Layer"]
    with figure(distribution, columns=3, width=3.6) as (auc, ap, relative):
        for axes, name, label in ((auc, "auc", "AUC"), (ap, "ap", "average precision")):
            boxes(axes, {method: [row[name] for row in part] for method, part in methods.items()})
            axes.set_ylabel(label)
        others = {method: part for method, part in methods.items() if method != "F-Layer"}
        change = {
            method: [100 * (b["auc"] - a["auc"]) / a["auc"] for a, b in _pairs(ours, part)]
            for method, part in others.items()
        }
        boxes(relative, change)
        relative.axhline(0.0, color="black", linewidth=0.8)
        relative.set_ylabel("AUC relative to F-Layer (%)")


def claims(results: list[Row], settings: Any) -> dict[str, Finding]:
    """What became of the paper's claims; they are about the small network."""
    rows = [row for row in flatten(results) if row["network"] == "small"]
    part = {method: [r for r in rows if r["method"] == method and r["epoch"] == HEADLINE] for method in METHODS}
    best = {method: [r for r in rows if r["method"] == method and r["epoch"] == "best"] for method in METHODS}
    theirs = {method: stored_rows("small", method) for method in STORED.values()}
    n = len(part["F-Layer"])

    def both(text: Callable[[dict[str, list[Row]]], str]) -> dict[str, str]:
        return {"measured": f"{text(part)} (best epoch: {text(best)})", "stored": text(theirs)}

    def higher(of: dict[str, list[Row]], name: str) -> int:
        return wins(of["F-Layer"], of["Projection"], name)

    promised = [row for row in flatten(results) if row["method"] in PROMISING]
    stored_promised = [row for method in PROMISING for row in theirs[method]]
    usable = [row for row in part["Penalty"] if row["satisfied"] and row["auc"] > COLLAPSED]
    three = [row for method in THREE for row in part[method]]
    return {
        "improvement": Finding(
            **both(lambda of: f"{gain(of['F-Layer'], of['Projection'], 'auc'):.2f} %, AUC {_means(of, 'auc')}"),
            verdict=at_least(gain(part["F-Layer"], part["Projection"], "auc"), published_number("loan", "improvement")),
        ),
        "consistent": Finding(
            **both(lambda of: f"higher on {higher(of, 'auc')} of {len(of['F-Layer'])}"),
            verdict=at_least(higher(part, "auc"), higher(theirs, "auc") * n / len(theirs["F-Layer"])),
        ),
        "precision": Finding(
            **both(lambda of: f"{_means(of, 'ap')}, higher on {higher(of, 'ap')} of {len(of['F-Layer'])}"),
            verdict=at_least(higher(part, "ap"), higher(theirs, "ap") * n / len(theirs["F-Layer"])),
        ),
        "strict_collapse": Finding(
            **both(
                lambda of: (
                    f"one class on {_count(of['Strict Penalty'], _of_one_class)}, AUC at most {COLLAPSED} on "
                    f"{_count(of['Strict Penalty'], lambda row: row['auc'] <= COLLAPSED)}"
                )
            ),
            verdict=in_all(sum(map(_of_one_class, part["Strict Penalty"])), n),
        ),
        **{
            f"strict_{name}": Finding(
                **both(lambda of, name=name: f"{_lost(of, name):.1f} %"),
                verdict=at_least(_lost(part, name), about(published_number("loan", f"strict_{name}"))),
            )
            for name in ("auc", "ap")
        },
        "satisfied": Finding(
            measured=f"{_satisfied(part)}, in exact arithmetic",
            stored=_satisfied(theirs),
            verdict=in_all(sum(row["satisfied"] for row in three), len(three)),
        ),
        "exact": Finding(
            measured=f"{_count(promised, lambda row: row['satisfied'])} in exact arithmetic",
            stored=f"{_count(stored_promised, lambda row: row['satisfied'])}, largest gap "
            f"{max(row['gap'] for row in stored_promised):.5f}",
            verdict=in_all(sum(row["satisfied"] for row in promised), len(promised)),
        ),
        "no_lambda": Finding(
            measured=f"chosen {_chosen(results)}; satisfied and not degenerate (AUC above {COLLAPSED}) on "
            f"{len(usable)} of {n} test sets, mean AUC {_mean([row['auc'] for row in part['Penalty']]):.4f}",
            stored="not to be told: the search read its log with two columns exchanged",
            verdict=in_all(n - len(usable), n),
        ),
    }


def _of_one_class(row: Row) -> bool:
    """Whether everyone is put into the same class: all of one are wrong, and none of the other."""
    return {row["error_repaid"], row["error_default"]} == {0.0, 1.0}


def _lost(of: dict[str, list[Row]], name: str) -> float:
    """By how many percent Strict Penalty is below F-Layer."""
    return -gain(of["Strict Penalty"], of["F-Layer"], name)


def _means(of: dict[str, list[Row]], name: str) -> str:
    return " against ".join(f"{_mean([row[name] for row in of[method]]):.4f}" for method in ("F-Layer", "Projection"))


def _satisfied(of: dict[str, list[Row]]) -> str:
    return ", ".join(f"{method} {_count(of[method], lambda row: row['satisfied'])}" for method in THREE)


def _count(rows: Sequence[Row], holds: Callable[[Row], bool]) -> str:
    return f"{sum(map(holds, rows))} of {len(rows)}"


def _chosen(results: Sequence[Row]) -> str:
    counts = Counter(result["strength"] for result in results if result["trials"] and result["network"] == "small")
    return ", ".join(f"{strength:g} on {number}" for strength, number in sorted(counts.items()))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
