"""The page that says what was run and what it shows, in figures computed from the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from experiments.datasets import synthetic_factors
from experiments.synthetic.inference import ALGORITHM_1, LEDGER, PLAIN, PROJECTED, RAW, REGIMES
from experiments.synthetic.scores import VIOLATION, by_set, lines, measured_scores, ranks
from experiments.synthetic.settings import Settings
from experiments.tables import markdown

Results = Sequence[dict[str, Any]]


def write_summary(
    path: Path, results: Results, settings: Settings, tables: Mapping[str, Sequence[Mapping[str, Any]]]
) -> None:
    """Write the page; tables: by title."""
    parts = ["# Synthetic regression", _settings(settings), "## What it shows", _conclusions(results, settings)]
    for title, rows in tables.items():
        parts += [f"## {title}", markdown(rows)]
    path.write_text("\n\n".join(parts) + "\n")


def _settings(settings: Settings) -> str:
    large, small = settings.train_batch
    widths = ", ".join(map(str, settings.hidden))
    return (
        f"{len(settings.sets)} sets of {settings.train_rows} training, {settings.validation_rows} validation and "
        f"{settings.test_rows} test rows; hidden layers of {widths}; SGD with rate {settings.learning_rate:g}, at most "
        f"{settings.epochs[0]} epochs in large and {settings.epochs[1]} in small batches, {settings.epoch} epoch; "
        f"b_tau {settings.b_tau}. large: training in batches of {large}, inference in batches of "
        f"{settings.infer_batch[0]} (published: 2000 and 2000). small: {small} and {settings.infer_batch[1]} "
        f"(published: 256 and 16). A pooled gap above {VIOLATION} counts as a violation. The published figures come "
        "from other draws of the sets, so they compare as a distribution, not set by set."
    )


def _conclusions(results: Results, settings: Settings) -> str:
    """Sentences with figures in them."""
    said = [
        _attainable(results),
        _bounds(results),
        _group_left_out(results),
        _small_batches(results, settings),
    ]
    return "\n".join(f"- {sentence}" for sentence in said)


def _attainable(results: Results) -> str:
    loss = partial(_by_set, results, "mse", "published")
    bound = loss("truth", PROJECTED)
    first = by_set(measured_scores(results), REGIMES[0])
    reached = {
        "Projection, trained as in the paper in large batches": {
            i: found["Projection"].mse for i, found in first.items()
        },
        "F-Layer, trained so": {i: found["F-Layer"].mse for i, found in first.items()},
        "a network trained with Adam to its best epoch and then projected": loss("network", PROJECTED),
        "F-Layer trained on from there": loss("F-Layer from it", PROJECTED),
        "least squares, projected": loss("least squares", PROJECTED),
        "a constant": loss("constant", RAW),
    }
    listed = "; ".join(f"{name}, {_over(values, bound)}" for name, values in reached.items())
    return (
        f"The projected truth, which nothing fair can beat, has a mean loss of {mean(bound.values()):.3f}. Above it "
        f"are, each in the mean over the sets of the percentage: {listed}."
    )


def _bounds(results: Results) -> str:
    """Loose and tight bounds apart: a batch whose raw outputs all lie beyond a bound has no gradient."""
    sets = by_set(measured_scores(results), REGIMES[0])
    said = []
    for name, low in (("loose", -3.5), ("tight", 0.0)):
        some = [methods for index, methods in sets.items() if synthetic_factors(index).bounds[0] == low]
        first = sum(ranks(methods).get("F-Layer") == 1 for methods in some)
        constant = sum(abs(m["F-Layer"].mse / m["Strict Penalty"].mse - 1) <= 0.01 for m in some)
        said.append(
            f"with {name} bounds F-Layer is first on {first} of {len(some)} sets, and within 1 % of Strict Penalty, "
            f"which predicts a constant, on {constant}"
        )
    return (
        f"In large batches, {'; '.join(said)}. Where all raw outputs of a batch fall below the lower bound, the layer "
        "passes no gradient on, and training ends there. Each set has initial weights of its own, which decide "
        "whether that happens at the outset."
    )


def _group_left_out(results: Results) -> str:
    loss, gap = (partial(_by_set, results, column) for column in ("mse", "gap"))
    blind = "least squares without the group"
    bound = loss("corrected", "truth", PROJECTED)
    return (
        "In the published generator features do not depend on the group: least squares without the group column has a "
        f"mean gap of {mean(gap('published', blind, RAW).values()):.4f}. In the corrected one it has "
        f"{mean(gap('corrected', blind, RAW).values()):.4f}, and is "
        f"{_over(loss('corrected', blind, PROJECTED), bound)} above the bound once projected, least squares with the "
        f"group column {_over(loss('corrected', 'least squares', PROJECTED), bound)}, both in the mean over the sets "
        "of the percentage."
    )


def _over(values: Mapping[int, float], bound: Mapping[int, float]) -> str:
    """As in the table of what can be reached: the mean over the sets of the percentage above the bound."""
    return f"{mean(100 * (value / bound[index] - 1) for index, value in values.items()):.1f} %"


def _by_set(results: Results, column: str, generator: str, model: str, how: str) -> dict[int, float]:
    """A column's absolute value in every set."""
    return {
        result["set"]: abs(row[column])
        for result in results
        if result["generator"] == generator
        for row in result["rows"]
        if row.get("model") == model and row["inference"] == how
    }


def _small_batches(results: Results, settings: Settings) -> str:
    found = [line for line in lines(results) if line["order"] == PLAIN]

    def worst(method: str, how: str) -> tuple[float, int]:
        gaps = [abs(line["gap"]) for line in found if line["method"] == method and line["inference"] == how]
        return max(gaps), sum(gap > settings.tolerance for gap in gaps)

    alone, many = worst("Projection", PROJECTED)
    online, some = worst("F-Layer", ALGORITHM_1)
    ledger, none = worst("F-Layer", LEDGER)
    runs = len({(line["set"], line["regime"]) for line in found})
    return (
        f"Rows that arrive as they come, {settings.infer_batch[1]} at a time, in batches that differ in their shares: "
        f"Projection keeps the tolerance of {settings.tolerance:g} in every batch; over all rows the gap exceeds it in "
        f"{many} of {runs} runs, the largest is {alone:.3f}. F-Layer under Algorithm 1 exceeds it in {some}, the "
        f"largest is {online:.3f}; under the ledger in {none}, the largest is {ledger:.4f}."
    )
