"""`./dev demo`: the main job in about a minute, on credit decisions about 1,000 applicants of a German bank.

Three models learn who will repay, and are made fair by sex and age; then the decisions are, all at once and one at a
time; then a promise is made about the population. The data come with the repository.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from experiments import german_credit
from fairlayer import MeanParity, RateParity, Stream, audit, project
from fairlayer.cli.reporting import write_reports
from fairlayer.cli.terminal import note, say, show_table
from fairlayer.errors import FairlayerError, InputError
from fairlayer.estimators.models import make_estimator
from fairlayer.sklearn import FairClassifier
from fairlayer.tables.table_io import check_parent

TRAINING_ROWS = 500
EPOCHS = 40
APPROVED = 0.5  # the score from which credit is granted
CONFIDENCE = 0.95
MODELS = (  # what is tried: its name, the model, and how it is made fair
    ("boosted trees, made fair", "boosting", "projection"),
    ("network, made fair", "network", "projection"),
    ("network, trained through the layer", "network", "layer"),
)


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; 0 if every promise is kept."""
    parser = argparse.ArgumentParser(prog="./dev demo", description="Decide on credit, fairly by sex and age.")
    parser.add_argument("-o", "--output", type=Path, default=Path("demo"), help="the folder to write the report to")
    parser.add_argument("--parity", type=float, default=0.08, help="the most that group means of scores may differ")
    parser.add_argument("--rate", type=float, default=0.02, help="the most that approval rates may differ")
    parser.add_argument("--seed", type=int, default=0, help="seed of the rows and the models")
    chosen = parser.parse_args(arguments)
    try:
        return demo(chosen.output, chosen.parity, chosen.rate, chosen.seed)
    except FairlayerError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2


def demo(output: Path, parity: float, rate: float, seed: int) -> int:
    """Show everything, and write the report."""
    if output.exists() and not output.is_dir():
        raise InputError(f"-o: {output} is a file: name a folder.")
    check_parent(output)
    torch.set_num_threads(2)
    data = german_credit.load()
    say(f"German credit: {german_credit.DESCRIPTION} ({german_credit.LICENCE})")
    order = np.random.default_rng(seed).permutation(len(data.target))
    train, new = (
        german_credit.GermanCredit(*(part.iloc[rows] for part in data)) for rows in np.split(order, [TRAINING_ROWS])
    )
    groups = {str(name): new.protected[name].to_numpy() for name in new.protected}
    repaid = new.target.to_numpy()
    say(f"{len(train.target):,} applicants to learn from, {len(repaid):,} to decide on. Who will repay?\n")

    rows, raw, narrow = [], np.zeros(0), 0.0
    for title, kind, method in MODELS:
        note(f"Training: {title} ...")
        began = time.perf_counter()
        model = _fit(kind, method, parity, train, seed)
        seconds = round(time.perf_counter() - began, 1)
        before, fair = model.outputs(new.features, sensitive_features=groups)
        gaps = [max(abs(project(scores, groups, [MeanParity(1.0)]).gaps)) for scores in (before, fair)]
        row = {"model": title, "accuracy": _accuracy(fair, repaid), "gap before": gaps[0], "gap": gaps[1]}
        rows.append({**row, "approved, by sex": _shares(fair, groups["sex"]), "seconds": seconds})
        if not len(raw):  # the trees go on
            raw, narrow = before, _change(fair, before)
    show_table(list(rows[0]), [list(row.values()) for row in rows], f"1. Scores: group means within {parity:g}")

    kept = _decide(raw, groups, repaid, rate) and _stream(raw, groups, rate)
    settled = project(raw, groups, [MeanParity(parity)], bounds=(0.0, 1.0), confidence=CONFIDENCE)
    result = audit(
        settled.value,
        groups,
        [MeanParity(parity)],
        targets=repaid,
        raw=raw,
        threshold=APPROVED,
        seed=seed,
    )
    output.mkdir(exist_ok=True)
    table = pd.DataFrame({**groups, "repaid": repaid, "raw": raw, "prediction": settled.value})
    table.to_csv(output / "predictions.csv", index=False)
    write_reports(result, page=output / "report.html", card=output / "model-card.md")
    say("4. A promise that reaches the population, and what it costs\n")
    say(f"{settled.margin}")
    wide = _change(settled.value, raw)
    say(f"Scores move by {wide:.4f} (root mean square) for that, and by {narrow:.4f} for these applicants alone.\n")
    say(f"The report: {output / 'report.html'}. {result.headline}\n")
    say("Try next:")
    say(f"  fairlayer audit {output / 'predictions.csv'} --prediction prediction --raw raw --target repaid \\")
    say(f"    --protected sex,age --parity {parity:g} -o audit.html")
    return 0 if result.satisfied and kept else 1


def _fit(kind: str, method: str, parity: float, train: Any, seed: int) -> FairClassifier:
    """A model of a kind, made fair by a method."""
    estimator = make_estimator(kind, train.features, True, seed)
    settings: dict[str, Any] = {"estimator": estimator}
    if estimator is None:
        settings = {"method": method, "max_epochs": EPOCHS, "patience": 6}
    model = FairClassifier([MeanParity(parity)], random_state=seed, **settings)
    groups = {str(name): train.protected[name].to_numpy() for name in train.protected}
    return model.fit(train.features, train.target, sensitive_features=groups)


def _decide(raw: np.ndarray, groups: dict[str, np.ndarray], repaid: np.ndarray, rate: float) -> bool:
    """The nearest scores whose approval rates are nearly equal; whether they are."""
    solution = project(raw, groups, [RateParity(rate, threshold=APPROVED)], bounds=(0.0, 1.0))
    other = int(((solution.value >= APPROVED) != (raw >= APPROVED)).sum())
    rows = [
        [name, _accuracy(scores, repaid), *(_shares(scores, labels) for labels in groups.values())]
        for name, scores in (("boosted trees, as they are", raw), ("with nearly equal rates", solution.value))
    ]
    header = ["model", "accuracy", *(f"approved, by {name}" for name in groups)]
    show_table(header, rows, f"2. Decisions: approval rates within {rate:g}")
    say(f"{other} of {len(raw)} people get another answer. {solution.status.value}\n")
    return bool((abs(solution.gaps) <= rate + 1e-12).all())


def _stream(raw: np.ndarray, groups: dict[str, np.ndarray], rate: float) -> bool:
    """Decide one applicant after the other, each decision final; whether the promise is kept."""
    stream = Stream([RateParity(rate, threshold=APPROVED)], (0.0, 1.0))
    for i in range(len(raw)):
        stream.update(raw[i : i + 1], {name: labels[i : i + 1] for name, labels in groups.items()})
    certificate = stream.certificate()
    say("3. The same applicants one at a time, each decision final: a ledger keeps the rates of all so far together.\n")
    say(f"{certificate}\n")
    return bool(certificate.kept)


def _accuracy(scores: np.ndarray, repaid: np.ndarray) -> float:
    return float(((scores >= APPROVED) == (repaid > 0.5)).mean())


def _shares(scores: np.ndarray, labels: np.ndarray) -> str:
    """Who is approved, by group."""
    shares = {label: (scores[labels == label] >= APPROVED).mean() for label in sorted(set(labels.tolist()))}
    return ", ".join(f"{label} {share:.0%}" for label, share in shares.items())


def _change(fair: np.ndarray, raw: np.ndarray) -> float:
    return float(((fair - raw) ** 2).mean() ** 0.5)


if __name__ == "__main__":
    sys.exit(main())
