"""Whether `confidence=` of a projection reaches the population: samples drawn again and again from Adult."""

import time
from argparse import Namespace
from typing import Any

import numpy as np

from experiments import datasets
from fairlayer import FairLayer, MeanParity, audit, freeze, project
from fairlayer.audit import Verdict
from fairlayer.estimators.models import make_estimator
from fairlayer.metrics import mean_parity_difference
from records import Target, figure, markdown_table, write_csv, write_settings

CONFIDENCE = 0.95
TRAIN = 8000
SETTINGS = (  # what is protected, tolerance, rows of a sample
    ("sex", 0.02, 2000),
    ("sex", 0.05, 2000),
    ("sex", 0.05, 8000),
)
TITLE = f"""# A margin for the population

The population is the 16,281 test rows of Adult, with the probabilities of boosted trees trained on {TRAIN:,} other
rows. From it samples are drawn with replacement, and projected with confidence {CONFIDENCE}. The shift that each group
got is then applied to the whole population. *exceeded*: samples for which the population's gap is above the tolerance,
among those whose margin says that it is kept (*settled*). *satisfied*: samples whose audit says that the population
keeps it. *without*: the share of all samples for which it is exceeded when no confidence is asked for.

"""


def main(args: Namespace) -> list[Target]:
    """Draw, project, apply the shifts to everybody."""
    train, people = (datasets.adult().part(name) for name in ("train", "test"))
    rows = np.random.default_rng(args.seed).permutation(len(train.target))[:TRAIN]
    model = make_estimator("boosting", train.features, True, 0)
    model.fit(train.features.iloc[rows], np.asarray(train.target)[rows])
    z = model.predict_proba(people.features)[:, 1]
    draws = 20 if args.quick else 500
    found = [
        resample(z, people.protected, *setting, draws, np.random.default_rng((args.seed, number)))
        for number, setting in enumerate(SETTINGS)
    ]
    write_csv(args.results / "margin.csv", found)
    lines = [[figure(cell) if isinstance(cell, float) else cell for cell in row.values()] for row in found]
    header = [name.replace("_", " ") for name in found[0]]
    (args.results / "margin.md").write_text(TITLE + markdown_table(header, lines) + "\n")
    write_settings(args.results / "margin.json", args, confidence=CONFIDENCE, draws=draws)
    targets = []
    for row in found:
        title = f"margin, {row['protected']}, tolerance {row['tolerance']}, {row['rows']} rows: share of"
        if row["settled"]:
            share = row["exceeded"] / row["settled"]
            targets.append(Target(f"{title} {row['settled']} settled samples exceeded", share, 1 - CONFIDENCE))
        if row["tolerance"] == 0.05:  # where there are samples enough
            satisfied = row["satisfied"] / draws
            targets.append(Target(f"{title} samples with the verdict satisfied", satisfied, 0.5, at_least=True))
    return targets


def resample(
    z: np.ndarray, protected: Any, what: str, tolerance: float, n: int, draws: int, random: np.random.Generator
) -> dict[str, Any]:
    """What the margins of many samples of n rows come to."""
    began = time.perf_counter()
    labels, constraint = protected[what].to_numpy(dtype=object), MeanParity(tolerance)
    settled = exceeded = satisfied = without = 0
    aims = []

    def population_gap(rows: np.ndarray, aim: float) -> float:
        layer = FairLayer([MeanParity(aim)], bounds=(0.0, 1.0))
        frozen = freeze(layer, z[rows], {what: labels[rows]}, confidence=None)
        return mean_parity_difference(None, frozen.predict(z, {what: labels}), sensitive_features=labels)

    for _ in range(draws):
        rows = random.integers(0, len(z), n)
        groups = {what: labels[rows]}
        solution = project(z[rows], groups, [constraint], bounds=(0.0, 1.0), confidence=CONFIDENCE)
        assert solution.margin is not None
        without += population_gap(rows, tolerance) > tolerance
        aims.append(solution.margin.aimed[0])
        if solution.margin.settled:
            settled += 1
            exceeded += population_gap(rows, solution.margin.aimed[0]) > tolerance
        result = audit(solution.value, groups, [constraint], bounds=(0.0, 1.0), confidence=CONFIDENCE, tradeoff=False)
        satisfied += result.verdict is Verdict.SATISFIED
    row = {
        "protected": what,
        "tolerance": tolerance,
        "rows": n,
        "draws": draws,
        "settled": settled,
        "satisfied": satisfied,
        "exceeded": exceeded,
        "mean_aim": float(np.mean(aims)),
        "without": without / draws,
    }
    print(f"  {row}, {time.perf_counter() - began:.0f} s", flush=True)
    return row
