"""The look that all figures share: size, colours by method, and where they are saved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fairlayer.extras import needs

COLOURS = {
    "F-Layer": "#1b6ca8",
    "Projection": "#e07a1f",
    "Penalty": "#3c9d4e",
    "Strict Penalty": "#b23a48",
    "Unconstrained": "#6b6b6b",
}
STYLE = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "figure.dpi": 120,
    "font.size": 9,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "fairlayer",  # the same figure gives the same file
}


@contextmanager
def figure(path: Path, columns: int = 1, rows: int = 1, width: float = 4.2, height: float = 3.2) -> Iterator[Any]:
    """Axes of a figure, an array where there are several, saved to `path` (.svg or .png) at the end."""
    with needs("Drawing a figure", "matplotlib"):
        import matplotlib
        from matplotlib.figure import Figure
    with matplotlib.rc_context(STYLE):
        drawing = Figure(figsize=(width * columns, height * rows))
        yield drawing.subplots(rows, columns)
        metadata = {"Date": None} if path.suffix == ".svg" else None
        drawing.savefig(path, metadata=metadata)


def band(axes: Any, x: Sequence[float], curves: Any, label: str, colour: str | None = None) -> None:
    """The mean of several curves, given as rows on the same points x, within one standard deviation."""
    table = np.asarray(curves, dtype=float)
    mean, deviation = table.mean(axis=0), table.std(axis=0, ddof=1) if len(table) > 1 else np.zeros(table.shape[1])
    colour = colour or COLOURS.get(label)
    axes.plot(x, mean, label=label, color=colour)
    axes.fill_between(x, mean - deviation, mean + deviation, color=colour, alpha=0.15, linewidth=0)


def boxes(axes: Any, values: dict[str, Sequence[float]], colours: dict[str, str] | None = None) -> None:
    """One box per name; long names in several lines."""
    drawn = axes.boxplot(list(values.values()), patch_artist=True, widths=0.55, medianprops={"color": "black"})
    axes.set_xticks(range(1, len(values) + 1), [_in_lines(name) for name in values])
    for name, patch in zip(values, drawn["boxes"], strict=True):
        patch.set_facecolor((colours or COLOURS).get(name, "#bbbbbb"))
        patch.set_alpha(0.7)


def _in_lines(name: str) -> str:
    return name.replace(" ", "\n").replace("Unconstrained", "Uncon-\nstrained")
