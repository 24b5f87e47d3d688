"""Figures of the picture experiments, from their tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.figures import COLOURS, figure
from experiments.pictures.backbones import BACKBONES
from experiments.pictures.inference import HARD, LEDGER, ONCE, SOFT
from experiments.pictures.settings import Settings
from experiments.pictures.tables import Row, grouped, headline, where

LINES = {HARD: "--", SOFT: ":", LEDGER: "-"}


def draw_methods(table: Sequence[Row], networks: Sequence[str], path: Path) -> None:
    """Accuracy of every method, with the authors' as a mark."""
    with figure(path, columns=len(networks)) as axes:
        for panel, network in zip(_several(axes), networks, strict=True):
            chosen = [row for row in where(table, network=network) if row["inference"] == headline(row["method"])]
            for place, row in enumerate(chosen):
                panel.bar(place, row["accuracy"], yerr=row["accuracy_sd"] or 0, color=COLOURS[row["method"]])
                if row["stored_accuracy"] is not None:
                    panel.plot(place, row["stored_accuracy"], "k_", markersize=18)
            panel.axhline(chosen[0]["constant_accuracy"], color="black", linewidth=0.8, linestyle=":")
            panel.set_xticks(range(len(chosen)), [row["method"].replace(" ", "\n") for row in chosen], fontsize=7)
            panel.set_ylim(0.4, None)
            panel.set_title(f"{network} (bar: measured, line: stored by the authors)", fontsize=8)
            panel.set_ylabel("test accuracy")


def draw_tolerances(table: Sequence[Row], networks: Sequence[str], path: Path) -> None:
    """Accuracy over the tolerance."""
    with figure(path, columns=len(networks)) as axes:
        for panel, network in zip(_several(axes), networks, strict=True):
            for (method,), part in grouped(where(table, network=network), "method").items():
                chosen = where(part, inference=headline(method))
                x, y = ([row[name] for row in chosen] for name in ("tolerance", "accuracy"))
                spread = [row["accuracy_sd"] or 0 for row in chosen]
                panel.errorbar(x, y, yerr=spread, marker="o", markersize=3, color=COLOURS[method], label=method)
            panel.set_xscale("log")
            panel.set_xlabel("tolerance (difference of mean logits)")
            panel.set_ylabel("test accuracy")
            panel.set_title(network)
            panel.legend()


def draw_batch_sizes(table: Sequence[Row], networks: Sequence[str], settings: Settings, path: Path) -> None:
    """Accuracy of F-Layer and Projection by batch size, and below it how unfair all pictures together are."""
    with figure(path, columns=len(networks), rows=2) as axes:
        for column, network in enumerate(networks):
            upper, lower = (axes[0][column], axes[1][column]) if len(networks) > 1 else axes
            for (method, how), part in grouped(
                where(table, network=network, arrival=ONCE), "method", "inference"
            ).items():
                style = {"color": COLOURS[method], "linestyle": LINES[how], "label": f"{method}, {how}"}
                sizes = [row["batch_size"] for row in part]
                upper.plot(sizes, [row["accuracy"] for row in part], **style)
                lower.plot(sizes, [row["pooled_gap"] for row in part], **style)
            lower.axhline(settings.tolerance, color="black", linewidth=0.8)
            lower.set_yscale("log")
            for panel, label in ((upper, "test accuracy"), (lower, "largest pooled gap (line: tolerance)")):
                panel.set_xscale("log", base=2)
                panel.set_xticks(settings.served, settings.served, fontsize=7)
                panel.set_xlabel("batch size in inference")
                panel.set_ylabel(label)
            upper.set_title(network)
            upper.legend(fontsize=6)


def draw_training(results: Sequence[Row], networks: Sequence[str], settings: Settings, path: Path) -> None:
    """Loss on the validation part, epoch by epoch, of the runs with the first seed."""
    with figure(path, columns=len(networks)) as axes:
        for panel, network in zip(_several(axes), networks, strict=True):
            first = where(results, tolerance=settings.tolerance, seed=settings.seed)
            for result in [result for result in first if BACKBONES[result["network"]].title == network]:
                losses = result["history"]["validation_loss"]
                panel.plot(range(1, len(losses) + 1), losses, label=result["method"], color=COLOURS[result["method"]])
            panel.set_xlabel("epoch")
            panel.set_ylabel("loss on the validation pictures")
            panel.set_title(network)
            panel.legend()


def _several(axes: Any) -> Any:
    return axes.ravel() if hasattr(axes, "ravel") else [axes]
