"""`fairlayer predict`: fair predictions for new rows, together, one after another, or each by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fairlayer.cli import interrupts
from fairlayer.cli.terminal import MOST_SHOWN, note, say, show_gaps, show_table
from fairlayer.errors import InputError, StoreError
from fairlayer.plural import plural
from fairlayer.tables.table_io import (
    Source,
    check_format,
    check_output,
    check_parent,
    open_source,
    points_for_commas,
    read_frame,
    replacing,
    save_frame,
)

if TYPE_CHECKING:
    import numpy as np

    from fairlayer.binding.constraint_set import ConstraintSet
    from fairlayer.frozen.frozen import Frozen
    from fairlayer.layer import FairLayer
    from fairlayer.stream import Stream
    from fairlayer.tables.schema import Schema

    Write = Callable[[np.ndarray, np.ndarray], None]  # takes raw and fair outputs

Mode = Literal["batch", "stream", "frozen", "blind"]  # how predictions are made fair


def predict(
    model: Path,
    data: Path,
    output: Path,
    mode: Mode | None = None,
    new_groups: bool = False,
    state: str | None = None,
    stream: str = "default",
    batch_size: int = 0,
    batch_id: str | None = None,
    warm_start: Path | None = None,
    prefix: str = "",
) -> int:
    """Predict new rows with a model folder.

    Writes the rows as they are, with the columns `prediction`, `probability` (for classes; of three and more one for
    each, such as `probability_high`) and `raw`, what the model said before it was made fair. A stream that is
    interrupted continues where it stopped: its state is durable. The exit code is about what the mode promises: frozen
    mode promises nothing for a single file, so there it is 0.

    `fairlayer predict model/ new.csv -o out.csv --mode stream --state decisions.db`

    MODEL: A folder that `fairlayer fit` wrote.
    DATA: A CSV or Parquet file with new rows, one or many.
    --output, -o FILE: Where to write the rows with their predictions.
    --mode: `batch`, the default: the rows of the file satisfy the constraints together, exactly. `stream`: they do
    together with all rows of earlier calls, kept in --state. `frozen`: each row is moved by the shift that training
    found for its groups, whatever else is in the file; gaps are near the tolerance over many rows, and the gap of this
    file is printed. Constraints on residuals leave only `frozen`. `blind`: no protected attribute is looked at; the one
    mode of models fitted with --serving blind.
    --new-groups: Accept groups that the model was not trained with, and compare them like the others. Without it they
    are refused, as they are often misspellings.
    --prefix TEXT: Put this before the names of the columns added.

    With --mode stream:
    --state FILE: The SQLite file (or postgresql:// URL) that keeps its decisions.
    --stream NAME: The name of the stream within --state.
    --batch-size ROWS >= 0: How many rows are decided at a time; 0 for all at once.
    --batch-id TEXT: A name for these rows. Sent again under that name, they get the same predictions and count once.
    --warm-start FILE: A CSV or Parquet file of past rows. A new stream learns from them how the groups differ, before
    its first decision. They are not decided, and do not count.
    """
    check_format(output, "-o")
    check_output(output, data)
    _check_mode(mode, state, batch_id, batch_size)
    if warm_start is not None and mode != "stream":
        raise InputError("--warm-start belongs to --mode stream: add it.")
    if state is not None and Path(state).absolute() in (output.absolute(), data.absolute()):
        raise InputError(f"--state: {state} is the table itself: name another file.")

    from fairlayer.estimators import folder
    from fairlayer.estimators.estimator import projection_of
    from fairlayer.records import from_plain
    from fairlayer.tables.schema import Schema

    interrupts.check()
    kept = folder.read_table(model)
    if kept is None:
        raise InputError(f"{model} was not written by `fairlayer fit`: it does not say what its columns mean.")
    schema = from_plain(Schema, kept["schema"])
    estimator = folder.load(model)
    projection = projection_of(estimator.layer_)
    blind = estimator.serving == "blind"
    source, frame = _read(data, schema, not blind and (projection is not None or mode == "stream"))
    for name in [prefix + name for name in schema.added]:
        if name in source.columns:
            raise InputError(
                f"{data} has a column {name!r} already: pass --prefix fair_ to give the new columns other names."
            )
    rows = Rows.read(frame, schema)
    chosen = _choose(mode, estimator, projection, rows, data)
    if rows.groups is not None and not blind and (projection is not None or chosen == "stream"):
        _check_known(rows.groups, schema, chosen, new_groups)
    with replacing(output) as temporary:

        def write(raw: np.ndarray, fair: np.ndarray) -> None:
            threshold = getattr(estimator, "threshold_", None)
            for name, values in schema.predicted(raw, fair, threshold).items():
                frame[prefix + name] = values
            save_frame(frame.rename(columns=source.repeated), temporary)
            interrupts.finish()

        if chosen == "stream":
            past = None if warm_start is None else _past(warm_start, estimator, schema)
            assert state is not None  # checked with the mode
            with _leaving_nothing_undecided(state, stream):
                named = {"classes": schema.classes} if schema.classes else {}
                decisions = estimator.stream(state, stream, warm_start=past, **named)
                if past is not None and decisions.certificate().samples:
                    note(
                        f"Stream {stream!r} has made decisions already: --warm-start is for new streams, and was "
                        "ignored."
                    )
                code = _by_stream(decisions, estimator.raw_outputs(rows.X), rows, batch_size, batch_id, write)
        else:
            code = _by_model(estimator, rows, chosen, projection, write, schema)
    note(f"Wrote {len(frame):,} {plural(len(frame), 'row')} to {output}.{points_for_commas(source)}")
    return code


def _read(path: Path, schema: Schema, needs_groups: bool) -> tuple[Source, Any]:
    """A file and its rows, which are to be predicted; refused where it lacks what the model looks at."""
    needed = {*schema.features, *schema.attributes, schema.target}  # others may have one name
    source = open_source(path, may_repeat=lambda name: name not in needed, decimal_commas=schema.decimal_commas)
    for name in schema.features:
        source.check(name, "The model needs a feature that is missing")
    for name in schema.attributes if needs_groups else ():
        source.check(name, "The model needs the protected attribute of every row, to know how to move it")
    return source, read_frame(source)


@dataclass(frozen=True)
class Rows:
    """The rows of a file as the model takes them; groups and targets are None where the file lacks them."""

    X: Any
    groups: dict[str, np.ndarray] | None
    targets: np.ndarray | None

    @classmethod
    def read(cls, frame: Any, schema: Schema) -> Rows:
        """What a file holds."""
        from fairlayer.tables.entries import is_number, without_missing
        from fairlayer.tables.schema import target_values

        groups = schema.groups(frame) if all(name in frame.columns for name in schema.attributes) else None
        targets = None
        if schema.target in frame.columns and without_missing(frame[schema.target]).notna().all():
            column = frame[schema.target]
            if schema.task == "classification" or is_number(column):
                targets = target_values(column, schema.task, schema.positive, schema.classes)
        return cls(schema.inputs(frame), groups, targets)


def _check_mode(mode: Mode | None, state: str | None, batch_id: str | None, batch_size: int) -> None:
    if mode == "stream":
        if state is None:
            raise InputError("--mode stream: add --state decisions.db, the file that keeps the stream.")
        if "://" not in state:
            check_parent(Path(state), "--state")
            if Path(state).is_dir():
                raise InputError(f"--state: {state} is a folder: name a file.")
    elif state is not None or batch_id is not None or batch_size:
        raise InputError("--state, --batch-id and --batch-size belong to --mode stream: add it.")


def _choose(mode: Mode | None, estimator: Any, projection: FairLayer | None, rows: Rows, data: Path) -> Mode:
    """The mode asked for, or batch; refused where it could promise nothing."""
    if estimator.serving == "blind":
        if mode not in (None, "blind"):
            raise InputError(
                f"--mode {mode}: the model was fitted with --serving blind, and looks at no protected attribute: leave "
                "--mode out."
            )
        return "blind"
    if mode == "blind":
        raise InputError("--mode blind: the model looks at protected attributes: fit one with --serving blind.")
    rules = estimator.layer_.rules
    if rules.needs_targets and (projection is not None or mode == "stream"):
        if mode not in (None, "frozen"):
            raise InputError(
                f"--mode {mode}: {rules.needs_targets} compares predictions with targets, which are known only later: "
                "use --mode frozen, which moves each row by the shift that training found for its groups."
            )
        return "frozen"
    if mode is None and projection is not None:
        assert rows.groups is not None
        for name, labels in rows.groups.items():
            if len(set(labels.tolist())) < 2:
                raise InputError(
                    f"{data} has only one group of {name}, {labels[0]!r}, so there is nothing to compare it with. "
                    "Choose a mode: --mode frozen moves each row by the shift that training found for its groups, "
                    "--mode stream compares it with earlier files, --mode batch leaves it as it is."
                )
    return mode or "batch"


def _check_known(groups: dict[str, np.ndarray], schema: Schema, mode: Mode, new_groups: bool) -> None:
    """Refuse groups that the model was not trained with."""
    for entry in schema.labels:
        name = entry.attribute.column
        new = [label for label in dict.fromkeys(groups[name].tolist()) if label not in entry.known]
        if not new:
            continue
        listed = ", ".join(map(repr, new[:5]))
        if mode == "frozen":
            raise InputError(
                f"--mode frozen: {name} {listed}: the model was not trained with this group, so there is nothing to "
                f"move it by. It knows {', '.join(map(repr, entry.known))}. Use --mode batch, or fit again with such "
                "rows, or with --merge-rare."
            )
        if not new_groups:
            raise InputError(
                f"{name} {listed}: the model was not trained with this group. It knows "
                f"{', '.join(map(repr, entry.known))}. Correct the spelling, or add --new-groups to accept it."
            )
        note(f"{name}: {listed} is new to the model, and compared like the other groups.")


def _check_combinations(frozen: Frozen, rows: Rows) -> None:
    """Refuse combinations of groups that are compared by themselves and that training did not have."""
    codes = frozen.encode(rows.groups, rows.X, unseen="unshifted")
    met = (frozen.membership(codes).sum(dim=0) > 0) & ~frozen.seen
    new = [name for name, is_new in zip(frozen.group_names(), met.tolist(), strict=True) if is_new]
    if new:
        raise InputError(
            f"--mode frozen: {'; '.join(new[:5])}: the model was not trained with this combination of groups, so there "
            "is nothing to move it by. Use --mode batch, or fit again with such rows."
        )


def _by_model(estimator: Any, rows: Rows, mode: Mode, projection: Any, write: Write, schema: Schema) -> int:
    """Predict all rows; the exit code."""
    from fairlayer.cli.learning import outputs

    estimator.serving = mode
    if mode == "frozen" and projection is not None:
        _check_combinations(estimator.frozen_, rows)
    raw, fair = outputs(estimator, rows.X, rows.groups)
    write(raw, fair)
    if mode == "batch" and projection is not None:
        solution = projection.solution
        assert solution is not None
        named, classes = solution.rows, schema.classes
        if classes:  # whose numbers end the names of rows, class by class
            each = len(named) // len(classes)
            named = [f"{row.rpartition(', class ')[0]}, class {classes[k // each]}" for k, row in enumerate(named)]
        gaps = dict(zip(named, solution.gaps.tolist(), strict=True))
        show_table(["constraint", "gap"], sorted(gaps.items(), key=lambda entry: -abs(entry[1]))[:MOST_SHOWN])
        margin = "" if solution.margin is None else f" {solution.margin}"
        say(f"Mode: batch. {solution.status.value}{margin}")
        return 0 if solution.satisfied and solution.rows else 1
    if projection is None:
        aim = "without the constraints" if estimator.method == "unconstrained" else "towards the constraints"
        say(f"The model was trained {aim}. Its outputs are not moved, and nothing is promised for a single file.")
    elif mode == "blind":
        say(
            "Mode: blind. Each row was moved by how likely its groups are, as its features tell; no protected "
            "attribute was looked at. The promise is about the population, and nothing is promised for a single file. "
            f"{estimator.frozen_.certificate}"
        )
    else:
        decided = "decided by the threshold" if projection.rules.about_decisions else "moved by the shift"
        say(
            f"Mode: frozen. Each row was {decided} that training found for its groups, whatever else is in the file. "
            "Over many rows like the training data, gaps are near their tolerances; nothing is promised for a single "
            "file."
        )
    _show_left(fair, estimator.layer_.rules, rows, schema)
    return 0


def _show_left(fair: np.ndarray, rules: ConstraintSet, rows: Rows, schema: Schema) -> None:
    """Say which gaps are left in a file that was not promised any."""
    from fairlayer.audit.summary import exceeding
    from fairlayer.cli.reporting import words_for_classes
    from fairlayer.gaps import measure

    if rows.groups is None:
        say("The file has no protected attributes, so the gaps that remain cannot be measured.")
    elif rules.needs_targets and rows.targets is None:
        say("The file has no targets: once they are known, `fairlayer audit` measures the gaps that remain.")
    else:
        columns = [f"class {name}" for name in schema.classes]
        gaps = measure(fair, rules, rows.groups, rows.targets, rows.X, columns=columns)
        if not gaps.names:
            say("The file has no groups to compare, so there are no gaps.")
            return
        tolerance = 0.5 * (gaps.upper - gaps.lower)
        names = [words_for_classes(name, schema.numbered) for name in gaps.names] if schema.positive else gaps.names
        show_gaps(names, gaps.values.tolist(), tolerance.tolist())
        excess = abs(gaps.values) - tolerance
        beyond, worst = int((excess > 0.0).sum()), int(excess.argmax())
        compared = f"{abs(gaps.values[worst]):.4g} for a tolerance of {tolerance[worst]:g}"
        if beyond:
            say(f"In this file {exceeding(beyond, len(gaps.names))}: at worst, {compared}.")
        else:
            say(f"In this file every gap is within its tolerance: at worst, {compared}.")


def _past(path: Path, estimator: Any, schema: Schema) -> tuple[Any, ...]:
    """What the model says of past rows, their groups and their features."""
    _, frame = _read(path, schema, needs_groups=True)
    X = schema.inputs(frame)
    return estimator.raw_outputs(X), schema.groups(frame), X


@contextmanager
def _leaving_nothing_undecided(state: str, name: str) -> Iterator[None]:
    """A stream that this command made goes with it, file and all, where it ends before anything was decided."""
    from fairlayer.stream.sql import forget_undecided, stream_names

    made = "://" not in state and not Path(state).exists()
    if not made:
        with suppress(StoreError):  # which the stream itself will report
            made = name not in stream_names(state)
    try:
        yield
    except BaseException:
        if made:
            with suppress(StoreError):  # what is left is an empty stream: the error that ended the command says more
                forget_undecided(state, name)
        raise


def _by_stream(
    stream: Stream, raw: np.ndarray, table: Rows, batch_size: int, batch_id: str | None, write: Write
) -> int:
    """Decide the rows one batch after another, with all that was decided before.

    They are durable once they have been written to a file, which gets its name after that: a decision that somebody
    can see is in the ledger.
    """
    import numpy as np

    groups = table.groups
    assert groups is not None
    fair = np.empty_like(raw)
    size = batch_size or len(raw)
    with stream.transaction():
        for start in range(0, len(raw), size):
            rows = slice(start, start + size)
            label = batch_id if batch_id is None or size >= len(raw) else f"{batch_id}/{start // size}"
            part = {column: labels[rows] for column, labels in groups.items()}
            fair[rows] = stream.update(raw[rows], part, label, features=table.X.iloc[rows]).value
        write(raw, fair)
    certificate = stream.certificate()
    stream.close()
    say(str(certificate))
    return 1 if certificate.broken else 0  # the first decision has nothing to be compared with
