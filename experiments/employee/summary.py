"""Tables, figures and findings of the wage experiment, from its results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.claims import Finding, Verdict, at_most, in_all, together
from experiments.figures import COLOURS, figure
from experiments.methods import PROMISING
from experiments.tables import markdown, published, write_csv

STORED = {"f_layer": "F-Layer", "projection": "Projection", "penalty": "Penalty"}
ANCHORS = "anchors"
Row = dict[str, Any]


def summarise(results: list[Row], settings: Any, folder: Path) -> None:
    """Write every table and figure."""
    rows = flatten(results)
    plain = [{name: value for name, value in row.items() if name not in ("residuals", "flagging")} for row in rows]
    write_csv(folder / "runs.csv", plain)
    table = _table(rows, settings)
    write_csv(folder / "table.csv", table)
    (folder / "table.md").write_text(markdown(table) + "\n")
    headline = [row for row in rows if row["seed"] in (None, settings.seed)]
    identity = ("setting", "method", "strength")
    write_csv(
        folder / "flagging.csv",
        [{name: row[name] for name in identity} | entry for row in headline for entry in row["flagging"]],
    )
    write_csv(
        folder / "residuals.csv",
        [
            {name: row[name] for name in identity} | {"group": group, "mean_residual": value}
            for row in headline
            for group, value in row["residuals"].items()
        ],
    )
    _draw(headline, settings, folder)


def flatten(results: Sequence[Row]) -> list[Row]:
    """One row per setting, seed and method."""
    shared = ("setting", "seed", "strength", "epochs", "best_epoch", "seconds")
    return [{**{name: result.get(name) for name in shared}, **row} for result in results for row in result["rows"]]


def label(row: Row) -> str:
    """A method with its strength."""
    return row["method"] if row["strength"] is None else f"{row['method']} {row['strength']:g}"


def paper_table() -> dict[str, dict[str, str]]:
    """The paper's table by method."""
    return {
        STORED[row["method"]] + (f" {float(row['lambda']):g}" if row["lambda"] else ""): row
        for row in published("employee_paper")
    }


def as_published(row: Row) -> Verdict:
    """Whether all constraints are met with an error that is no higher than published, to the digits published."""
    mse = paper_table()[label(row)]["mse"]
    error = round(row["mse"], len(mse.partition(".")[2]))
    return together([in_all(row["satisfied"], row["constraints"]), at_most(error, float(mse))])


def _table(rows: Sequence[Row], settings: Any) -> list[Row]:
    """The paper's table, ours beside it, and the range over the seeds."""
    theirs = paper_table()
    out = []
    for row in rows:
        if row["seed"] not in (None, settings.seed):
            continue
        alike = [r for r in rows if (r["setting"], label(r)) == (row["setting"], label(row))]
        paper = theirs.get(label(row), {}) if row["setting"] == "replica" else {}
        out.append(
            {
                "setting": row["setting"],
                "method": label(row),
                "constraints_met": row["satisfied"],
                "met_with_allowance": row["satisfied_with_allowance"],
                "mse": row["mse"],
                f"lowered by more than {settings.lowered_by:g}": row["lowered"],
                "most lowered, % of the raw output": max(row["most_lowered_percent"], 0.0),
                "epochs": row["epochs"],
                "mse_lowest_of_seeds": min(r["mse"] for r in alike),
                "mse_highest_of_seeds": max(r["mse"] for r in alike),
                "fewest_met_of_seeds": min(r["satisfied"] for r in alike),
                "published_met": paper.get("constraints_satisfied_of_10"),
                "published_mse": paper.get("mse"),
                "published_lowered": paper.get("individuals_lowered"),
            }
        )
    return out


def _draw(rows: Sequence[Row], settings: Any, folder: Path) -> None:
    """Errors with the number of constraints met, and how often groups are flagged."""
    shades = {"replica": 0.45, "converged": 1.0}
    with figure(folder / "error.svg", width=6.5, height=4.4) as axes:
        for place, row in enumerate(rows):
            axes.barh(
                place, row["mse"], color=COLOURS.get(row["method"], "black"), alpha=shades.get(row["setting"], 0.6)
            )
            axes.text(row["mse"], place, f" {row['satisfied']} of {row['constraints']}", va="center", fontsize=7)
        axes.set_yticks(range(len(rows)), [f"{label(row)} ({row['setting']})" for row in rows], fontsize=7)
        axes.invert_yaxis()
        axes.set_xlabel("mean squared error (beside each: constraints met)")
    shown = [row for row in rows if row["method"] in (*PROMISING, "least squares")]
    attributes = [entry["attribute"] for entry in rows[0]["flagging"]]
    with figure(folder / "flagging.svg", width=7.0) as axes:
        width = 0.8 / len(shown)
        for number, row in enumerate(shown):
            difference = [entry["rate_members"] - entry["rate_others"] for entry in row["flagging"]]
            at = [place + number * width for place in range(len(attributes))]
            look = {"color": COLOURS.get(row["method"], "black"), "alpha": shades.get(row["setting"], 0.6)}
            axes.bar(at, difference, width, label=f"{label(row)} ({row['setting']})", **look)
        axes.axhline(0.0, color="black", linewidth=0.8)
        axes.set_xticks([place + 0.4 - width / 2 for place in range(len(attributes))], attributes)
        axes.set_ylabel("share flagged: members less others")
        axes.legend(fontsize=6)


def claims(results: list[Row], settings: Any) -> dict[str, Finding]:
    """What became of the paper's claims, in the replica and in the properly trained (converged) setting."""
    everything = flatten(results)
    promised = [row for row in everything if row["method"] in PROMISING]
    rows = [row for row in everything if row["seed"] in (None, settings.seed)]
    replica, converged = ({label(r): r for r in rows if r["setting"] == s} for s in ("replica", "converged"))
    anchors = {row["method"]: row for row in rows if row["setting"] == ANCHORS}

    def text(method: str) -> str:
        return "; converged: ".join(
            f"{of[method]['satisfied']} of {of[method]['constraints']}, {of[method]['mse']:.4f}"
            for of in (replica, converged)
        )

    fair = [row for row in replica.values() if row["satisfied"] == row["constraints"]]
    best = min(fair, key=lambda row: row["mse"])
    weak = [[of[f"Penalty {s:g}"] for s in settings.strengths if s < 100] for of in (replica, converged)]
    failing = [row["satisfied"] < row["constraints"] for part in weak for row in part]
    strong = replica["Penalty 100"]
    higher = [100 * (strong["mse"] / replica[name]["mse"] - 1) for name in PROMISING]
    dearer = [
        of["Penalty 100"]["satisfied"] == of["Penalty 100"]["constraints"]
        and of["Penalty 100"]["mse"] > max(of[name]["mse"] for name in PROMISING)
        for of in (replica, converged)
    ]
    mean, least = anchors["overall mean"], anchors["least squares"]
    run = {(row["setting"], row["seed"], row["method"]): row for row in promised}
    below = sum(
        run["replica", seed, "F-Layer"]["mse"] < run["replica", seed, "Projection"]["mse"] for seed in settings.seeds
    )
    lowered = {key: row["lowered"] for key, row in run.items()}
    only_projection = [
        lowered[setting, seed, "Projection"] > 0 == lowered[setting, seed, "F-Layer"]
        for setting, _ in settings.trainings
        for seed in settings.seeds
    ]
    kept = sum(row["satisfied"] == row["constraints"] and row["within_bounds"] for row in promised)

    def numbers(setting: str, method: str) -> str:
        return ", ".join(str(lowered[setting, seed, method]) for seed in settings.seeds)

    findings = {
        "exact": Finding(f"{kept} of {len(promised)} in exact arithmetic", in_all(kept, len(promised))),
        "f_layer": Finding(
            f"{text('F-Layer')} (overall mean {mean['mse']:.4f}, least squares {least['mse']:.4f})",
            together(map(as_published, (replica["F-Layer"], converged["F-Layer"]))),
        ),
        "projection": Finding(
            text("Projection"), together(map(as_published, (replica["Projection"], converged["Projection"])))
        ),
        "lowest": Finding(
            f"lowest of the networks, with the paper's seed: {label(best)}, {best['mse']:.4f}; F-Layer below "
            f"Projection for {below} of {len(settings.seeds)} seeds (least squares satisfies {least['satisfied']} of "
            f"{least['constraints']} with {least['mse']:.4f})",
            together([in_all(int(best["method"] == "F-Layer"), 1), in_all(below, len(settings.seeds))]),
        ),
        "penalties": Finding(
            "; converged: ".join(
                ", ".join(f"{row['satisfied']} of {row['constraints']} at {row['strength']:g}" for row in part)
                for part in weak
            ),
            in_all(sum(failing), len(failing)),
        ),
        "penalty_100": Finding(
            f"{text('Penalty 100')} ({higher[0]:.1f} % above F-Layer, {higher[1]:.1f} % above Projection, replica)",
            in_all(sum(dearer), len(dearer)),
        ),
        "lowered": Finding(
            f"by more than {settings.lowered_by:g} of the range of wages, seeds "
            f"{', '.join(map(str, settings.seeds))}: Projection {numbers('replica', 'Projection')}, converged "
            f"{numbers('converged', 'Projection')}; F-Layer, from its network's output to its layer's: "
            f"{numbers('replica', 'F-Layer')}, converged {numbers('converged', 'F-Layer')}",
            in_all(sum(only_projection), len(only_projection)),
        ),
    }
    return {name: replace(finding, stored="none kept") for name, finding in findings.items()}
