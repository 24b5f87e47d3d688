"""`fairlayer demo`: the whole story in about a minute, on credit decisions about real people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlayer.cli.terminal import note, say, show_table
from fairlayer.errors import InputError
from fairlayer.extras import needs
from fairlayer.tables.table_io import check_parent, replacing, save_frame

if TYPE_CHECKING:
    import numpy as np

    from fairlayer.cli.learning import Part, Trial

TRAINING_ROWS = 500
EPOCHS = 40
APPROVED = 0.5  # the score from which credit is granted
CONFIDENCE = 0.95
MODELS = (  # what is tried: its name, the model, and how it is made fair
    ("boosted trees, made fair", "boosting", "projection"),
    ("network, made fair", "network", "projection"),
    ("network, trained through the layer", "network", "layer"),
)


def demo(output: Path = Path("demo"), parity: float = 0.08, rate: float = 0.02, seed: int = 0) -> int:
    """Decide on credit for people of a German bank, fairly by sex and age, and write a report.

    The data come with the package: no download, about a minute on two cores. The first run also compiles the solver,
    once per installation.

    --output, -o FOLDER: Where to write the report and the predictions.
    --parity TOL >= 0: The most that group means may differ.
    --rate TOL >= 0: The most that approval rates may differ.
    --seed N >= 0: Seed of the rows and the models.
    """
    if output.exists() and not output.is_dir():
        raise InputError(f"-o: {output} is a file: name a folder.")
    check_parent(output)
    import torch

    from fairlayer import MeanParity, project
    from fairlayer.audit import audit
    from fairlayer.cli.reporting import write_reports

    torch.set_num_threads(2)
    train, people = _data(seed)
    say(f"{len(train):,} applicants to learn from, {len(people):,} to decide on. Who will repay?\n")
    constraint = MeanParity(parity)
    trials = _train(constraint, train, people, seed)
    comparison = [entry.row for entry in trials]
    title = f"1. Scores: group means within {parity:g}"
    show_table(list(comparison[0]), [list(row.values()) for row in comparison], title)
    raw = trials[0].outputs.raw
    kept = _decide(raw, people, rate) and _stream(raw, people, rate)
    settled = project(raw, people.groups, [constraint], bounds=(0.0, 1.0), confidence=CONFIDENCE)
    result = audit(
        settled.value,
        people.groups,
        [constraint],
        targets=people.y,
        raw=raw,
        threshold=APPROVED,
        comparison=comparison,
        seed=seed,
    )
    output.mkdir(exist_ok=True)
    with replacing(output / "predictions.csv") as temporary:
        save_frame(_predictions(people, raw, settled.value), temporary)
        write_reports(result, page=output / "report.html", card=output / "model-card.md")
    wide, narrow = _change(settled.value, raw), _change(trials[0].outputs.fair, raw)
    say("4. A promise that reaches the population, and what it costs\n")
    say(f"{settled.margin}")
    say(f"Scores move by {wide:.4f} (root mean square) for that, and by {narrow:.4f} for these applicants alone.\n")
    say(f"The report: {output / 'report.html'}. {result.headline}\n")
    say("Try next:")
    say(f"  fairlayer audit {output / 'predictions.csv'} --prediction prediction --raw raw --target repaid \\")
    say(f"    --protected sex,age --parity {parity:g} -o audit.html")
    return 0 if result.satisfied and kept else 1


def _data(seed: int) -> tuple[Part, Part]:
    """Applicants to learn from, and to decide on."""
    import numpy as np

    from fairlayer import german_credit
    from fairlayer.cli.learning import Part

    data = german_credit.load()
    say(f"German credit: {german_credit.DESCRIPTION} ({german_credit.LICENCE})")
    groups = {str(name): data.protected[name].to_numpy() for name in data.protected.columns}
    whole = Part(data.features, data.target.to_numpy().astype(np.float64), groups)
    order = np.random.default_rng(seed).permutation(len(whole))
    return whole.rows(order[:TRAINING_ROWS]), whole.rows(order[TRAINING_ROWS:])


def _train(constraint: Any, train: Part, people: Part, seed: int) -> list[Trial]:
    """Every model on the same rows; times leave out compiling."""
    from fairlayer.cli.learning import Setting, trial

    trials = []
    for title, model, method in MODELS:
        note(f"Training: {title} ...")
        setting = Setting([constraint], True, (0.0, 1.0), seed, epochs=EPOCHS, patience=6, model=model)
        found = trial(setting, method, train, people)
        raw, fair = found.outputs
        row = {
            "model": title,
            "accuracy": found.row["accuracy"],
            "gap before": setting.measure(raw, people).largest,
            "gap": found.row["gap"],
            "in these data": found.row["in these data"],
            "approved, by sex": _shares(fair, people.groups["sex"]),
            "seconds": found.row["seconds"],
        }
        trials.append(found._replace(row=row))
    return trials


def _shares(scores: np.ndarray, labels: np.ndarray) -> str:
    """Who is approved, by group."""
    return ", ".join(
        f"{label} {(scores[labels == label] >= APPROVED).mean():.0%}" for label in sorted(set(labels.tolist()))
    )


def _decide(raw: np.ndarray, people: Part, rate: float) -> bool:
    """The same for decisions: the nearest scores whose approval rates are nearly equal."""
    from fairlayer import RateParity, project

    solution = project(raw, people.groups, [RateParity(rate, threshold=APPROVED)], bounds=(0.0, 1.0))
    fair = solution.value
    other = int(((fair >= APPROVED) != (raw >= APPROVED)).sum())
    rows = [
        [
            name,
            float(((scores >= APPROVED) == (people.y > 0.5)).mean()),
            *(_shares(scores, labels) for labels in people.groups.values()),
        ]
        for name, scores in (("boosted trees, as they are", raw), ("with nearly equal rates", fair))
    ]
    title = f"2. Decisions: approval rates within {rate:g}"
    show_table(["model", "accuracy", *(f"approved, by {name}" for name in people.groups)], rows, title)
    say(f"{other} of {len(raw)} people get another answer. {solution.status.value}\n")
    return bool((abs(solution.gaps) <= rate + 1e-12).all())


def _stream(raw: np.ndarray, people: Part, rate: float) -> bool:
    """Decide one applicant after the other; no decision can be taken back."""
    from fairlayer import RateParity, Stream

    stream = Stream([RateParity(rate, threshold=APPROVED)], (0.0, 1.0))
    for i in range(len(raw)):
        stream.update(raw[i : i + 1], {name: labels[i : i + 1] for name, labels in people.groups.items()})
    certificate = stream.certificate()
    say("3. The same applicants one at a time, each decision final: a ledger keeps the rates of all so far together.\n")
    say(f"{certificate}\n")
    return bool(certificate.kept)


def _change(fair: np.ndarray, raw: np.ndarray) -> float:
    return float(((fair - raw) ** 2).mean() ** 0.5)


def _predictions(people: Part, raw: np.ndarray, fair: np.ndarray) -> Any:
    """What was predicted, as a table that `fairlayer audit` takes."""
    with needs("The demo", "pandas"):
        import pandas as pd
    return pd.DataFrame({**people.groups, "repaid": people.y, "raw": raw, "prediction": fair})
