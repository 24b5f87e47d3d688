"""Equal rates of decisions beside fairlearn: accuracy at the same gap of rates on test rows, over several splits.

Boosted trees are trained once for each split; `RateParity` and fairlearn's ThresholdOptimizer work on their scores.
fairlearn's ExponentiatedGradient trains models of its own, smaller ones on some of the rows, or it would take too long.
Needs the data sets, FAIRLAYER_DATA.
"""

import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from fractions import Fraction
from importlib.metadata import version
from statistics import mean, stdev
from typing import Any, NamedTuple

import numpy as np
from fairlearn.postprocessing import ThresholdOptimizer
from fairlearn.reductions import DemographicParity, ExponentiatedGradient
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingClassifier

from fairlayer import FairLayer, RateParity, datasets, freeze, project
from fairlayer.estimators.encoder import Encoder
from fairlayer.estimators.models import make_estimator
from measure import OtherWork
from records import Target, figure, markdown_table, write_csv, write_settings

DATA: dict[str, Callable[[], datasets.Dataset]] = {
    "Adult": datasets.adult,
    "German credit": datasets.german,
    "credit card": datasets.credit_card,
    "ACS": datasets.acs,
}
PROTECTED = "sex"
SPLITS = 5
SHARES = (0.5, 0.2)  # of the rows: to train, and to fit thresholds; the others are to test
MOST_ROWS = 15_000  # of a data set, drawn anew for each split
TOLERANCES = (0.01, 0.02, 0.05, 0.1)
AIMED_AT = 0.02
REDUCED = 5_000  # rows, at most, that ExponentiatedGradient trains on
TREES, ROUNDS = 20, 5  # of each of its models, and how many of these at most
OURS, FROZEN, FREE = "fairlayer, batch", "fairlayer, frozen thresholds", "no constraint"
OPTIMIZER, GRADIENT = "ThresholdOptimizer", "ExponentiatedGradient"


class Split(NamedTuple):
    """Scores of the trees on the rows for thresholds and on the test rows, and what else methods look at."""

    data: str
    seed: int
    base: Any
    parts: list[datasets.Dataset]  # to train, for thresholds, to test
    fit_seconds: float

    def scores(self, part: int) -> np.ndarray:
        """Probabilities of the second class."""
        return self.base.predict_proba(self.parts[part].features)[:, 1].astype(np.float64)

    def groups(self, part: int) -> np.ndarray:
        """The protected attribute."""
        return self.parts[part].protected[PROTECTED].to_numpy()


class Decided(NamedTuple):
    """Probabilities of a yes for the test rows (0 or 1 where nothing is drawn), and how long it took."""

    method: str
    asked: float | None  # the gap that was asked for
    yes: np.ndarray
    fit_seconds: float
    predict_seconds: float


def main(args: Namespace) -> list[Target]:
    """Every method on every split."""
    data = {name: load() for name, load in DATA.items()}
    rows: list[dict[str, Any]] = []

    def wanted(peer: str) -> bool:
        return not args.peers or any(text in peer for text in args.peers)

    for number in range(2 if args.quick else SPLITS):
        for name, table in data.items():
            rows += measure(make_split(name, table, args.seed + number, args.quick), wanted)
            print(f"  split {number}, {name}: {rows[-1]['method']}, {figure(rows[-1]['accuracy'])}", flush=True)
        if number:  # what there is so far, with its errors
            write(rows, args)
    broken = sum(row["method"] == OURS and not row["kept"] for row in rows)
    adult = [row for row in rows if row["data"] == "Adult"]
    ours = mean(row["accuracy"] for row in adult if (row["method"], row["asked"]) == (OURS, AIMED_AT))
    return [
        Target("decisions compared: batches of ours whose gap exceeds the tolerance", broken, 0),
        Target(
            f"decisions compared: Adult, accuracy at a gap of {AIMED_AT} less that of the best peer less its error",
            ours - best_peer(adult),
            0.0,
            at_least=True,
        ),
    ]


def measure(split: Split, wanted: Callable[[str], bool]) -> list[dict[str, Any]]:
    """Every method on one split."""
    others, rows = OtherWork(), []
    target, groups, scores = split.parts[2].target.to_numpy() == 1, split.groups(2), split.scores(2)
    for decided in methods(split, wanted):
        gap = exact_gap(decided.yes, groups)
        ours = project(scores, {PROTECTED: groups}, RateParity(float(gap))).value >= 0.5
        row = {"data": split.data, "seed": split.seed, "method": decided.method, "asked": decided.asked}
        row |= {"accuracy": accuracy(decided.yes, target), "gap": float(gap)}
        row |= {"kept": None if decided.asked is None else gap <= Fraction(decided.asked)}
        row |= {"ours_at_that_gap": accuracy(ours.astype(float), target), "trees_seconds": split.fit_seconds}
        row |= {"fit_seconds": decided.fit_seconds, "predict_seconds": decided.predict_seconds}
        rows.append(row | {"test_rows": len(target), "other_cores": others.cores()})
    return rows


def write(rows: list[dict[str, Any]], args: Namespace) -> None:
    """The results as files."""
    write_csv(args.results / "decisions_compared.csv", rows)
    (args.results / "decisions_compared.md").write_text(introduction(rows) + report(rows) + "\n")
    write_settings(
        args.results / "decisions_compared.json",
        args,
        protected=PROTECTED,
        tolerances=TOLERANCES,
        versions={name: version(name) for name in ("scikit-learn", "fairlearn")},
    )


def best_peer(rows: list[dict[str, Any]]) -> float:
    """The best accuracy, less its standard error, of fairlearn's methods whose gap is 0.02 or less, to two digits."""
    found = []
    for method, asked in dict.fromkeys((row["method"], row["asked"]) for row in rows):
        mine = [row for row in rows if (row["method"], row["asked"]) == (method, asked)]
        if method in (OPTIMIZER, GRADIENT) and mean(row["gap"] for row in mine) < AIMED_AT + 0.005:
            found.append([row["accuracy"] for row in mine])
    best = max(found, key=mean)
    return mean(best) - error_of(best)


def make_split(name: str, data: datasets.Dataset, seed: int, quick: bool) -> Split:
    """Three parts at random, and trees trained on the first."""
    order = np.random.default_rng(seed).permutation(len(data))
    order = order[: 3_000 if quick else MOST_ROWS]
    ends = (np.cumsum(SHARES) * len(order)).astype(int)
    parts = [data.rows(rows) for rows in np.split(order, ends)]
    base = make_estimator("boosting", parts[0].features, True, seed)
    began = time.perf_counter()
    base.fit(parts[0].features, parts[0].target)
    return Split(name, seed, base, parts, time.perf_counter() - began)


def methods(split: Split, wanted: Callable[[str], bool]) -> Iterator[Decided]:
    """All that is compared; of fairlearn, what is wanted."""
    scores, groups = split.scores(2), split.groups(2)
    yield Decided(FREE, None, (scores >= 0.5).astype(float), 0.0, 0.0)
    project(scores[:100], {PROTECTED: groups[:100]}, RateParity(0.1))  # compiled before the clock starts
    for tolerance in TOLERANCES:
        began = time.perf_counter()
        fair = project(scores, {PROTECTED: groups}, RateParity(tolerance)).value
        yield Decided(OURS, tolerance, (fair >= 0.5).astype(float), 0.0, time.perf_counter() - began)
    calibration = split.scores(1)
    began = time.perf_counter()
    layer = FairLayer([RateParity(AIMED_AT)], bounds=(0, 1))
    frozen = freeze(layer, calibration, {PROTECTED: split.groups(1)}, confidence=None)
    fitted = time.perf_counter()
    fair = frozen.predict(scores, {PROTECTED: groups})
    yield Decided(FROZEN, AIMED_AT, (fair >= 0.5).astype(float), fitted - began, time.perf_counter() - fitted)
    if wanted(OPTIMIZER):
        yield threshold_optimizer(split)
    if wanted(GRADIENT):
        yield exponentiated_gradient(split, AIMED_AT)


class Scores(BaseEstimator):  # type: ignore[misc]
    """Scores as an estimator, for what wants one: the same numbers as for ours, computed beforehand."""

    def fit(self, x: Any, y: Any) -> Any:
        """Nothing to learn."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict(self, x: Any) -> np.ndarray:
        """The scores themselves."""
        return np.asarray(x)[:, 0]


def threshold_optimizer(split: Split) -> Decided:
    """fairlearn's randomised thresholds for equal rates, fitted on the rows for thresholds."""
    model = ThresholdOptimizer(
        estimator=Scores(), constraints="demographic_parity", prefit=True, predict_method="predict"
    )
    before, after = split.scores(1)[:, None], split.scores(2)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the scores are no estimator of scikit-learn
        began = time.perf_counter()
        model.fit(before, split.parts[1].target.to_numpy(), sensitive_features=split.groups(1))
        fitted = time.perf_counter()
        yes = model._pmf_predict(after, sensitive_features=split.groups(2))[:, 1]
    return Decided(OPTIMIZER, 0.0, yes, fitted - began, time.perf_counter() - fitted)


def exponentiated_gradient(split: Split, bound: float) -> Decided:
    """fairlearn's reduction to weighted fits, of small trees on some of the rows."""
    train, test = split.parts[0], split.parts[2]
    some = train.rows(np.arange(min(REDUCED, len(train))))
    encoder = Encoder.fit(some.features)
    trees = HistGradientBoostingClassifier(max_iter=TREES, random_state=split.seed)
    model = ExponentiatedGradient(trees, DemographicParity(difference_bound=bound), max_iter=ROUNDS)
    x = encoder.transform(some.features)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.perf_counter()
        model.fit(x, some.target.to_numpy(), sensitive_features=some.protected[PROTECTED].to_numpy())
        fitted = time.perf_counter()
        yes = model._pmf_predict(encoder.transform(test.features))[:, 1]
    return Decided(GRADIENT, bound, yes, fitted - began, time.perf_counter() - fitted)


def exact_gap(yes: np.ndarray, groups: np.ndarray) -> Fraction:
    """The gap of rates, in fractions; expected rates where decisions are drawn."""
    rates = []
    for label in np.unique(groups):
        mine = yes[groups == label]
        whole = set(np.unique(mine)) <= {0.0, 1.0}
        rates.append(Fraction(int(mine.sum())) / len(mine) if whole else Fraction(float(mine.mean())))
    return max(rates) - min(rates)


def accuracy(yes: np.ndarray, target: np.ndarray) -> float:
    """Expected, where decisions are drawn."""
    return float(np.where(target, yes, 1.0 - yes).mean())


def error_of(values: list[float]) -> float:
    """The standard error of a mean over splits."""
    return stdev(values) / len(values) ** 0.5


def introduction(rows: list[dict[str, Any]]) -> str:
    """What the table shows."""
    reduced = (
        f"ExponentiatedGradient trains up to {ROUNDS} models of {TREES} trees on {REDUCED:,} rows at most, and never "
        "sees groups of test rows: its models are smaller than the others'."
        if any(row["method"] == GRADIENT for row in rows)
        else "ExponentiatedGradient was left out of this run."
    )
    return (
        "# Decisions of nearly equal rates, compared\n\nRates of yes of women and men. Half of the rows "
        f"(of {MOST_ROWS:,} at most, drawn anew for each split) train boosted "
        "trees (scikit-learn's HistGradientBoostingClassifier), a fifth is for thresholds, the others test; means and "
        f"standard errors over {len({row['seed'] for row in rows})} random splits. ThresholdOptimizer and "
        "ExponentiatedGradient are fairlearn's; they draw decisions at random, so accuracy and gap are expected ones. "
        f"{reduced} The column before the times is the accuracy of ours at the very gap that the method has on the "
        "test rows, less its own. Times are those of a machine that other work ran on: see other_cores in the CSV.\n\n"
    )


def report(rows: list[dict[str, Any]]) -> str:
    """A line for each method and data set."""
    header = ("data", "method", "gap asked for", "accuracy", "gap", "ours at that gap, less it", "fit, s", "predict, s")
    lines = []
    for data, method, asked in dict.fromkeys((row["data"], row["method"], row["asked"]) for row in rows):
        mine = [row for row in rows if (row["data"], row["method"], row["asked"]) == (data, method, asked)]
        accuracies = [row["accuracy"] for row in mine]
        ahead = [row["ours_at_that_gap"] - row["accuracy"] for row in mine]
        lines.append(
            (
                data,
                method,
                "-" if asked is None else asked,
                f"{mean(accuracies):.4f} ± {error_of(accuracies):.4f}",
                f"{mean(row['gap'] for row in mine):.4f}",
                f"{mean(ahead):+.4f} ± {error_of(ahead):.4f}",
                *(figure(mean(row[key] for row in mine)) for key in ("fit_seconds", "predict_seconds")),
            )
        )
    return markdown_table(header, lines)
