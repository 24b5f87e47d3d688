"""`fairlayer demo`: the whole story in about a minute, with no data at hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlayer.cli.terminal import note, say, show_table
from fairlayer.errors import InputError
from fairlayer.extras import needs
from fairlayer.tables.table_io import check_parent, replacing, save_frame

if TYPE_CHECKING:
    import numpy as np

    from fairlayer.cli.learning import Part, Setting, Trial

TRAINING_ROWS, TEST_ROWS = 12_000, 8_000
AT_ONCE = 4  # decisions of the stream
SYNTHETIC_SET = 17  # of the paper's 32


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where to write the report and the predictions.")
    ] = Path("demo"),
    parity: Annotated[float, typer.Option(metavar="TOL", min=0.0, help="The most that group means may differ.")] = 0.02,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed of the rows, the networks and the batches.")] = 0,
) -> int:
    """Train a network four ways, keep a stream of its decisions fair, and write a report.

    On Adult, where FAIRLAYER_DATA has it, and otherwise on one of the paper's synthetic sets, which is generated: no
    download, about a minute on two cores. The first run also compiles the solver, once per installation.
    """
    if output.exists() and not output.is_dir():
        raise InputError(f"-o: {output} is a file: name a folder.")
    check_parent(output)
    import torch

    from fairlayer import MeanParity
    from fairlayer.audit import audit
    from fairlayer.cli.learning import Setting
    from fairlayer.cli.reporting import write_reports

    torch.set_num_threads(2)
    train, test, bounds, classify = _data(seed)
    names = " and ".join(test.groups)
    say(f"Mean parity {parity:g} on {names}; {len(train):,} rows to train, {len(test):,} to test.\n")
    setting = Setting([MeanParity(parity)], classify, bounds, seed, epochs=30, patience=4)
    trials = _train(setting, train, test)
    comparison, layer = [entry.row for entry in trials], trials[-1]
    show_table(list(comparison[0]), [list(row.values()) for row in comparison], "1. Four ways, on the test rows")
    raw, fair = layer.outputs
    satisfied = _stream(setting, raw, test)
    result = audit(
        fair,
        test.groups,
        list(setting.constraints),
        targets=test.y,
        raw=raw,
        history=layer.model.history_,
        comparison=comparison,
        seed=seed,
    )
    output.mkdir(exist_ok=True)
    with replacing(output / "predictions.csv") as temporary:
        save_frame(_predictions(test, raw, fair), temporary)
        write_reports(result, page=output / "report.html", card=output / "model-card.md")
    protected = " ".join(f"--protected {name}" for name in test.groups)
    say(f"3. The report: {output / 'report.html'}. {result.headline}\n")
    say("Try next:")
    say(f"  fairlayer audit {output / 'predictions.csv'} --prediction prediction --raw raw --target target \\")
    say(f"    {protected} --parity {parity:g} -o audit.html")
    return 0 if result.satisfied and satisfied else 1


def _data(seed: int) -> tuple[Part, Part, Any, bool]:
    """Rows to train and to test on, the bounds of outputs, and whether they are probabilities."""
    import numpy as np

    from fairlayer import datasets
    from fairlayer.cli.learning import Part

    has_adult = any(entry.name == "adult" and entry.present for entry in datasets.available())
    data = datasets.adult(fetch=False) if has_adult else datasets.synthetic(SYNTHETIC_SET, corrected=True)
    say(f"{data.name}: {data.description}")
    order = np.random.default_rng(seed).permutation(len(data))[: TRAINING_ROWS + TEST_ROWS]
    rows = data.rows(order)
    groups = {str(name): rows.protected[name].to_numpy() for name in rows.protected.columns}
    whole = Part(rows.features, rows.target.to_numpy().astype(np.float64), groups)
    positions = np.arange(len(rows))
    classify = data.task == "classification"
    bounds = (0.0, 1.0) if classify else data.bounds
    return whole.rows(positions[:TRAINING_ROWS]), whole.rows(positions[TRAINING_ROWS:]), bounds, classify


def _train(setting: Setting, train: Part, test: Part) -> list[Trial]:
    """Every method on the same rows, the layer last."""
    from fairlayer.cli.learning import TITLES, trial

    trials = []
    for name in ("unconstrained", "projection", "penalty", "layer"):
        note(f"Training: {TITLES[name]} ...")
        trials.append(trial(setting, name, train, test))
    return trials


def _stream(setting: Setting, raw: np.ndarray, test: Part) -> bool:
    """Decide the test rows a few at a time: the gap of all of them so far stays within the tolerance."""
    from fairlayer import Stream

    stream = Stream(list(setting.constraints), setting.bounds)
    tolerance = float(setting.constraints[0].tolerance)
    largest, above, batches = 0.0, 0, 0
    for start in range(0, len(raw), AT_ONCE):
        rows = slice(start, start + AT_ONCE)
        solution = stream.update(raw[rows], {name: labels[rows] for name, labels in test.groups.items()})
        gap = max(map(abs, solution.gaps.tolist()), default=0.0)
        largest, above, batches = max(largest, gap), above + (gap > tolerance), batches + 1
    say(f"2. The same network, {AT_ONCE} decisions at a time, kept fair by the ledger: the gap of all decisions so far")
    say(f"was above the tolerance after {above} of {batches:,} batches; it was {largest:.6g} at most.\n")
    say(str(stream.certificate()))
    say()
    return above == 0


def _predictions(test: Part, raw: np.ndarray, fair: np.ndarray) -> Any:
    """What was predicted, as a table that `fairlayer audit` takes."""
    with needs("The demo", "pandas"):
        import pandas as pd
    return pd.DataFrame({**test.groups, "target": test.y, "raw": raw, "prediction": fair})
