"""Figures of the synthetic experiment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.figures import COLOURS, figure
from experiments.synthetic.inference import ALGORITHM_1, LEDGER, PLAIN, PROJECTED, RAW, REGIMES, STRATIFIED
from experiments.synthetic.scores import METHODS, VIOLATION, Score, by_set, lines, ranks, relative_losses
from experiments.synthetic.settings import GENERATORS, Settings

Results = Sequence[dict[str, Any]]
Scores = dict[str, list[Score]]  # by where they come from

RANK_COLOURS = {"violation": "black", "rank 1": "#1b6ca8", "2": "#7fb2d6", "3": "#f3d9b1", "4": "#e07a1f"}
SOURCE_COLOURS = ("#dddddd", "#7fb2d6", "#1b6ca8")
STREAMS = {
    ("F-Layer", ALGORITHM_1): ("F-Layer, Algorithm 1", "x", COLOURS["F-Layer"]),
    ("F-Layer", LEDGER): ("F-Layer, ledger", "o", COLOURS["F-Layer"]),
    ("Projection", PROJECTED): ("Projection, each batch", "x", COLOURS["Projection"]),
    ("Projection", LEDGER): ("Projection, ledger", "o", COLOURS["Projection"]),
}
REACHED = {  # model and inference of what is drawn in attainable.svg
    ("constant", RAW): ("constant", "_", "#6b6b6b"),
    ("least squares without the group", PROJECTED): ("least squares without the group, projected", "+", "#6b6b6b"),
    ("network", PROJECTED): ("well-trained network, projected", "s", COLOURS["Projection"]),
    ("F-Layer from it", PROJECTED): ("F-Layer from there", "o", COLOURS["F-Layer"]),
    ("least squares", PROJECTED): ("least squares, projected", "x", "#3c9d4e"),
    ("truth", PROJECTED): ("lower bound: the truth, projected", "_", "black"),
}


def draw(results: Results, scores: Scores, settings: Settings, folder: Path) -> None:
    """All figures, from the results and the scores by source."""
    _relative_losses(scores, folder / "relative_loss.svg")
    _ranks(scores, folder / "ranks.svg")
    _gaps(scores["measured"], settings, folder / "gaps.svg")
    _streams(results, settings, folder / "streams.svg")
    _attainable(results, scores["measured"], folder / "attainable.svg")


def _relative_losses(scores: Scores, path: Path) -> None:
    """Box plots of percent over F-Layer's loss, published and measured side by side."""
    with figure(path, columns=len(REGIMES), height=3.6) as axes:
        for regime, panel in zip(REGIMES, axes, strict=True):
            for place, (source, some) in enumerate(scores.items()):
                values = list(relative_losses(some, regime).values())
                drawn = panel.boxplot(
                    values,
                    positions=[4 * k + place for k in range(len(values))],
                    widths=0.8,
                    patch_artist=True,
                    medianprops={"color": "black"},
                    flierprops={"markersize": 3},
                )
                for patch in drawn["boxes"]:
                    patch.set_facecolor(SOURCE_COLOURS[place])
                drawn["boxes"][0].set_label(source)
            panel.axhline(0, color="black", linewidth=0.8)
            panel.set_xticks([4 * k + 1 for k in range(len(METHODS) - 1)], METHODS[1:])
            panel.set_title(regime)
        axes[0].set_ylabel("loss over F-Layer's, %")
        axes[0].legend(fontsize=7)


def _ranks(scores: Scores, path: Path) -> None:
    """The rank of every method on every set; black where it violates the constraint."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    with figure(path, columns=len(REGIMES), rows=len(scores), width=5.2, height=1.3) as axes:
        for (source, some), row in zip(scores.items(), axes, strict=True):
            for regime, panel in zip(REGIMES, row, strict=True):
                sets = by_set(some, regime)
                ranked = {index: ranks(methods) for index, methods in sets.items()}
                table = np.array([[found.get(method, 0) for found in ranked.values()] for method in METHODS])
                panel.imshow(table, cmap=ListedColormap(list(RANK_COLOURS.values())), vmin=0, vmax=4, aspect="auto")
                panel.set_yticks(range(len(METHODS)), METHODS, fontsize=6)
                panel.set_xticks(range(0, len(sets), 4), list(sets)[::4], fontsize=6)
                panel.grid(visible=False)
                panel.set_title(f"{source}, {regime}", fontsize=7)
        _key(axes[0][0], [Patch(color=colour, label=name) for name, colour in RANK_COLOURS.items()])


def _gaps(scores: list[Score], settings: Settings, path: Path) -> None:
    """Pooled gaps of every method, and what counts as a violation."""
    with figure(path, columns=len(REGIMES)) as axes:
        for regime, panel in zip(REGIMES, axes, strict=True):
            for place, method in enumerate(METHODS):
                found = by_set(scores, regime).values()
                gaps = np.maximum([methods[method].gap or 0.0 for methods in found], 1e-8)
                spread = place + np.linspace(-0.3, 0.3, len(gaps))
                panel.scatter(spread, gaps, s=9, color=COLOURS[method])
            panel.axhline(settings.tolerance, color="black", linewidth=0.8)
            panel.axhline(VIOLATION, color="black", linewidth=0.8, linestyle=":")
            panel.set_yscale("log")
            panel.set_xticks(range(len(METHODS)), METHODS, fontsize=7)
            panel.set_title(regime)
        axes[0].set_ylabel("pooled |gap|")


def _streams(results: Results, settings: Settings, path: Path) -> None:
    """Pooled gaps of small batches by set: rows that arrive in equal shares, or as they come."""
    found = lines(results)
    with figure(path, columns=2, rows=2) as axes:
        for order, row in zip((STRATIFIED, PLAIN), axes, strict=True):
            for regime, panel in zip(REGIMES[1:], row, strict=True):
                for (method, how), (label, marker, colour) in STREAMS.items():
                    wanted = {"order": order, "regime": regime, "method": method, "inference": how}
                    some = [line for line in found if wanted.items() <= line.items()]
                    sets, gaps = [line["set"] for line in some], [abs(line["gap"]) for line in some]
                    panel.plot(sets, gaps, marker, color=colour, label=label, markersize=3.5)
                panel.axhline(settings.tolerance, color="black", linewidth=0.8)
                panel.set_title(f"{regime}, {order} batches of {settings.infer_batch[1]}")
                panel.set_xlabel("set")
        axes[0][0].set_ylabel("pooled |gap|")
        axes[1][0].set_ylabel("pooled |gap|")
        _key(axes[0][0])


def _attainable(results: Results, scores: list[Score], path: Path) -> None:
    """Losses by set: what the networks of the experiment reach, and what can be reached."""
    with figure(path, columns=2, width=5.2, height=3.8) as axes:
        for generator, panel in zip(GENERATORS, axes, strict=True):
            if generator == "published":
                for method, colour in (("Projection", "#f3cfa8"), ("F-Layer", "#a9cbe5")):
                    sets = by_set(scores, REGIMES[0])
                    losses = [methods[method].mse for methods in sets.values()]
                    panel.plot(list(sets), losses, "D", color=colour, markersize=4, label=f"{method} as in the paper")
            for (model, how), (label, marker, colour) in REACHED.items():
                some = [
                    (result["set"], row["mse"])
                    for result in results
                    if result["generator"] == generator
                    for row in result["rows"]
                    if row.get("model") == model and row["inference"] == how
                ]
                panel.plot(*zip(*some, strict=True), marker, color=colour, markersize=5, label=label)
            panel.set_title(f"{generator} generator")
            panel.set_xlabel("set")
        axes[0].set_ylabel("test MSE")
        _key(axes[0])


def _key(panel: Any, handles: Sequence[Any] | None = None) -> None:
    """What is drawn in a panel, below the whole figure."""
    shown = panel.get_legend_handles_labels()[0] if handles is None else handles
    panel.figure.legend(
        handles=shown, loc="outside lower center", ncols=4 if handles is None else len(shown), fontsize=7
    )
