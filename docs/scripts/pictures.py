"""Draw the picture of the README: one batch before and after the layer, and a stream under three policies.

python docs/scripts/pictures.py
"""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np

from fairlayer import MeanParity, Stream, project

FOLDER = Path(__file__).resolve().parents[1] / "pictures"
TOLERANCE = 0.02
SAMPLES, BATCH = 20_000, 4


class Theme(NamedTuple):
    """Colours on a light or a dark page; the two groups differ in lightness too."""

    name: str
    text: str
    faint: str
    first: str
    second: str
    fair: str
    other: str
    paper: str


THEMES = (
    Theme("light", "#222222", "#8a8a8a", "#0072b2", "#e69f00", "#009e73", "#b0528d", "#ffffff"),
    Theme("dark", "#e8e8e8", "#9a9a9a", "#56b4e9", "#e69f00", "#2fc79a", "#d98cb9", "#0d1117"),
)


class Scene(NamedTuple):
    """All that is drawn."""

    raw: np.ndarray  # (n,) scores of a network
    fair: np.ndarray  # (n,) the same after the layer
    groups: np.ndarray  # (n,)
    gaps: dict[str, np.ndarray]  # policy -> pooled gap after every batch


def scene(samples: int = SAMPLES, seed: int = 7) -> Scene:
    """Scores of two groups, three in ten in the second; projected as a batch, and streamed four at a time."""
    random = np.random.default_rng(seed)
    groups = (random.random(samples) < 0.3).astype(np.int64)
    raw = 1.0 / (1.0 + np.exp(-random.normal(0.7 - 1.3 * groups, 1.1)))
    fair = project(raw, groups, [MeanParity(TOLERANCE)], bounds=(0.0, 1.0)).value
    starts = range(0, samples, BATCH)
    batches = [slice(start, start + BATCH) for start in starts]
    each = np.concatenate([project(raw[b], groups[b], [MeanParity(TOLERANCE)], (0.0, 1.0)).value for b in batches])
    gaps = {"no layer": _pooled(raw, groups), "each batch projected": _pooled(each, groups)}
    for label, policy in (("Algorithm 1", "primal-dual"), ("ledger", "ledger")):
        stream = Stream([MeanParity(TOLERANCE)], bounds=(0.0, 1.0), policy=policy)  # type: ignore[arg-type]
        emitted = np.concatenate([stream.update(raw[b], groups[b]).value for b in batches])
        gaps[label] = _pooled(emitted, groups)
    return Scene(raw, fair, groups, gaps)


def gap(scores: np.ndarray, groups: np.ndarray) -> float:
    """The difference of the two group means."""
    return float(abs(scores[groups == 0].mean() - scores[groups == 1].mean()))


def _pooled(scores: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The gap over all decisions so far, after every batch; nan until both groups have been seen."""
    sums = [np.cumsum(np.where(groups == g, scores, 0.0)) for g in (0, 1)]
    counts = [np.cumsum(groups == g) for g in (0, 1)]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.abs(sums[0] / counts[0] - sums[1] / counts[1])[BATCH - 1 :: BATCH]


def draw(scene: Scene, theme: Theme, path: Path) -> None:
    """Draw both halves of the picture."""
    from matplotlib import pyplot as plt

    settings = {
        "svg.hashsalt": "fairlayer",
        "font.family": "DejaVu Sans",
        "font.size": 10,
        "text.color": theme.text,
        "axes.labelcolor": theme.text,
        "xtick.color": theme.faint,
        "ytick.color": theme.faint,
        "axes.edgecolor": theme.faint,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with mpl.rc_context(settings):
        figure = plt.figure(figsize=(11, 4.4), facecolor=theme.paper)
        grid = figure.add_gridspec(
            2, 2, width_ratios=(1, 1.35), wspace=0.13, hspace=0.3, left=0.02, right=0.845, top=0.86, bottom=0.12
        )
        above, below, right = (figure.add_subplot(part) for part in (grid[0, 0], grid[1, 0], grid[:, 1]))
        _distribution(above, scene.raw, scene.groups, theme, "what the network says")
        _distribution(below, scene.fair, scene.groups, theme, "after the layer")
        above.tick_params(labelbottom=False)
        below.set_xlabel("score")
        _stream(right, scene.gaps, theme)
        figure.text(0.02, 0.94, "A batch of 20,000", weight="bold", size=12)
        figure.text(0.405, 0.94, "The same 20,000 decisions, four at a time", weight="bold", size=12)
        for axes in (above, below, right):
            axes.set_facecolor(theme.paper)
        figure.savefig(path, metadata={"Date": None}, facecolor=theme.paper)
        plt.close(figure)


def _distribution(axes: Any, scores: np.ndarray, groups: np.ndarray, theme: Theme, caption: str) -> None:
    """Histograms of both groups, and how far apart their means are."""
    edges = np.linspace(0.0, 1.0, 41)
    highest = 0.0
    means = []
    for group, colour in zip((0, 1), (theme.first, theme.second), strict=True):
        density, _ = np.histogram(scores[groups == group], edges, density=True)
        axes.stairs(density, edges, fill=True, alpha=0.28, color=colour)
        axes.stairs(density, edges, color=colour, linewidth=1.2)
        highest = max(highest, np.sort(density)[-3])
        means.append(float(scores[groups == group].mean()))
    top = 1.75 * highest
    for mean, colour in zip(means, (theme.first, theme.second), strict=True):
        axes.plot([mean, mean], [0, 0.86 * top], color=colour, linewidth=2)
    found = gap(scores, groups)
    left, right = sorted(means)
    if found > 2 * TOLERANCE:
        axes.annotate("", (left, 0.8 * top), (right, 0.8 * top), arrowprops={"arrowstyle": "<->", "color": theme.text})
    axes.text(right + 0.015, 0.83 * top, f"means {found:.3f} apart", va="center", size=10)
    axes.text(0.0, 0.9 * top, caption, size=10, style="italic", color=theme.faint)
    axes.set(xlim=(-0.01, 1.01), ylim=(0, top), yticks=[])
    axes.spines["left"].set_visible(False)


def _stream(axes: Any, gaps: dict[str, np.ndarray], theme: Theme) -> None:
    """Pooled gaps against the number of decisions, with the tolerance."""
    decisions = BATCH * np.arange(1, len(next(iter(gaps.values()))) + 1)
    shown = np.unique(np.geomspace(3, len(decisions), 420).astype(int)) - 1
    axes.axhspan(0, TOLERANCE, color=theme.fair, alpha=0.16, linewidth=0)
    styles = {  # colour, width, dashes, and how far up its label goes so that no two meet
        "no layer": (theme.faint, 1.3, ":", 0),
        "each batch projected": (theme.text, 1.2, "--", -9),
        "Algorithm 1": (theme.other, 1.7, "-", 17),
        "ledger": (theme.fair, 2.6, "-", -4),
    }
    for label, (colour, width, dashes, raised) in styles.items():
        values = gaps[label][shown]
        axes.plot(decisions[shown], values, color=colour, linewidth=width, linestyle=dashes)
        axes.annotate(
            f"{label}\n{values[-1]:.3f} apart",
            (decisions[shown][-1], values[-1]),
            xytext=(7, raised),
            textcoords="offset points",
            va="center",
            color=colour,
            size=9.5,
            weight="bold" if label == "ledger" else "normal",
        )
    axes.text(2500, TOLERANCE + 0.005, f"tolerance {TOLERANCE:g}", color=theme.fair, size=9)
    axes.set(xscale="log", xlim=(12, decisions[-1]), ylim=(0, 0.32), xlabel="decisions so far")
    axes.set_title("difference of group means over all decisions so far", size=10, loc="left", color=theme.text)


def main(folder: Path = FOLDER) -> None:
    """Draw the picture for both kinds of page."""
    mpl.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    drawn = scene()
    for theme in THEMES:
        draw(drawn, theme, folder / f"fair-{theme.name}.svg")
    print(f"gaps of the batch: {gap(drawn.raw, drawn.groups):.3f}, {gap(drawn.fair, drawn.groups):.3f}")
    for label, values in drawn.gaps.items():
        above = int((values[~np.isnan(values)] > TOLERANCE).sum())
        print(f"{label}: {values[-1]:.4f} at the end, above the tolerance after {above} of {len(values)} batches")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
