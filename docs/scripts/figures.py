"""The figures that the README and the pages quote, as tables made from benchmarks/results."""

import json
from collections.abc import Callable, Iterable
from statistics import mean, stdev
from typing import Any

from pages import ROOT, read_csv, table

RESULTS = ROOT / "benchmarks" / "results"
BUSY = "measured beside other work"  # the note of a row that was not timed on a quiet machine

WORST = {  # columns of which the largest entry is shown
    "gap_violation": "gap above tolerance",
    "box_violation": "outside the box",
    "gradient_error": "gradient off by",
}

Row = dict[str, str]


def number(value: str | float, digits: int = 3) -> str:
    """A figure with a few significant digits, without an exponent where it can be avoided."""
    if value == "":
        return "-"
    amount = float(value)
    if amount == 0 or 1e-3 <= abs(amount) < 1e9:
        return f"{float(f'{amount:.{digits}g}'):,.10g}"
    return f"{amount:.0e}"


def peers() -> str:
    """fairlayer and other software on the same problem: times by batch size, and the worst that came out."""
    rows = [row for row in read_csv(RESULTS / "peers.csv") if row["k"] == "2" and row["box"] == "True"]
    sizes = sorted({int(row["n"]) for row in rows})
    lines = []
    for name in dict.fromkeys(row["peer"] for row in rows):
        mine = [row for row in rows if row["peer"] == name]
        version = next((row["version"] for row in mine if row["version"]), "")
        label = name if name.startswith(("fairlayer", "floor")) else f"{name} ({version})" if version else name
        times = [next((_time(row) for row in mine if row["n"] == str(n)), "-") for n in sizes]
        lines.append([label, *times, *(_worst(mine, what) for what in WORST)])
    header = ["milliseconds", *(f"n = {n:,}" for n in sizes), *WORST.values()]
    notes = (
        "Forward and backward of one batch, two attributes, box [0, 1], new groups in every call (unless the "
        "name says fixed). `-`: too slow, too large, or could not be run; `benchmarks/results/peers.csv` says which. "
        "The last three columns are the worst over all sizes, of the numbers returned."
    )
    if any(row["note"] == BUSY for row in rows):
        notes += " \\*: measured beside other work."
    return f"{table(header, lines)}\n\n{notes}"


def _time(row: Row) -> str:
    text = number(row["forward_backward_ms"])
    return f"{text}*" if row["note"] == BUSY and text != "-" else text


def _worst(rows: list[Row], what: str) -> str:
    values = [float(row[what]) for row in rows if row[what]]
    return number(f"{max(values):.0e}", 1) if values else "-"


def measured() -> str:
    """What the layer costs, and how often it broke a promise: the few figures of the README."""
    ratios = ", ".join(
        f"{number(row['tensors'], 2)} at n = {int(row['n']):,}" for row in read_csv(RESULTS / "floor.csv")
    )
    share = read_csv(RESULTS / "share.csv")[0]
    violations = json.loads((RESULTS / "violations.json").read_text())
    steps = int(float(_target("ledger: steps looked at")))
    return table(
        ("figure", "measured"),
        [
            ("time of forward and backward, as a multiple of clamp's on the same tensor", ratios),
            (
                f"share of the layer in a training step of the paper's network, batch {int(share['n']):,}",
                f"{100 * float(share['share']):.1f} %",
            ),
            ("forward and backward of 2,000 samples, milliseconds", _against_peers("2000")),
            (
                f"constraints or bounds broken under a status that says they hold, {violations['problems']:,} problems",
                number(_target("broken rows or bounds")),
            ),
            (f"pooled gaps above the tolerance, {steps:,} steps of streams", number(_target("ledger: steps with"))),
        ],
    )


def _against_peers(n: str) -> str:
    """The time of one batch, beside the quickest way through cvxpylayers and the code of the paper's authors."""
    rows = [row for row in read_csv(RESULTS / "peers.csv") if (row["n"], row["k"], row["box"]) == (n, "2", "True")]

    def quickest(start: str) -> str:
        times = [row["forward_backward_ms"] for row in rows if row["peer"].startswith(start)]
        return number(min(float(time) for time in times if time))

    ours = number(next(row["forward_backward_ms"] for row in rows if row["peer"] == "fairlayer"))
    return f"{ours}; cvxpylayers {quickest('cvxpylayers')}; the paper's code {quickest('fairness-training')}"


def _target(what: str) -> str:
    """What was measured of a figure that has a limit, by the beginning of its name."""
    return next(row["measured"] for row in read_csv(RESULTS / "targets.csv") if row["what"].startswith(what))


def adult() -> str:
    """Estimators on the Adult data beside other methods, means over seeds."""
    rows = read_csv(RESULTS / "adult.csv")
    columns = {
        "accuracy": "accuracy",
        "auc": "AUC",
        "gap": "gap of means, test set",
        "batch_gap": "worst batch of 1,000",
        "decision_gap": "gap of decisions",
    }
    lines = []
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == method]
        lines.append([method, *(number(mean(float(row[name]) for row in mine)) for name in columns)])
    return table(("method", *columns.values()), lines)


def stream() -> str:
    """Pooled gaps of the policies, batches of four: one attribute, no box, no drift, and what differs elsewhere."""
    fours = [row for row in read_csv(RESULTS / "stream.csv") if row["batch"] == "4"]
    fours = [row for row in fours if row["length"] == fours[0]["length"]]
    rows = [row for row in fours if (row["attributes"], row["box"], row["drifts"]) == ("1", "False", "False")]
    header = ("method", "pooled gap at the end", "batches after which it was above 0.05", "change over the optimum")
    lines = [
        (
            row["method"],
            number(row["pooled_gap"]),
            f"{int(row['steps_above']):,} of {int(row['steps']):,}",
            number(row["over_optimum"]),
        )
        for row in rows
    ]
    settings = {(row["attributes"], row["box"], row["drifts"]) for row in fours}
    steady, drifting = (
        _ledger_costs([row for row in fours if row["drifts"] == drifts]) for drifts in ("False", "True")
    )
    above = sum(int(row["steps_above"]) for row in fours if row["method"].startswith("ledger"))
    notes = (
        f"One stream of {int(fours[0]['length']):,} samples: one attribute, no bounds, no drift. It is one of "
        f"{len(settings)} settings, each measured once: {_listed(row['attributes'] for row in fours)} attributes, with "
        f"and without bounds, with and without drift. In all of them, the ledger was above the tolerance after {above} "
        f"batches. Its change over the optimum is {steady} without drift, and {drifting} with drift: the optimum knows "
        "the whole stream, the ledger only what has come. `benchmarks/results/stream.csv` has every setting."
    )
    return f"{table(header, lines)}\n\n{notes}"


def decisions() -> str:
    """What a stream of decisions costs, by the number of attributes."""
    rows = read_csv(RESULTS / "decisions.csv")
    header = ("attributes", "streams", "change over the optimum, second half", "whole stream", "overruled")
    lines = []
    for attributes in dict.fromkeys(row["attributes"] for row in rows):
        mine = [row for row in rows if row["attributes"] == attributes]
        half, whole, overruled = (
            [float(row[name]) for row in mine] for name in ("second_half_over_optimum", "over_optimum", "overruled")
        )
        spread = [f"{mean(each):.2f} ({min(each):.2f} to {max(each):.2f})" for each in (half, whole)]
        lines.append([attributes, len(mine), *spread, f"{100 * mean(overruled):.2f} %"])
    samples = int(rows[0]["samples"])
    notes = (
        f"Streams of {samples:,} decisions, one at a time, for a tolerance of 0.02, of 0.05 and a ratio of 0.8: the "
        "mean, and the least and the greatest. The optimum knows the whole stream. In "
        f"{int(float(_target('decisions: steps looked at'))):,} decisions, of such streams and of others meant "
        f"to break it, the promise was broken {number(_target('decisions: steps beyond'))} times."
    )
    return f"{table(header, lines)}\n\n{notes}"


def _ledger_costs(rows: list[Row]) -> str:
    costs = [float(row["over_optimum"]) for row in rows if row["method"] == "ledger"]
    return f"{min(costs):.2f} to {max(costs):.2f}"


def _listed(values: Iterable[str]) -> str:
    *others, last = dict.fromkeys(values)
    return f"{', '.join(others)} or {last}"


def freeze() -> str:
    """How often the statement of a frozen model was wrong, and how cautious it is."""
    header = ("protected", "tolerance", "calibration rows", "statements", "wrong", "mean stated gap", "mean true gap")
    rows = [row for row in read_csv(RESULTS / "freeze_coverage.csv") if row["tightened"] == "False"]
    lines: list[list[Any]] = [
        [
            row["protected"],
            row["tolerance"],
            f"{int(row['rows']):,}",
            row["draws"],
            row["wrong"],
            number(row["mean_stated_gap"]),
            number(row["mean_true_gap"]),
        ]
        for row in rows
    ]
    return table(header, lines)


def audit() -> str:
    """An audit of a file as it grows."""
    rows = read_csv(RESULTS / "audit.csv")
    header = ("rows", "file, MB", "seconds", "peak memory, MB", "of two cores, taken by other work")
    names = ("file_mb", "seconds", "peak_mb", "other_cores")
    return table(header, ([f"{int(row['n']):,}", *(number(row[name]) for name in names)] for row in rows))


def probabilities() -> str:
    """The squared discrepancy and relative entropy at the same gap."""
    rows, shown = (
        read_csv(RESULTS / "probabilities.csv"),
        {
            "log_loss": "log loss",
            "brier": "Brier score",
            "calibration": "calibration error",
            "auc": "AUC",
            "accuracy": "accuracy",
            "gap": "gap",
        },
    )
    lines = []
    for data, method in dict.fromkeys((row["data"], row["method"]) for row in rows):
        own = [row for row in rows if (row["data"], row["method"]) == (data, method)]
        lines.append([data, method, *(number(mean(float(row[name]) for row in own)) for name in shown)])
    return table(["data", "method", *shown.values()], lines)


def discrepancies() -> str:
    """What other discrepancies cost."""
    rows = read_csv(RESULTS / "discrepancies.csv")
    shown = ("entropy / squared", "logits / squared", "kl / squared", "cvxpylayers_ms")
    lines = [[f"{int(row['n']):,}", *(number(row[name]) for name in shown)] for row in rows]
    return table(["n", *shown[:-1], "cvxpylayers, ms"], lines)


def replicas() -> str:
    """Writers of one stream, with and without group commit."""
    rows = read_csv(RESULTS / "replicas.csv")
    load = json.loads((RESULTS / "replicas.json").read_text())["load_average"][0]
    header = ("writers", "callers in each", "alone, batches per second", "together", "times")
    names = ("alone", "together", "ratio")
    lines = ([row["writers"], row["callers"], *(number(row[name]) for name in names)] for row in rows)
    note = f"Batches of {rows[0]['batch']}; PostgreSQL on the same machine of two cores, whose load was {number(load)}."
    return f"{table(header, lines)}\n\n{note}"


def ranks() -> str:
    """A step over several processes, and what of it is gloo's."""
    rows = read_csv(RESULTS / "ranks.csv")
    load = json.loads((RESULTS / "ranks.json").read_text())["load_average"][0]
    header = ("processes", "n each", "cells", "alone, ms", "together", "overhead", "bare exchanges", "fastest", "work")
    lines = []
    for row in rows:
        both = [float(row[f"{which}together"]) - float(row[f"{which}alone"]) for which in ("", "fastest_")]
        lines.append(
            [
                row["ranks"],
                f"{int(row['n']):,}",
                row["cells"],
                *map(number, (row["alone"], row["together"], both[0], row["bare"], both[1], row["work"])),
            ]
        )
    note = f"Forward and backward, float32, gloo over loopback on two cores, whose load was {number(load)}; medians."
    return f"{table(header, lines)}\n\n{note}"


def ray() -> str:
    """Datasets by Ray workers, beside files."""
    rows = read_csv(RESULTS / "ray.csv")
    header = ("rows", "what", "workers, s", "their processor time, s", "file, s", "peak memory, MB", "killed", "equal")
    names = ("ray_s", "ray_cpu_s", "local_s", "peak_mb", "killed")
    lines = [
        [
            f"{int(row['n']):,}",
            row["what"],
            *(number(row[name]) for name in names),
            "yes" if int(row["equal"]) else "no",
        ]
        for row in rows
    ]
    others = number(max(float(row["other_cores"]) for row in rows))
    note = f"{rows[0]['workers']} workers on a machine of two cores, of which other work took up to {others} meanwhile."
    return f"{table(header, lines)}\n\n{note}"


def blocks() -> str:
    """What a pass over one block of a table costs."""
    rows = read_csv(RESULTS / "ray_blocks.csv")
    header = ("cells", "nanoseconds for a row", "message, KB")
    names = ("row_ns", "message_kb")
    return table(header, ([row["cells"], *(number(row[name]) for name in names)] for row in rows))


def rates() -> str:
    """Three ways to train for equal rates of decisions."""
    rows = read_csv(RESULTS / "rates_training.csv")
    keys = ("accuracy", "rate_gap", "raw_accuracy", "raw_rate_gap", "moved")
    header = ("trained", "accuracy", "gap of rates", "accuracy before", "gap before", "scores moved")
    lines: list[list[Any]] = []
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == method]
        lines.append([method, *(number(mean(float(row[key]) for row in mine)) for key in keys)])
    return table(header, lines)


def decisions_compared() -> str:
    """Accuracy at the same gap of rates beside other software, where a gap of 0.02 was asked for."""
    every = read_csv(RESULTS / "decisions_compared.csv")
    header = (
        *("data", "method", "accuracy", "gap on test rows", "kept", "fairlayer's accuracy at that gap, less this"),
        *("fit, s", "predict, s"),
    )
    lines: list[list[Any]] = []
    for data, method in dict.fromkeys((row["data"], row["method"]) for row in every):
        of_method = [row for row in every if (row["data"], row["method"]) == (data, method)]
        mine = [row for row in of_method if row["asked"] in ("", "0.02")]
        ran = [row for row in mine if row["accuracy"]]
        if not ran:
            lines.append([data, method, mine[0]["note"], *[""] * 5])
            continue
        own = [float(row["accuracy"]) for row in ran]
        ahead = [float(row["ours_at_that_gap"]) - each for row, each in zip(ran, own, strict=True)]
        kept = f"{sum(row['kept'] == 'True' for row in ran)} of {len(mine)}" if mine[0]["asked"] else "-"
        gap = f"{mean(float(row['gap']) for row in ran):.4f}"
        seconds = [number(mean(float(row[name]) for row in ran)) for name in ("fit_seconds", "predict_seconds")]
        less = "-" if method == "fairlayer, batch" else _with_error(ahead, "+")
        lines.append([data, method, _with_error(own), gap, kept, less, *seconds])
    batches = [row for row in every if row["method"].startswith("fairlayer, batch")]
    broken = sum(row["kept"] != "True" for row in batches)
    notes = (
        f"Means and standard errors over {len({row['seed'] for row in every})} splits of 15,000 rows at most (5 for "
        "AIF360 and ExponentiatedGradient, which take long): half of the rows to train boosted trees, a fifth to fit "
        "thresholds, the others to test. All were asked for a gap of at most 0.02. *Kept*: in how many splits the gap "
        "on the test rows is within it. The next column compares accuracy at equal gaps, split by split: above 0, "
        f"fairlayer is ahead. Of its {len(batches)} batches, at four tolerances, {broken} exceeded the tolerance. "
        "Times are those of a busy machine."
    )
    return f"{table(header, lines)}\n\n{notes}"


def _with_error(values: list[float], sign: str = "") -> str:
    error = f" ± {stdev(values) / len(values) ** 0.5:.4f}" if len(values) > 1 else ""
    return f"{mean(values):{sign}.4f}{error}"


def blind() -> str:
    """True gaps of blind serving, what is stated of them, and what it costs."""
    rows = read_csv(RESULTS / "blind.csv")
    columns = {
        "raw_gap": "gap, raw",
        "blind_gap": "blind",
        "aware_gap": "aware",
        "mean_stated_bound": "stated bound",
        "mean_audit_interval": "interval of an audit",
        "raw_accuracy": "accuracy, raw",
        "blind_accuracy": "blind",
        "aware_accuracy": "aware",
        "raw_AUC": "AUC, raw",
        "blind_AUC": "blind",
        "aware_AUC": "aware",
    }
    lines = []
    for row in rows:
        shown = [row[name] if "interval" in name else number(row[name]) for name in columns]
        made = int(row["draws"]) - int(row["out_of_reach"])
        lines.append([f"{row['data']}, {row['protected']}", *shown, f"{row['wrong']} of {made}"])
    return table(["data", *columns.values(), "statements wrong"], lines)


def margin() -> str:
    """How often the population's gap exceeds a tolerance, with and without a margin."""
    rows = read_csv(RESULTS / "margin.csv")
    header = ("tolerance", "rows", "settled", "audit satisfied", "exceeded, of those settled", "without a margin")
    lines = [
        [
            row["tolerance"],
            f"{int(row['rows']):,}",
            f"{100 * int(row['settled']) / int(row['draws']):.0f} %",
            f"{100 * int(row['satisfied']) / int(row['draws']):.0f} %",
            f"{100 * int(row['exceeded']) / int(row['settled']):.1f} %" if int(row["settled"]) else "-",
            f"{100 * float(row['without']):.0f} %",
        ]
        for row in rows
    ]
    return table(header, lines)


def coverage() -> str:
    """How often intervals, verdicts and margins are wrong where the truth is known: the worst of all sizes."""
    rows = read_csv(RESULTS / "coverage.csv")
    header = ("compared", "groups", 'equal groups "violated"', "tolerance exceeded after a margin", "differences found")
    lines = []
    for compared, groups in dict.fromkeys((row["compared"], row["groups"]) for row in rows):
        here = [row for row in rows if (row["compared"], row["groups"]) == (compared, groups)]
        wrong = [max(100 * int(row[what]) / int(row["draws"]) for row in here) for what in ("violated", "exceeded")]
        found = [100 * int(row["found"]) / int(row["draws"]) for row in here]
        lines.append(
            [compared, groups, *(f"{share:.1f} %" for share in wrong), f"{min(found):.0f} to {max(found):.0f} %"]
        )
    return table(header, lines)


FIGURES: dict[str, Callable[[], str]] = {
    "adult": adult,
    "audit": audit,
    "blind": blind,
    "blocks": blocks,
    "coverage": coverage,
    "decisions": decisions,
    "decisions_compared": decisions_compared,
    "discrepancies": discrepancies,
    "freeze": freeze,
    "margin": margin,
    "measured": measured,
    "peers": peers,
    "probabilities": probabilities,
    "ranks": ranks,
    "replicas": replicas,
    "rates": rates,
    "ray": ray,
    "stream": stream,
}
