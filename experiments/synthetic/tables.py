"""Tables of the synthetic experiment, from stored results alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from experiments.datasets import synthetic_factors
from experiments.synthetic.figures import draw
from experiments.synthetic.inference import PROJECTED, RAW, REGIMES
from experiments.synthetic.scores import (
    VIOLATION,
    Score,
    aggregate,
    by_set,
    lines,
    measured_scores,
    published_scores,
    rank_rows,
    ranks,
)
from experiments.synthetic.settings import GENERATORS, Settings
from experiments.synthetic.summary import write_summary
from experiments.tables import write_csv

Row = dict[str, Any]
Results = Sequence[dict[str, Any]]


def sources(results: Results) -> dict[str, list[Score]]:
    """The scores to compare, by where they come from."""
    return {
        "published": published_scores(),
        "measured": measured_scores(results),
        "measured, ledger": measured_scores(results, ledger=True),
    }


def summarise(results: Results, settings: Settings, folder: Path) -> None:
    """Write all tables and figures."""
    scores = sources(results)
    reached = well_rows(results)
    shown = {
        "ranks": ("Ranks, violations and losses", [r for name, some in scores.items() for r in rank_rows(name, some)]),
        "aggregates": ("What is said of F-Layer", aggregate_rows(scores)),
        "promises": ("Promises, checked in exact arithmetic", promise_rows(results)),
        "streams_summary": ("Small batches", stream_summary(results)),
        "attainable_summary": ("What can be reached: anchors and well-trained networks", attainable_summary(reached)),
        "corrected": ("The corrected generator, trained in large batches", corrected_rows(results)),
    }
    for name, (_, rows) in shown.items():
        write_csv(folder / f"{name}.csv", rows)
    for regime in REGIMES:
        write_csv(folder / f"sets_{regime.replace('/', '_')}.csv", set_rows(scores, regime))
    write_csv(folder / "streams.csv", stream_rows(results))
    write_csv(folder / "attainable.csv", reached)
    write_csv(folder / "strengths.csv", strength_rows(results))
    write_summary(folder / "summary.md", results, settings, dict(shown.values()))
    draw(results, scores, settings, folder)


def aggregate_rows(scores: dict[str, list[Score]]) -> list[Row]:
    """What is said of F-Layer, by source and regime."""
    return [
        {"source": name, "regime": regime, **aggregate(some, regime)}
        for name, some in scores.items()
        for regime in REGIMES
    ]


def corrected_rows(results: Results) -> list[Row]:
    """Ranks on the corrected sets, and on the published ones of the same numbers."""
    compared = {line["set"] for line in lines(results, "corrected")}
    rows: list[Row] = []
    for generator in GENERATORS:
        for ledger in (False, True):
            some = [score for score in measured_scores(results, ledger, generator) if score.set in compared]
            regimes = REGIMES[1:2] if ledger else REGIMES[:2]
            rows += rank_rows(f"{generator}{', ledger' if ledger else ''}", some, regimes)
    return rows


def factor_columns(index: int) -> Row:
    """What distinguishes a set."""
    factors = synthetic_factors(index)
    return {
        "set": index,
        "share": factors.share,
        "relevance": factors.relevance,
        "bias": factors.bias,
        "noise": factors.noise,
        "bounds": "tight" if factors.bounds[0] == 0 else "loose",
        "structure": factors.structure,
    }


def set_rows(scores: dict[str, list[Score]], regime: str) -> list[Row]:
    """The published table of a regime, with the measured values beside."""
    sets = {source: by_set(some, regime) for source, some in scores.items()}
    rows = []
    for index, methods in sets["measured"].items():
        for method in methods:
            row = {**factor_columns(index), "method": method}
            for source, found in sets.items():
                score, place = found[index][method], ranks(found[index]).get(method)
                row |= {f"{source}: MSE": score.mse, f"{source}: gap": score.gap}
                row |= {f"{source}: violates": score.violates, f"{source}: rank": place}
            rows.append(row)
    return rows


def promise_rows(results: Results) -> list[Row]:
    """Of the outputs that promise something, how many keep it: every batch, or the pool after every batch."""
    kept: dict[tuple[str, str, str], list[bool]] = {}
    for result in results:
        for row in result["rows"]:
            if row["promise_kept"] is not None:
                who = row.get("method") or row["model"]
                kept.setdefault((who, row["inference"], row.get("regime") or row["batch"]), []).append(
                    row["promise_kept"]
                )
    return [
        {"method": who, "inference": how, "batches": where, "outputs checked": len(every), "kept": sum(every)}
        for (who, how, where), every in kept.items()
    ]


def stream_rows(results: Results) -> list[Row]:
    """Small batches, set by set."""
    columns = ("mse", "gap", "within", "always_within", "mean_batch_gap", "largest_batch_gap", "batches_complete")
    return [
        {name: line[name] for name in ("set", "regime", "order", "method", "inference", *columns)}
        for line in lines(results)
        if line["regime"].endswith("small") and line["inference"] != RAW
    ]


def stream_summary(results: Results) -> list[Row]:
    """The same over all sets."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in stream_rows(results):
        found.setdefault(tuple(row[name] for name in ("regime", "order", "method", "inference")), []).append(row)
    return [
        dict(zip(("regime", "order", "method", "inference"), key, strict=True))
        | {
            "mean MSE": mean(row["mse"] for row in rows),
            "largest pooled gap": max(abs(row["gap"]) for row in rows),
            "sets within the tolerance": sum(row["within"] for row in rows),
            "sets always within it": sum(row["always_within"] for row in rows),
            "violations": sum(abs(row["gap"]) > VIOLATION for row in rows),
            "average batch gap, mean": mean(row["mean_batch_gap"] for row in rows),
            "average batch gap, largest": max(row["mean_batch_gap"] for row in rows),
            "sets": len(rows),
        }
        for key, rows in found.items()
    ]


def well_rows(results: Results) -> list[Row]:
    """Anchors and well-trained networks, set by set."""
    columns = ("model", "inference", "batch", "mse", "gap", "within", "mean_batch_gap")
    return [
        {"generator": result["generator"], **factor_columns(result["set"]), **{name: row[name] for name in columns}}
        for result in results
        for row in result["rows"]
        if "model" in row
    ]


def attainable_summary(rows: Iterable[Row]) -> list[Row]:
    """Mean over the sets, and how far above the lower bound: the truth, projected."""
    rows = list(rows)
    bound = {
        (row["generator"], row["set"]): row["mse"]
        for row in rows
        if row["model"] == "truth" and row["inference"] == PROJECTED
    }
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if row["model"] != "truth" or row["inference"] == PROJECTED:
            found.setdefault((row["generator"], row["model"], row["inference"], row["batch"]), []).append(row)
    return [
        dict(zip(("generator", "model", "inference", "batch"), key, strict=True))
        | {
            "mean MSE": mean(row["mse"] for row in some),
            "mean % over the bound": mean(100 * (row["mse"] / bound[row["generator"], row["set"]] - 1) for row in some),
            "mean absolute gap": mean(abs(row["gap"]) for row in some),
            "largest absolute gap": max(abs(row["gap"]) for row in some),
        }
        for key, some in sorted(found.items(), key=lambda item: GENERATORS.index(item[0][0]))
    ]


def strength_rows(results: Results) -> list[Row]:
    """Every strength tried for the penalty."""
    return [
        {"set": result["set"], "strength": strength, "loss": loss, "gap": gap, "satisfied": satisfied}
        | {"chosen": strength == result["strength"]}
        for result in results
        for strength, loss, gap, satisfied in result.get("trials", ())
    ]
