"""Fair classifiers on Adult: income from census records, sex and race protected, mean parity 0.02 on probabilities."""

import csv
import json
import time
import warnings
from argparse import Namespace
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from experiments import datasets
from experiments.baselines import AugmentedLagrangian, Penalty, penalty_of
from experiments.strength import select_strength
from fairlayer import FairModel, MeanParity
from fairlayer.estimators.models import TableNumbers, make_estimator
from fairlayer.estimators.scores import Probability, network, network_scores
from fairlayer.metrics import mean_parity_difference
from fairlayer.sklearn import FairClassifier
from fairlayer.training import Batch, StratifiedBatches, batches
from fairlayer.training import fit as fit_network
from measure import OtherWork
from records import Target, figure, markdown_table, write_csv, write_settings

TOLERANCE = 0.02
BATCH = 1000  # of test rows
STRENGTHS = (0.03, 0.1, 0.3, 1.0, 3.0)  # of the penalty
CURVATURES = (0.3, 1.0, 3.0)  # of the augmented Lagrangian
SEEDS = 2
MOST_SECONDS, MOST_LOST = 60.0, 0.015
HEADER = {
    "method": "method",
    "accuracy": "accuracy",
    "auc": "AUC",
    "gap": "gap of means, whole test set",
    "batch_gap": f"worst batch of {BATCH}",
    "pooled_gap": "the same batches pooled",
    "decision_gap": "gap of decisions",
    "fit_seconds": "fit, s",
}

Predict = Callable[[Any, Any], np.ndarray]  # features and protected columns -> probabilities of income above 50,000


class Fitted(NamedTuple):
    """A model to judge."""

    predict: Predict
    note: str = ""
    serve: Callable[[], Predict] | None = None  # a new one that remembers its batches, where there is such


def main(args: Namespace) -> list[Target]:
    """Fit every method with several seeds and judge it on the published test rows."""
    data = datasets.adult()
    train, test = data.part("train"), data.part("test")
    if args.quick:
        random = np.random.default_rng(args.seed)
        train = train.rows(random.choice(len(train), 12_000, replace=False))
    asked = [name for name in METHODS if not args.peers or any(text in name for text in args.peers)]
    kept = [row for row in measured_before(args.results) if args.peers and row["method"] not in asked]
    rows = list(kept)
    for seed in range(args.seed, args.seed + (1 if args.quick else SEEDS)):
        for name in asked:
            fit = METHODS[name]
            others, began = OtherWork(), time.perf_counter()
            fitted = fit(train, seed)
            seconds = time.perf_counter() - began
            taken = {"fit_seconds": seconds, "other_cores": others.cores()}
            row = {"method": name, "seed": seed, **judge(fitted, test, name in RANDOMISED), **taken}
            row |= {"note": fitted.note, "date": datetime.now(UTC).date().isoformat()}
            rows.append(row)
            print(
                f"  {name}: " + ", ".join(f"{k} {figure(row[k])}" for k in list(HEADER)[1:]) + f" {fitted.note}",
                flush=True,
            )
    rows.sort(key=lambda row: (row["seed"], list(METHODS).index(row["method"])))
    write_csv(args.results / "adult.csv", rows)
    averages = {name: average([row for row in rows if row["method"] == name]) for name in METHODS}
    lines = [[name, *(figure(row[key]) for key in list(HEADER)[1:])] for name, row in averages.items()]
    (args.results / "adult.md").write_text(introduction(rows) + markdown_table(tuple(HEADER.values()), lines) + "\n")
    write_settings(
        args.results / "adult.json",
        args,
        tolerance=TOLERANCE,
        batch=BATCH,
        strengths=STRENGTHS,
        curvatures=CURVATURES,
        versions={name: version(name) for name in ("scikit-learn", "fairlearn", "pandas", "numpy")},
    )
    if any(row["method"] in JUDGED for row in kept):
        return []  # what was not measured now is not judged anew
    ours, free, stream = (averages[name] for name in ("fairness layer", "unconstrained", "fairness layer, stream"))
    trees, free_trees = (averages[f"boosted trees, {how}"] for how in ("projection", "unconstrained"))
    most = TOLERANCE * (1 + 1e-9)
    return [
        Target("Adult: largest gap of means on the whole test set", ours["worst_gap"], most),
        Target("Adult: largest gap of means in a test batch", ours["worst_batch_gap"], most),
        Target("Adult, stream: largest gap of means in a test batch", stream["worst_batch_gap"], most),
        Target("Adult, stream: gap of means, the same batches pooled", stream["worst_pooled_gap"], most),
        Target(
            "Adult: accuracy lost against the unconstrained network", free["accuracy"] - ours["accuracy"], MOST_LOST
        ),
        Target("Adult, boosted trees: largest gap of means in a test batch", trees["worst_batch_gap"], most),
        Target(
            "Adult, boosted trees: accuracy lost against the unconstrained trees",
            free_trees["accuracy"] - trees["accuracy"],
            MOST_LOST,
        ),
        Target(
            "Adult: seconds to fit the default classifier, beside whatever else ran", ours["fit_seconds"], MOST_SECONDS
        ),
    ]


def measured_before(results: Path) -> list[dict[str, Any]]:
    """What a former run wrote; --peers measures some methods anew and leaves the others as they were."""
    path = results / "adult.csv"
    if not path.exists():
        return []
    date = json.loads((results / "adult.json").read_text())["date"][:10]
    with path.open(newline="") as file:
        rows = [{"date": date} | row for row in csv.DictReader(file) if row["method"] in METHODS]
    words = ("method", "note", "date")
    return [{k: v if k in words else int(v) if k == "seed" else float(v) for k, v in row.items()} for row in rows]


def introduction(rows: list[dict[str, Any]]) -> str:
    """What the table shows."""
    notes = "".join(f"* {row['method']}, seed {row['seed']}: {row['note']}\n" for row in rows if row["note"])
    dates = sorted({row["date"] for row in rows})
    for date in dates[:-1]:
        older = ", ".join(dict.fromkeys(row["method"] for row in rows if row["date"] == date))
        notes += f"* measured on {date}, and not again on {dates[-1]} with the others: {older}\n"
    return (
        "# Fair classifiers on Adult\n\nIncome above 50,000 dollars from census records; 32,561 rows to train, "
        f"16,281 to test. Sex and race are protected, each by itself: mean probabilities may differ by {TOLERANCE}. "
        "The same network, data and training for every method but boosted trees (scikit-learn's "
        "HistGradientBoostingClassifier) and fairlearn's ExponentiatedGradient, which needs "
        "weighted samples and gets scikit-learn's network of the same size. fairlearn's methods constrain decisions, "
        "not probabilities, in the intersections of sex and race; their probability is that of a positive decision, "
        "which is drawn at random, so accuracy and gaps are expected ones. "
        f"Means over {len({row['seed'] for row in rows})} seeds; batches are stratified by sex and race, in which "
        'groups may still be small or absent; "stream" enters them in a ledger that keeps each batch and all '
        "together. Times are those of a machine that other work ran on too: see the "
        "column other_cores of the CSV.\n\n" + notes + "\n"
    )


def average(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Mean over seeds, and the worst gaps."""
    means = {key: float(np.mean([row[key] for row in rows])) for key in list(HEADER)[1:]}
    return means | {f"worst_{key}": max(row[key] for row in rows) for key in ("gap", "batch_gap", "pooled_gap")}


def judge(fitted: Fitted, test: datasets.Dataset, randomised: bool) -> dict[str, float]:
    """Figures on the test rows, predicted together and in batches; expected ones where decisions are random."""
    p = fitted.predict(test.features, test.protected)
    serve = fitted.serve() if fitted.serve else fitted.predict
    decided = p if randomised else (p > 0.5).astype(float)
    y = test.target.to_numpy()
    batches = list(StratifiedBatches({name: test.protected[name] for name in test.protected}, BATCH, seed=0))
    in_batches = np.full(len(p), np.nan)
    worst = 0.0
    for rows in batches:
        rows = np.asarray(rows)
        part = serve(test.features.iloc[rows], test.protected.iloc[rows])
        in_batches[rows] = part
        worst = max(worst, gap(part, test.protected.iloc[rows]))
    seen = ~np.isnan(in_batches)
    return {
        "accuracy": float(np.where(y == 1, decided, 1.0 - decided).mean()),
        "auc": float(roc_auc_score(y, p)),
        "gap": gap(p, test.protected),
        "batch_gap": worst,
        "pooled_gap": gap(in_batches[seen], test.protected[seen]),
        "decision_gap": gap(decided, test.protected),
    }


def gap(values: np.ndarray, protected: Any) -> float:
    return mean_parity_difference(None, values, sensitive_features=protected)


def fit_ours(
    train: datasets.Dataset, seed: int, method: Any = "layer", kind: str = "network", serving: str = "batch"
) -> Fitted:
    """A FairClassifier; its batches projected, moved by frozen shifts, or put in a ledger. method: None for neither."""
    model = FairClassifier(
        [] if method is None else [MeanParity(TOLERANCE)],
        estimator=make_estimator(kind, train.features, True, seed),
        method=method or "projection",
        serving="frozen" if serving == "frozen" else "batch",
        random_state=seed,
    )
    model.fit(train.features, train.target, sensitive_features=train.protected)

    def predict(features: Any, protected: Any) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Some groups are absent")
            return model.predict_proba(features, sensitive_features=protected)[:, 1]

    def serve() -> Predict:
        stream = model.stream(each_batch=True)
        return lambda features, protected: stream.update(model.raw_outputs(features), protected).value

    return Fitted(predict, serve=serve if serving == "stream" else None)


def fit_baseline(train: datasets.Dataset, seed: int, layer: Any) -> Fitted:
    """The network of FairClassifier, trained as it trains it, with a baseline in the place of the layer."""
    encoder = TableNumbers().fit(train.features)
    inputs, n = encoder.transform(train.features).astype(np.float32), len(train)
    groups = {name: train.protected[name].to_numpy() for name in train.protected}
    sample = Batch(inputs, train.target.to_numpy(np.float32), groups)
    held, used = np.split(np.random.default_rng(seed).permutation(n), [n // 10])
    size = int(np.clip(n // 20, 32, 512))
    torch.manual_seed(seed)
    model = FairModel(Probability(network(inputs.shape[1], (64, 64), None)), layer)
    fit_network(
        model,
        batches(*sample.rows(used), batch_size=size, shuffle=True, stratify=True, seed=seed),
        batches(*sample.rows(held)),
        loss=lambda output, target: (output - target) ** 2,
        penalty=penalty_of(model),
        epochs=200,
        patience=8,
    )
    model.double()
    return Fitted(lambda features, protected: network_scores(encoder, model, features))


def fit_selected(
    train: datasets.Dataset, seed: int, method: Callable[..., Any], knob: str, grid: tuple[float, ...], rule: Any
) -> Fitted:
    """A method whose knob is chosen on a tenth of the training rows, held back for that; its fits are all timed."""
    order = np.random.default_rng(seed).permutation(len(train))
    held, used = train.rows(order[: len(train) // 10]), train.rows(order[len(train) // 10 :])
    fitted: dict[float, Fitted] = {}

    def attempt(value: float) -> Any:
        fitted[value] = fit_baseline(used, seed, method([MeanParity(TOLERANCE)], (0.0, 1.0), **{knob: value}))
        p = fitted[value].predict(held.features, held.protected)
        found = gap(p, held.protected)
        return SimpleNamespace(loss=float(((p - held.target) ** 2).mean()), gap=found, excess=found - TOLERANCE)

    selection = select_strength(attempt, grid, rule=rule, fallback="gap", lazy=True)
    met = "meets" if selection.satisfied else "does not meet"
    note = f"{knob} {selection.strength:g} of {grid}, {met} the tolerance on held-out rows"
    return fitted[selection.strength]._replace(note=note)


def fit_threshold_optimizer(train: datasets.Dataset, seed: int) -> Fitted:
    """fairlearn's thresholds per group, randomised, on the unconstrained network's probabilities."""
    from fairlearn.postprocessing import ThresholdOptimizer

    base = FairClassifier([], random_state=seed).fit(train.features, train.target)
    model = ThresholdOptimizer(
        estimator=base, constraints="demographic_parity", prefit=True, predict_method="predict_proba"
    )
    model.fit(train.features, train.target, sensitive_features=train.protected)
    return Fitted(lambda features, protected: model._pmf_predict(features, sensitive_features=protected)[:, 1])


def fit_exponentiated_gradient(train: datasets.Dataset, seed: int) -> Fitted:
    """fairlearn's reduction to a sequence of weighted fits."""
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient
    from sklearn.neural_network import MLPClassifier

    prepare = TableNumbers().fit(train.features)
    inputs = prepare.transform(train.features)
    network = MLPClassifier((64, 64), batch_size=512, max_iter=10, random_state=seed)
    model = ExponentiatedGradient(network, DemographicParity(difference_bound=TOLERANCE), max_iter=10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ten epochs each: the network says that it could go on
        model.fit(inputs, train.target, sensitive_features=train.protected)
    note = f"{len(model.predictors_)} networks of 10 epochs each"
    return Fitted(lambda features, protected: model._pmf_predict(prepare.transform(features))[:, 1], note)


JUDGED = (
    *("unconstrained", "fairness layer", "fairness layer, stream"),
    *("boosted trees, unconstrained", "boosted trees, projection"),
)
RANDOMISED = ("ThresholdOptimizer", "ExponentiatedGradient")
METHODS: dict[str, Callable[..., Fitted]] = {
    "unconstrained": partial(fit_ours, method=None),
    "fairness layer": fit_ours,
    "fairness layer, stream": partial(fit_ours, serving="stream"),
    "fairness layer, frozen": partial(fit_ours, serving="frozen"),
    "projection": partial(fit_ours, method="projection"),
    "boosted trees, unconstrained": partial(fit_ours, method=None, kind="boosting"),
    "boosted trees, projection": partial(fit_ours, method="projection", kind="boosting"),
    "boosted trees, stream": partial(fit_ours, method="projection", kind="boosting", serving="stream"),
    "boosted trees, frozen": partial(fit_ours, method="projection", kind="boosting", serving="frozen"),
    "penalty": partial(fit_selected, method=Penalty, knob="strength", grid=STRENGTHS, rule="smallest"),
    "augmented Lagrangian": partial(
        fit_selected, method=AugmentedLagrangian, knob="curvature", grid=CURVATURES, rule="best"
    ),
    "ThresholdOptimizer": fit_threshold_optimizer,
    "ExponentiatedGradient": fit_exponentiated_gradient,
}
