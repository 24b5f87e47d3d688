"""`fairlayer predict`: fair predictions for new rows, together, one after another, or each by itself."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlayer.cli.terminal import note, say, show_table
from fairlayer.errors import InputError
from fairlayer.tables.table_io import (
    Source,
    check_format,
    check_output,
    check_parent,
    open_source,
    read_frame,
    replacing,
    save_frame,
)

if TYPE_CHECKING:
    import numpy as np

    from fairlayer.layer import FairLayer
    from fairlayer.stream import Stream
    from fairlayer.tables.schema import Schema

    Write = Callable[[np.ndarray, np.ndarray], None]  # takes raw and fair outputs

MOST_ROWS_SHOWN = 30
STREAM = "Of a stream"


class Mode(StrEnum):
    """How predictions are made fair."""

    BATCH = "batch"
    STREAM = "stream"
    FROZEN = "frozen"


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A folder that `fairlayer fit` wrote.")],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="A CSV or Parquet file with new rows, one or many.")],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="Where to write the rows with their predictions."),
    ],
    mode: Annotated[
        Mode | None,
        typer.Option(
            help="`batch`: the rows of the file satisfy the constraints together. `stream`: they do together with all "
            "rows of earlier calls, kept in --state. `frozen`: each row by itself, moved by what was learned in "
            "training. Default: batch where the file has two groups of every attribute or more, else frozen."
        ),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", rich_help_panel=STREAM, help="The SQLite file (or postgresql:// URL) of its decisions."
        ),
    ] = None,
    stream: Annotated[
        str, typer.Option(metavar="NAME", rich_help_panel=STREAM, help="Its name within --state.")
    ] = "default",
    batch_size: Annotated[
        int,
        typer.Option(metavar="ROWS", min=0, rich_help_panel=STREAM, help="Rows decided at a time; 0 for all at once."),
    ] = 0,
    batch_id: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            rich_help_panel=STREAM,
            help="A name for these rows. Sent again, they get the predictions they got, and count once.",
        ),
    ] = None,
    warm_start: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=STREAM,
            help="A CSV or Parquet file of past rows. A new stream learns from them how the groups differ, before its "
            "first decision. They are not decided, and do not count.",
        ),
    ] = None,
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="Put before the names of the columns added.")] = "",
) -> int:
    """Predict new rows with a model folder.

    Writes the rows as they are, with the columns `prediction`, `probability` (for classes) and `raw`, what the network
    said before it was made fair. A stream that is cut short goes on where it stood: its state is durable.

    `fairlayer predict model/ new.csv -o out.csv --mode stream --state decisions.db`
    """
    check_format(output, "-o")
    check_output(output, data)
    _check_mode(mode, state, batch_id, batch_size)
    if warm_start is not None and mode is not Mode.STREAM:
        raise InputError("--warm-start belongs to --mode stream: add it.")
    if state is not None and Path(state).absolute() in (output.absolute(), data.absolute()):
        raise InputError(f"--state: {state} is the table itself: name another file.")
    source = open_source(data)

    from fairlayer.estimators import folder
    from fairlayer.tables.schema import Schema

    kept = folder.read_table(model)
    if kept is None:
        raise InputError(f"{model} was not written by `fairlayer fit`: it does not say what its columns mean.")
    schema = Schema.from_data(kept["schema"])
    estimator = folder.load(model)
    projection = _projection(estimator.model_.layer)
    _check_columns(source, schema, projection is not None or mode is Mode.STREAM)
    added = [prefix + name for name in ("prediction", "probability", "raw")]
    for name in added:
        if name in source.columns:
            raise InputError(f"{data} has a column {name!r} already: pass --prefix fair_ to add others.")
    frame = read_frame(source)
    X = schema.inputs(frame)
    has_groups = all(name in source.columns for name in schema.attributes)
    groups = schema.groups(frame) if has_groups else None
    chosen = mode or _choose(projection, groups)
    _check_targets(chosen, estimator, projection)
    with replacing(output) as temporary:

        def write(raw: np.ndarray, fair: np.ndarray) -> None:
            for name, values in zip(added, _columns(schema, raw, fair), strict=True):
                if values is not None:
                    frame[name] = values
            save_frame(frame, temporary)

        if chosen is Mode.STREAM:
            past = None if warm_start is None else _past(warm_start, estimator, schema)
            decisions = estimator.stream(state, stream, warm_start=past)
            if past is not None and decisions.certificate().samples:
                note(f"Stream {stream!r} has made decisions before: --warm-start is for a new one, and was not used.")
            code = _by_stream(decisions, estimator.raw_outputs(X), X, groups, batch_size, batch_id, write)
        else:
            code = _by_model(estimator, X, groups, chosen, projection, write)
    note(f"Wrote {len(frame):,} rows to {output}.")
    return code


def _check_mode(mode: Mode | None, state: str | None, batch_id: str | None, batch_size: int) -> None:
    if mode is Mode.STREAM:
        if state is None:
            raise InputError("--mode stream: add --state decisions.db, the file that keeps the stream.")
        if "://" not in state:
            check_parent(Path(state), "--state")
            if Path(state).is_dir():
                raise InputError(f"--state: {state} is a folder: name a file.")
    elif state is not None or batch_id is not None or batch_size:
        raise InputError("--state, --batch-id and --batch-size belong to --mode stream: add it.")


def _projection(layer: Any) -> FairLayer | None:
    """What outputs pass through when predicting, if anything."""
    from fairlayer.layer import FairLayer
    from fairlayer.training import Projection

    if isinstance(layer, Projection):
        return layer.projection
    return layer if isinstance(layer, FairLayer) else None


def _check_columns(source: Source, schema: Schema, needs_groups: bool) -> None:
    """Refuse a file that lacks what the model looks at."""
    for name in schema.features:
        source.check(name, "The model needs a feature that is missing")
    for name in schema.attributes if needs_groups else ():
        source.check(name, "The model needs the protected attribute of every row, to know how to move it")


def _choose(projection: FairLayer | None, groups: dict[str, np.ndarray] | None) -> Mode:
    """Batch where there is somebody to compare with in the file and no targets are needed, else frozen."""
    if projection is None:
        return Mode.BATCH
    assert groups is not None
    if projection.rules.needs_targets:
        return Mode.FROZEN
    for name, labels in groups.items():
        if len(set(labels.tolist())) < 2:
            note(f"Mode: frozen, as the file has one group of {name} only, {labels[0]!r}.")
            return Mode.FROZEN
    return Mode.BATCH


def _check_known(groups: Any, known: Any) -> None:
    """Refuse groups for which no shift was learned."""
    for name, labels in known.items():
        for label in dict.fromkeys(groups[name].tolist()):
            if label not in labels:
                raise InputError(
                    f"--mode frozen: {name} {label!r} is a group that the model was not trained with: use --mode "
                    "batch, or fit again with such rows, or with --merge-rare."
                )


def _check_targets(mode: Mode, estimator: Any, projection: FairLayer | None) -> None:
    """Refuse to compare outputs with targets that are not known yet."""
    rules = projection.rules if projection is not None else estimator.model_.layer.rules
    if rules.needs_targets and mode is not Mode.FROZEN and (projection is not None or mode is Mode.STREAM):
        raise InputError(f"--mode {mode}: {rules.needs_targets} needs targets, which come later: use --mode frozen.")


def _by_model(estimator: Any, X: Any, groups: Any, mode: Mode, projection: Any, write: Write) -> int:
    """Predict all rows; the exit code."""
    from fairlayer.cli.learning import outputs

    estimator.serving = mode.value
    if mode is Mode.FROZEN and projection is not None:
        _check_known(groups, estimator.frozen_.labels)
    write(estimator.raw_outputs(X), outputs(estimator, X, groups))
    if projection is None:
        note("The network was trained towards the constraints; its outputs are not projected.")
        return 0
    if mode is Mode.FROZEN:
        note("Mode: frozen. Each row was moved by what was learned for its groups in training.")
        return 0
    solution = projection.solution
    assert solution is not None
    _show_gaps(dict(zip(solution.rows, solution.gaps.tolist(), strict=True)))
    say(f"Mode: batch. {solution.status.value}")
    return 0 if solution.satisfied and solution.rows else 1


def _past(path: Path, estimator: Any, schema: Schema) -> tuple[Any, ...]:
    """What the model says of past rows, their groups and their features."""
    source = open_source(path)
    _check_columns(source, schema, needs_groups=True)
    frame = read_frame(source)
    X = schema.inputs(frame)
    return estimator.raw_outputs(X), schema.groups(frame), X


def _by_stream(
    stream: Stream, raw: np.ndarray, X: Any, groups: Any, batch_size: int, batch_id: str | None, write: Write
) -> int:
    """Decide the rows one batch after another, with all that was decided before.

    They are durable once they have been written to a file, which gets its name after that: a decision that somebody
    can see is in the ledger.
    """
    import numpy as np

    fair = np.empty_like(raw)
    size = batch_size or len(raw)
    with stream.transaction():
        for start in range(0, len(raw), size):
            rows = slice(start, start + size)
            label = batch_id if batch_id is None or size >= len(raw) else f"{batch_id}/{start // size}"
            part = {column: labels[rows] for column, labels in groups.items()}
            fair[rows] = stream.update(raw[rows], part, label, features=X.iloc[rows]).value
        write(raw, fair)
    certificate = stream.certificate()
    stream.close()
    say(str(certificate))
    return 0 if certificate.satisfied else 1


def _show_gaps(gaps: dict[str, float]) -> None:
    worst = sorted(gaps.items(), key=lambda entry: -abs(entry[1]))[:MOST_ROWS_SHOWN]
    show_table(["row", "gap"], [[row, gap] for row, gap in worst])


def _columns(schema: Schema, raw: np.ndarray, fair: np.ndarray) -> tuple[Any, Any, Any]:
    """Predictions, probabilities (for classes), and raw outputs."""
    import numpy as np

    if schema.task == "regression":
        return fair, None, raw
    assert schema.positive is not None
    other = schema.negative if schema.negative is not None else f"not {schema.positive}"
    return np.where(fair > 0.5, schema.positive, other), fair, raw
