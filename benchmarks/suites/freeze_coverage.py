"""Whether the confidence of `freeze` is what it says: calibration samples drawn again and again from Adult."""

import time
from argparse import Namespace
from typing import Any

import numpy as np

from experiments import datasets
from fairlayer import FairLayer, InputError, MeanParity, freeze
from fairlayer.metrics import mean_parity_difference
from fairlayer.sklearn import FairClassifier
from records import Target, figure, markdown_table, write_csv, write_settings

CONFIDENCE = 0.95
SETTINGS = (  # what is protected, tolerance, calibration rows, whether tightened
    ("sex", 0.02, 1000, False),
    ("sex", 0.02, 4000, False),
    ("sex", 0.10, 4000, True),
    ("sex and race", 0.02, 4000, False),
)
TITLE = """# The confidence of frozen shifts

The population is the 16,281 test rows of Adult, with the probabilities of a network trained on the other rows. From it
calibration samples are drawn with replacement; each gives shifts and a statement, and the statement is wrong where the
population's true gap exceeds the stated one. Stated at confidence 0.95, at most 5 % may be wrong.

"""


def main(args: Namespace) -> list[Target]:
    """Draw, freeze, and compare the statement with the truth."""
    train, population = (datasets.adult().part(name) for name in ("train", "test"))
    model = FairClassifier([], random_state=args.seed % 2**31).fit(train.features, train.target)
    z = model.predict_proba(population.features)[:, 1]
    draws = 20 if args.quick else 500
    rows = [
        resample(z, population.protected, *setting, draws, np.random.default_rng((args.seed, number)))
        for number, setting in enumerate(SETTINGS)
    ]
    write_csv(args.results / "freeze_coverage.csv", rows)
    lines = [[figure(cell) if isinstance(cell, float) else cell for cell in row.values()] for row in rows]
    header = [name.replace("_", " ") for name in rows[0]]
    (args.results / "freeze_coverage.md").write_text(TITLE + markdown_table(header, lines) + "\n")
    write_settings(args.results / "freeze_coverage.json", args, confidence=CONFIDENCE, draws=draws)
    allowed = 1 - CONFIDENCE + 2 * np.sqrt(CONFIDENCE * (1 - CONFIDENCE) / draws)  # two standard errors
    return [
        Target(
            f"freeze, {row['protected']}, tolerance {row['tolerance']}, {row['rows']} rows"
            f"{', tightened' if row['tightened'] else ''}: share of {draws} statements that are wrong",
            row["wrong"] / max(1, draws - row["refused"]),
            allowed,
        )
        for row in rows
    ]


def resample(
    z: np.ndarray,
    protected: Any,
    what: str,
    tolerance: float,
    n: int,
    tighten: bool,
    draws: int,
    random: np.random.Generator,
) -> dict[str, Any]:
    """Statements from many calibration samples of n rows, beside the truth."""
    columns = {name: protected[name].to_numpy(dtype=object) for name in what.split(" and ")}
    layer = FairLayer([MeanParity(tolerance)], bounds=(0.0, 1.0))
    stated, true = [], []
    began = time.perf_counter()
    for seed in range(draws):
        rows = random.integers(0, len(z), n)
        sample = {name: column[rows] for name, column in columns.items()}
        try:
            frozen = freeze(layer, z[rows], sample, confidence=CONFIDENCE, tighten=tighten, seed=seed)
        except InputError:  # the sample is too small for the tolerance: nothing is stated
            continue
        assert frozen.certificate is not None
        stated.append(frozen.certificate.gap)
        served = frozen.predict(z, columns, unseen="unshifted")
        known = {name: np.isin(column, frozen.labels[name]) for name, column in columns.items()}
        true.append(
            max(
                mean_parity_difference(None, served[known[name]], sensitive_features=column[known[name]])
                for name, column in columns.items()
            )
        )
    row = {
        "protected": what,
        "tolerance": tolerance,
        "rows": n,
        "tightened": tighten,
        "draws": draws,
        "refused": draws - len(stated),
        "wrong": int(np.sum(np.array(true) > np.array(stated))),
        "mean_stated_gap": float(np.mean(stated)) if stated else None,
        "mean_true_gap": float(np.mean(true)) if true else None,
        "largest_true_gap": float(np.max(true)) if true else None,
    }
    print(f"  {row}, {time.perf_counter() - began:.0f} s", flush=True)
    return row
