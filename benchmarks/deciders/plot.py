"""The figure: accuracy against the gap of rates on test rows, a panel for each data set and a line for each method."""

from pathlib import Path
from statistics import mean, stdev
from typing import Any

import matplotlib
import matplotlib.pyplot as plt

from deciders.catalogue import DECIDERS

matplotlib.use("Agg")

# Okabe and Ito's palette, told apart with any kind of colour vision; markers differ too.
STYLES = (
    *(("#000000", "o", "-"), ("#000000", "s", "--"), ("#000000", "^", ":")),
    *(("#0072B2", "D", "-"), ("#E69F00", "v", "-"), ("#009E73", "P", "-"), ("#56B4E9", "X", "-")),
    *(("#CC79A7", "*", "-"), ("#D55E00", "h", "-")),
)
LOWEST = -0.03  # what lies below, as a method that maximises something else does, is left out


def draw(path: Path, points: dict[tuple[str, str, float | None], list[dict[str, Any]]], data: list[str]) -> None:
    """Draw what each method loses against the same trees without a constraint, with standard errors over splits."""
    figure, panels = plt.subplots(2, 2, figsize=(11, 8), layout="constrained")
    drawn = {}
    for axes, name in zip(panels.flat, data, strict=True):
        for decider, (colour, marker, line) in zip(DECIDERS, STYLES, strict=True):
            found = []
            for (of, method, _), rows in points.items():
                lost = [-row["lost"] for row in rows if row["lost"] is not None]
                if (of, method) == (name, decider.name) and len(lost) > 1 and mean(lost) > LOWEST:
                    gap = mean(row["gap"] for row in rows if row["gap"] is not None)
                    found.append((gap, mean(lost), stdev(lost) / len(lost) ** 0.5))
            if found:
                x, y, error = zip(*found, strict=True)
                width = 2.2 if decider.ours else 1.2
                shown = axes.errorbar(
                    x, y, error, color=colour, marker=marker, linestyle=line, linewidth=width, elinewidth=0.6
                )
                drawn.setdefault(decider.name, shown)
        axes.axhline(0.0, color="#9A9A9A", linewidth=0.8)
        axes.set_title(name, loc="left", fontsize=11)
        axes.set(xlabel="gap of rates on test rows", ylabel="accuracy, less that without a constraint")
        axes.set_xlim(left=0.0)
        axes.grid(color="#E5E5E5", linewidth=0.7)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(list(drawn.values()), list(drawn), loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    figure.savefig(path, dpi=130)
    plt.close(figure)
