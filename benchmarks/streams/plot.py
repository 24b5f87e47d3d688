"""The figures: gaps over time, and what a stream costs in change and in time."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np

from streams.gaps import batch_ends

matplotlib.use("Agg")

# Okabe and Ito's palette, told apart with any kind of colour vision; lines also differ by style.
STYLES = {
    "per-batch projection": ("#E69F00", "-."),
    "fairness-training, online step": ("#D55E00", ":"),
    "Algorithm 1": ("#0072B2", "--"),
    "ledger": ("#000000", "-"),
    "ledger, warm start": ("#009E73", "-"),
}
STORES = {"memory": ("#000000", "o"), "SQLite": ("#0072B2", "s"), "PostgreSQL": ("#D55E00", "^")}
GRID = {"which": "major", "color": "#E2E2E2", "linewidth": 0.8}
POINTS = 400  # of a line
SHOWN = (4, 16, 64)
LOWEST = 5e-4  # gaps below are of no interest


def gaps_over_time(path: Path, drawn: Sequence[dict[str, Any]]) -> None:
    """Pooled gap and average gap of batches, stationary above, drifting below."""
    batches = [batch for batch in SHOWN if any(one["scenario"].batch == batch for one in drawn)]
    kinds = [(what, drifts) for drifts in (False, True) for what in ("pooled", "average")]
    size = (4.2 * len(batches) + 0.6, 10.5)
    figure, grid = plt.subplots(len(kinds), len(batches), figsize=size, layout="constrained", squeeze=False)
    handles: dict[str, Any] = {}
    for row, (what, drifts) in zip(grid, kinds, strict=True):
        for axes, batch in zip(row, batches, strict=True):
            for one in drawn:
                scenario = one["scenario"]
                if (scenario.batch, scenario.drifts) != (batch, drifts):
                    continue
                colour, line = STYLES[one["method"]]
                time = batch_ends(len(one[what]) * batch, batch)
                at = np.unique(np.geomspace(1, len(time), POINTS).astype(int)) - 1
                width = 2.4 if one["method"].startswith("ledger") else 1.6
                handles[one["method"]] = axes.plot(
                    time[at], one[what][at], line, color=colour, linewidth=width, label=one["method"]
                )[0]
                handles["tolerance"] = axes.axhline(
                    scenario.tolerance, color="#9A9A9A", linewidth=1.2, label="tolerance", zorder=1
                )
            axes.set(xscale="log", yscale="log")
            axes.set_ylim(bottom=max(axes.get_ylim()[0], LOWEST))
            axes.set_title(f"b = {batch}, {'drifting' if drifts else 'stationary'}", loc="left", fontsize=10)
            axes.grid(**GRID)
            axes.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel("pooled gap" if what == "pooled" else "average gap of batches")
    for axes in grid[-1]:
        axes.set_xlabel("samples so far")
    figure.suptitle("What an auditor measures (pooled) and what Algorithm 1 controls (average)", x=0.01, ha="left")
    figure.legend(handles=list(handles.values()), loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def cost(
    path: Path,
    rows: Sequence[dict[str, Any]],
    shown: tuple[int, bool],  # attributes and box of the streams that all methods decided
) -> None:
    """Change over the optimum's by batch size."""
    figure, axes = plt.subplots(figsize=(6.4, 4.8), layout="constrained")
    for method, (colour, line) in STYLES.items():
        here = [row for row in rows if row["method"] == method and (row["attributes"], row["box"]) == shown]
        here = [row for row in here if not row["drifts"]]
        # One at a time a batch has no gap, and only the ledger equalises anything.
        sizes = sorted({row["batch"] for row in here if row["batch"] > 1 or method.startswith("ledger")})
        if sizes:
            ratios = [mean(row["over_optimum"] for row in here if row["batch"] == size) for size in sizes]
            axes.plot(sizes, ratios, line, marker="o", markersize=4, color=colour, linewidth=2, label=method)
    axes.axhline(1.0, color="#9A9A9A", linewidth=1.2, label="optimum in hindsight")
    axes.set(xscale="log", xlabel="batch size", ylabel="mean squared change over the optimum's")
    axes.set_title("Change, whole stationary streams, two attributes, box", loc="left", fontsize=11)
    _finish(figure, axes, sorted({row["batch"] for row in rows}), path)


def speed(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Updates per second by store and batch size."""
    figure, axes = plt.subplots(figsize=(6.4, 4.8), layout="constrained")
    for store, (colour, marker) in STORES.items():
        points = sorted((row["batch"], row["per_second"]) for row in rows if row["store"] == store)
        if points:
            axes.plot(*zip(*points, strict=True), marker=marker, color=colour, linewidth=2, label=store)
    axes.set(xscale="log", yscale="log", xlabel="batch size", ylabel="updates per second")
    axes.set_title("Speed, two attributes, box; durable where stored", loc="left", fontsize=11)
    _finish(figure, axes, sorted({row["batch"] for row in rows}), path)


def _finish(figure: Any, axes: Any, sizes: Sequence[int], path: Path) -> None:
    """What both figures by batch size share."""
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.grid(**GRID)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=150)
    plt.close(figure)
