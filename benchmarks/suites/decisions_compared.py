"""Equal rates of decisions beside other software: accuracy at the same gap of rates on test rows, over several splits.

Boosted trees are trained once for each split, and all methods but one work on their scores: the same rows to fit
thresholds on, the same rows to test on. fairlearn's ExponentiatedGradient trains models of its own, of the same kind on
the same rows. Each method runs in the environment that has it. Needs the data sets, FAIRLAYER_DATA.
"""

import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from deciders import plot
from deciders.catalogue import DECIDERS, FITTED, OURS, TOLERANCES, Decider
from deciders.splits import PARTS, People, Split
from deciders.worker import Request
from experiments import datasets
from fairlayer import RateParity, project
from fairlayer.estimators.models import TableNumbers, make_estimator
from peers import process
from peers.catalogue import SOURCES
from peers.environments import UnavailableError, packages_of, python_of
from records import Target, figure, markdown_table, read_csv, write_csv, write_settings

DATA: dict[str, Callable[[], datasets.Dataset]] = {
    "Adult": datasets.adult,
    "German credit": datasets.german,
    "credit card": datasets.credit_card,
    "ACS": datasets.acs,
}
PROTECTED = "sex"
SPLITS = 10
SHARES = (0.5, 0.2)  # of the rows: to train, and to fit thresholds; the others are to test
MOST_ROWS = 15_000  # of a data set, drawn anew for each split
AIMED_AT = 0.02
FREE = "no constraint"
TIME_LIMIT = 7200.0  # seconds for all splits of a method

COLUMNS = (
    *("data", "seed", "method", "version", "asked", "accuracy", "gap", "kept", "ours_at_that_gap", "lost"),
    *("fit_seconds", "predict_seconds", "trees_seconds", "test_rows", "other_cores", "note"),
)
Row = dict[str, Any]


def main(args: Namespace) -> list[Target]:
    """Every method on every split; rows of methods that are not asked for are kept from an earlier run."""
    wanted = [one for one in DECIDERS if not args.peers or any(text in one.name for text in args.peers)]
    path, kept = args.results / "decisions_compared.csv", []
    if args.peers and path.exists():
        kept = [row for row in read_csv(path) if row["method"] not in {one.name for one in wanted}]
    with tempfile.TemporaryDirectory() as folder:
        count = 2 if args.quick else max(one.splits or SPLITS for one in wanted)
        splits, trees = make_splits(Path(folder), range(args.seed, args.seed + count), args.quick)
        rows = [judged(split, FREE, None, split.test.scores >= 0.5) | trees[split.name] for split in splits]
        made = {(row["data"], row["seed"]) for row in rows}
        rows += [row for row in kept if row["method"] != FREE or (row["data"], row["seed"]) not in made]
        for decider in wanted:
            least = args.seed + (decider.splits or SPLITS)
            new = measure(decider, [split for split in splits if split.seed < least], Path(folder))
            rows += [row | trees[f"{row['data']} {row['seed']}"] for row in new]
            print(f"   {decider.name}: {len(new)} rows; {new[-1]['note'] or 'ran'}", flush=True)
            write(ordered(rows), args)
    return targets(rows)


def make_splits(folder: Path, seeds: range, quick: bool) -> tuple[list[Split], dict[str, Row]]:
    """Splits of every data set, written to a folder; and how long the trees of each took."""
    data, splits, trees = {name: load() for name, load in DATA.items()}, [], {}
    for seed, name in product(seeds, data):  # so that a method that is stopped has done something of each
        split, seconds = make_split(name, data[name], seed, 3_000 if quick else MOST_ROWS)
        split.write(folder)
        splits.append(split)
        trees[split.name] = {"trees_seconds": seconds}
    return splits, trees


def make_split(name: str, data: datasets.Dataset, seed: int, most: int) -> tuple[Split, float]:
    """Three parts at random, scored by trees trained on the first."""
    order = np.random.default_rng(seed).permutation(len(data))[:most]
    ends = (np.cumsum(SHARES) * len(order)).astype(int)
    parts = [data.rows(rows) for rows in np.split(order, ends)]
    base = make_estimator("boosting", parts[0].features, True, seed)
    began = time.perf_counter()
    base.fit(parts[0].features, parts[0].target)
    seconds = time.perf_counter() - began
    encoder, labels = TableNumbers().fit(parts[0].features), np.unique(data.protected[PROTECTED].to_numpy())
    people = [
        People(
            base.predict_proba(part.features)[:, 1].astype(np.float64),
            part.target.to_numpy().astype(np.int64),
            np.searchsorted(labels, part.protected[PROTECTED].to_numpy()),
            encoder.transform(part.features).astype(np.float32),
        )
        for part in parts
    ]
    return Split(name, seed, **dict(zip(PARTS, people, strict=True))), seconds


def measure(decider: Decider, splits: list[Split], folder: Path) -> list[Row]:
    """A row for every split and tolerance; where the method cannot be run, rows that say why."""

    def without(reason: str) -> list[Row]:
        return [
            dict.fromkeys(COLUMNS)
            | {"data": split.data, "seed": split.seed, "method": decider.name, "asked": asked, "note": reason}
            for split in splits
            for asked in decider.tolerances
        ]

    try:
        python = python_of(decider.environment)
        version = packages_of(decider.environment).get(decider.package)
    except UnavailableError as error:
        return without(str(error))
    if decider.environment in SOURCES:
        version = SOURCES[decider.environment][1][:7]
    files = [str(folder / f"{split.name}.npz") for split in splits]
    outputs = folder / decider.adapter
    outputs.mkdir()
    request = Request(decider.adapter, decider.options, list(decider.tolerances), files, decider.draws, str(outputs))
    outcome = process.run(python, "deciders.worker", request, TIME_LIMIT)
    by_name, done = {split.name: split for split in splits}, set()
    rows = []
    for report in outcome.reports:
        done.add((report["data"], report["seed"], report["asked"]))
        split = by_name[f"{report['data']} {report['seed']}"]
        if report["error"]:
            row = dict.fromkeys(COLUMNS) | {name: report[name] for name in ("data", "seed", "asked")}
            rows.append(row | {"method": decider.name, "version": version, "note": report["error"]})
            continue
        yes = np.load(outputs / f"{split.name} {report['asked']}.npy")
        row = judged(split, decider.name, report["asked"], yes)
        times = {name: report[name] for name in ("fit_seconds", "predict_seconds", "other_cores")}
        rows.append(row | times | {"version": version})
    missing = without(outcome.failure or "said nothing")
    return rows + [row for row in missing if (row["data"], row["seed"], row["asked"]) not in done]


def judged(split: Split, method: str, asked: float | None, yes: np.ndarray) -> Row:
    """Accuracy and gap of what was decided; and the accuracy of ours at the very same gap."""
    test, yes = split.test, yes.astype(np.float64)
    gap = exact_gap(yes, test.groups)
    same = project(test.scores, test.groups, RateParity(float(gap))).value >= 0.5
    own, ours, free = (accuracy(each, test.target) for each in (yes, same, test.scores >= 0.5))
    row = dict.fromkeys(COLUMNS) | {"data": split.data, "seed": split.seed, "method": method, "asked": asked}
    row |= {"accuracy": own, "gap": float(gap), "ours_at_that_gap": ours, "lost": free - own}
    row |= {"kept": None if asked is None else gap <= Fraction(asked), "test_rows": len(yes), "note": ""}
    return row | {"fit_seconds": 0.0, "predict_seconds": 0.0}


def exact_gap(yes: np.ndarray, groups: np.ndarray) -> Fraction:
    """The gap of rates, in fractions; of expected rates where decisions are drawn."""
    rates = []
    for label in np.unique(groups):
        mine = yes[groups == label]
        whole = set(np.unique(mine)) <= {0.0, 1.0}
        rates.append(Fraction(int(mine.sum())) / len(mine) if whole else Fraction(float(mine.mean())))
    return max(rates) - min(rates)


def accuracy(yes: np.ndarray, target: np.ndarray) -> float:
    """Expected, where decisions are drawn."""
    yes = np.asarray(yes, dtype=np.float64)
    return float(np.where(target == 1, yes, 1.0 - yes).mean())


def ordered(rows: list[Row]) -> list[Row]:
    """By data set, then as in the catalogue."""
    data, methods = list(DATA), [FREE, *(one.name for one in DECIDERS)]
    return sorted(
        rows,
        key=lambda row: (data.index(row["data"]), methods.index(row["method"]), row["asked"] or 0.0, row["seed"]),
    )


def points(rows: list[Row]) -> dict[tuple[str, str, float | None], list[Row]]:
    """Rows of each data set, method and tolerance, over the splits."""
    found: dict[tuple[str, str, float | None], list[Row]] = {}
    for row in rows:
        found.setdefault((row["data"], row["method"], row["asked"]), []).append(row)
    return found


def spread(values: list[float]) -> tuple[float, float]:
    """The mean over splits, and its standard error."""
    return mean(values), stdev(values) / len(values) ** 0.5


def targets(rows: list[Row]) -> list[Target]:
    """Whether ours keeps what was asked for, and is as accurate as any peer."""
    ours = {one.name for one in DECIDERS if one.ours} | {FREE}
    batches = [row for row in rows if row["method"] in (OURS, FITTED)]
    ran = points([row for row in rows if row["accuracy"] is not None])
    adult = {key[1:]: mine for key, mine in ran.items() if key[0] == "Adult"}
    peers = {key: mine for key, mine in adult.items() if key[0] not in ours}
    own = {row["seed"]: row["accuracy"] for row in adult[OURS, AIMED_AT]}
    ahead, ahead_there = [], []  # at the gap aimed at, and at the very gap of a peer
    for (_, asked), mine in peers.items():
        if len(mine) < 2:
            continue
        error = spread([row["accuracy"] for row in mine])[1]
        if mean(row["gap"] for row in mine) < AIMED_AT + 0.005:
            ahead.append(mean(own[row["seed"]] - row["accuracy"] for row in mine) + error)
        if asked == AIMED_AT:
            ahead_there.append(mean(row["ours_at_that_gap"] - row["accuracy"] for row in mine) + error)
    asked = f"decisions compared: Adult, a gap of {AIMED_AT}:"
    return [
        Target(
            "decisions compared: batches of ours whose gap exceeds the tolerance",
            sum(not row["kept"] for row in batches),
            0,
        ),
        *(
            Target(f"{asked} accuracy less that of the best peer less its error{where}", min(found), 0.0, at_least=True)
            for found, where in ((ahead, ""), (ahead_there, ", at that peer's gap"))
            if found
        ),
    ]


def write(rows: list[Row], args: Namespace) -> None:
    """The results as files."""
    write_csv(args.results / "decisions_compared.csv", rows)
    plot.draw(args.results / "decisions_compared.png", points(rows), list(DATA))
    (args.results / "decisions_compared.md").write_text(introduction(rows) + report(rows) + "\n")
    versions = {row["method"]: row["version"] for row in rows if row["version"]}
    write_settings(
        args.results / "decisions_compared.json", args, protected=PROTECTED, tolerances=TOLERANCES, versions=versions
    )


def introduction(rows: list[Row]) -> str:
    """What the table shows."""
    return (
        "# Decisions of nearly equal rates, compared\n\nRates of yes of women and men. Half of the rows "
        f"(of {MOST_ROWS:,} at most, drawn anew for each split) train boosted trees (scikit-learn's "
        "HistGradientBoostingClassifier), a fifth is for thresholds, the others test; means and standard errors over "
        f"{len({row['seed'] for row in rows})} random splits. All methods work on the scores of these trees, but for "
        "ExponentiatedGradient, which trains trees of its own on the same rows, 15 rounds at most, and needs no groups "
        "to predict. LinearPost and ours look at no targets, but for ours with a fitted threshold; the others choose "
        "by the targets of the rows for thresholds: by balanced accuracy AIF360, by accuracy the rest. "
        "ThresholdOptimizer, error-parity and ExponentiatedGradient draw decisions at random: their accuracy and gap "
        "are expected ones. The batch modes of ours see the scores and groups of all test rows together; whoever "
        "decides one person at a time, as the others do, is to be compared with the frozen thresholds.\n\n"
        "The gap is that on the test rows; *kept* says in how many splits it is within what was asked for. The column "
        "after it is the accuracy of ours (batch) at the very gap that the method has on the test rows, less its own: "
        "above 0, ours is ahead. Times are those of a machine that other work ran on: see other_cores in the CSV.\n\n"
        "![accuracy against the gap of rates](decisions_compared.png)\n\n"
    )


def report(rows: list[Row]) -> str:
    """A line for each method, data set and tolerance."""
    header = ("data", "method", "asked", "accuracy", "gap", "kept", "ours at that gap, less it", "fit, s", "predict, s")
    lines = []
    for (data, method, asked), mine in points(rows).items():
        label = (data, method, "-" if asked is None else f"{asked:g}")
        ran = [row for row in mine if row["accuracy"] is not None]
        if len(ran) < 2:
            lines.append((*label, mine[-1]["note"], *[""] * 5))
            continue
        own, ahead = (
            spread([row["accuracy"] for row in ran]),
            spread([row["ours_at_that_gap"] - row["accuracy"] for row in ran]),
        )
        lines.append(
            (
                *label,
                f"{own[0]:.4f} ± {own[1]:.4f}",
                f"{mean(row['gap'] for row in ran):.4f}",
                "-" if asked is None else f"{sum(bool(row['kept']) for row in ran)} of {len(mine)}",
                f"{ahead[0]:+.4f} ± {ahead[1]:.4f}",
                *(figure(mean(row[key] for row in ran)) for key in ("fit_seconds", "predict_seconds")),
            )
        )
    return markdown_table(header, lines)
