"""Tables, figures and findings of the applications beyond fairness, from their results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.claims import Finding, in_all, together
from experiments.figures import COLOURS, band, figure
from experiments.tables import markdown, write_csv

MEASURES = {  # of the loss on unseen inputs
    "portfolio": "minus utility",
    "resource_allocation": "need not met",
    "robot_control": "squared distance to the goal",
}
Row = dict[str, Any]


def summarise(results: list[Row], settings: Any, folder: Path) -> None:
    """Write the table, and a figure for each application."""
    rows = [
        {
            "application": result["application"],
            "seed": result["seed"],
            "method": method,
            "measure": MEASURES[result["application"]],
            "untrained": result[method]["curve"][0][1],
            "trained": result[method]["loss"],
            "outputs_checked": result[method]["checked"],
            "outputs_broken": result[method]["broken"],
            "largest_excess": result[method]["largest_excess"],
            "seconds": result["seconds"],
        }
        for result in results
        for method in ("F-Layer", "Projection")
    ]
    write_csv(folder / "runs.csv", rows)
    (folder / "runs.md").write_text(markdown(rows) + "\n")
    drawings = {"portfolio": _draw_sectors, "resource_allocation": _draw_machines, "robot_control": _draw_plans}
    for name, draw in drawings.items():
        part = [result for result in results if result["application"] == name]
        with figure(folder / f"{name}.svg", columns=2) as (left, right):
            for method in ("F-Layer", "Projection"):
                steps = [step for step, _ in part[0][method]["curve"]]
                band(left, steps, [[loss for _, loss in result[method]["curve"]] for result in part], method)
            left.set(xlabel="step of training", ylabel=MEASURES[name])
            left.legend()
            draw(right, part[0])


def _draw_sectors(axes: Any, result: Row) -> None:
    """How much goes to every sector, day by day, below its limit."""
    exposure = np.sort(np.asarray(result["F-Layer"]["shown"]), axis=0)
    for number, column in enumerate(exposure.T, start=1):
        axes.plot(np.linspace(0, 100, len(column)), column, label=f"sector {number}")
    axes.axhline(result["more"]["limit"], color="black", linestyle=":", linewidth=1)
    axes.set(xlabel="share of unseen days (%)", ylabel="part of the budget (dotted: limit)")
    axes.legend()


def _draw_machines(axes: Any, result: Row) -> None:
    """What is booked on every machine against what it has."""
    capacity = np.asarray(result["more"]["capacity"])
    for method in ("Projection", "F-Layer"):
        axes.scatter(capacity, np.asarray(result[method]["shown"]), s=6, label=method, color=COLOURS[method])
    axes.plot([capacity.min(), capacity.max()], [capacity.min(), capacity.max()], color="black", linewidth=0.8)
    axes.set(xlabel="capacity of a machine in an hour", ylabel="booked (line: all of it)")
    axes.legend()


def _draw_plans(axes: Any, result: Row) -> None:
    """Speed along each plan, within its limit."""
    more = result["more"]
    for goal, plan in zip(more["goals"], result["F-Layer"]["shown"], strict=True):
        speed = more["step"] * np.cumsum(plan)
        axes.plot(more["step"] * np.arange(len(plan) + 1), [0.0, *speed], label=f"to {round(goal, 1) + 0.0:g}")
    for sign in (-1, 1):
        axes.axhline(sign * more["top_speed"], color="black", linestyle=":", linewidth=1)
    axes.set(xlabel="time", ylabel="speed (dotted: limit)")
    axes.legend(fontsize=6, ncols=4, loc="lower center")


def claims(results: list[Row], settings: Any) -> dict[str, Finding]:
    """Whether limits hold, and whether training through the layer helps."""
    return {name: _finding([r for r in results if r["application"] == name]) for name in MEASURES}


def _finding(part: Sequence[Row]) -> Finding:
    ours = [result["F-Layer"] for result in part]
    checked = sum(r[method]["checked"] for r in part for method in ("F-Layer", "Projection"))
    broken = sum(r[method]["broken"] for r in part for method in ("F-Layer", "Projection"))
    better = sum(r["F-Layer"]["loss"] < r["Projection"]["loss"] for r in part)
    learned = sum(run["loss"] < run["curve"][0][1] for run in ours)

    def mean(values: list[float]) -> str:
        return f"{sum(values) / len(values):.4f}"

    return Finding(
        f"{broken} of {checked} outputs break a limit in exact arithmetic; {MEASURES[part[0]['application']]}: "
        f"{mean([run['curve'][0][1] for run in ours])} untrained, {mean([run['loss'] for run in ours])} trained with "
        f"the layer, {mean([r['Projection']['loss'] for r in part])} trained without (lower with the layer for "
        f"{better} of {len(part)} seeds)",
        together([in_all(checked - broken, checked), in_all(learned, len(ours))]),
    )
