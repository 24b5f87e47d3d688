"""`fairlayer predict`: fair predictions for new rows, together, one after another, or each by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fairlayer.cli import ignore_interrupts
from fairlayer.cli.options import option
from fairlayer.cli.output import note, say, show_gaps, words_for_classes
from fairlayer.errors import InputError, StoreError
from fairlayer.plural import plural
from fairlayer.tables import table_io

if TYPE_CHECKING:
    import numpy as np

    from fairlayer.frozen.frozen import Frozen
    from fairlayer.tables.schema import Rows, Schema

    Write = Callable[[np.ndarray, np.ndarray], None]  # takes raw and fair outputs

Mode = Literal["batch", "stream", "frozen", "blind"]
_stream = partial(option, panel="With --mode stream")


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A folder that `fairlayer fit` wrote.")],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="A CSV or Parquet file with new rows, one or many.")],
    output: Annotated[Path, option("FILE", "Write the rows and their predictions to this file.", "--output", "-o")],
    mode: Annotated[Mode | None, option(None, "How predictions are made fair; the default is `batch`.")] = None,
    new_groups: Annotated[bool, option(None, "Accept groups that training did not have.", "--new-groups")] = False,
    prefix: Annotated[str, option("TEXT", "Put this before the names of the new columns.")] = "",
    state: Annotated[str | None, _stream("FILE", "The SQLite file or postgresql:// URL of the stream.")] = None,
    stream: Annotated[str, _stream("NAME", "The name of the stream within --state.")] = "default",
    batch_size: Annotated[int, _stream("ROWS", "Decide this many rows at a time; 0 means all.", least=0)] = 0,
    batch_id: Annotated[str | None, _stream("TEXT", "A name for these rows: sent again, they count once.")] = None,
    warm_start: Annotated[Path | None, _stream("FILE", "Let a new stream learn from these past rows.")] = None,
) -> int:
    """Predict new rows with a model folder.

    Writes the rows as they are, with the new columns `prediction`, `probability` (for classes; for three or more, one
    each, such as `probability_high`) and `raw`, the output before it was made fair.

    Mode `batch`: the rows of the file keep the constraints together, exactly. `stream`: they do so together with the
    rows of all earlier calls; an interrupted stream continues where it stopped, and rows sent again under a --batch-id
    get the same answers. `frozen`: each row is moved by the shift that training found for its groups, whatever else is
    in the file; nothing is guaranteed for a single file, and the gap that remains is printed. It is the only mode for
    constraints on residuals. `blind`: no protected attribute is used; the only mode of models fitted with --serving
    blind. The exit code is about what the mode guarantees.

    `fairlayer predict model/ new.csv -o out.csv --mode stream --state decisions.db`
    """
    table_io.check_format(output, "-o")
    table_io.check_output(output, data)
    if mode == "stream":
        _check_state(state, output, data)
    elif state is not None or batch_id is not None or batch_size or warm_start is not None:
        raise InputError("--state, --batch-id, --batch-size and --warm-start belong to --mode stream: add it.")

    from fairlayer.constraints.plain_data import record_from_plain
    from fairlayer.estimators import folder
    from fairlayer.tables.schema import Schema

    kept = folder.read_table(model)
    if kept is None:
        raise InputError(f"{model} was not written by `fairlayer fit`: it does not say what its columns mean.")
    schema = record_from_plain(Schema, kept["schema"])
    estimator = folder.load(model)
    source, frame, rows = _read(data, schema, needs_groups=estimator.serving != "blind")
    for name in [prefix + name for name in schema.added]:
        if name in source.columns:
            raise InputError(
                f"{data} has a column {name!r} already: pass --prefix fair_ to give the new columns other names."
            )
    chosen = _choose_mode(mode, estimator, rows, data)
    if chosen != "blind":
        _check_known(rows, schema, chosen, new_groups)
    with table_io.replacing(output) as temporary:

        def write(raw: np.ndarray, fair: np.ndarray) -> None:
            for name, values in schema.predicted(raw, fair, getattr(estimator, "threshold_", None)).items():
                frame[prefix + name] = values
            table_io.save_frame(frame.rename(columns=source.repeated), temporary)
            ignore_interrupts()

        if chosen == "stream":
            assert state is not None  # checked with the mode
            past = None if warm_start is None else _read(warm_start, schema, needs_groups=True)[2]
            with _leaving_nothing_undecided(state, stream):
                code = _by_stream(estimator, rows, schema, (state, stream), past, batch_size, batch_id, write)
        else:
            code = _by_file(estimator, rows, schema, chosen, write)
    note(f"Wrote {len(frame):,} {plural(len(frame), 'row')} to {output}.{table_io.points_for_commas(source)}")
    return code


def _check_state(state: str | None, output: Path, data: Path) -> None:
    if state is None:
        raise InputError("--mode stream: add --state decisions.db, the file that keeps the stream.")
    if "://" not in state:
        if Path(state).absolute() == output.absolute():
            raise InputError(f"--state: {state} is the table itself: name another file.")
        table_io.check_output(Path(state), data, option="--state")


def _read(path: Path, schema: Schema, needs_groups: bool) -> tuple[table_io.Source, Any, Rows]:
    """A file, its frame, and its rows as the model takes them; groups and targets are None where the file has none."""
    needed = {*schema.features, *schema.attributes, schema.target}  # other columns may share a name
    source = table_io.open_source(
        path, may_repeat=lambda name: name not in needed, decimal_commas=schema.decimal_commas
    )
    for name in schema.features:
        source.check(name, "The model needs a feature that is missing")
    for name in schema.attributes if needs_groups else ():
        source.check(name, "The model needs the protected attribute of every row, to know how to move it")
    with table_io.TableFile(source, memory="8GB") as table:
        return source, table.query("SELECT * FROM data", fetch="df"), schema.read(table)


def _choose_mode(mode: Mode | None, estimator: Any, rows: Rows, data: Path) -> Mode:
    """The mode asked for, or the usual one; refused where it could guarantee nothing."""
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
    if rules.needs_targets:
        if mode not in (None, "frozen"):
            raise InputError(
                f"--mode {mode}: {rules.needs_targets} compares predictions with targets, which are known only later: "
                "use --mode frozen, which moves each row by the shift that training found for its groups."
            )
        return "frozen"
    for name, labels in rows.groups.items() if mode is None else ():
        if len(set(labels.tolist())) < 2:
            raise InputError(
                f"{data} has only one group of {name}, {labels[0]!r}, so there is nothing to compare it with. Choose a "
                "mode: --mode frozen moves each row by the shift that training found for its groups, --mode stream "
                "compares it with earlier files, --mode batch leaves it as it is."
            )
    return mode or "batch"


def _check_known(rows: Rows, schema: Schema, mode: Mode, new_groups: bool) -> None:
    """Refuse groups that the model was not trained with, unless they are asked for."""
    for entry in schema.labels:
        name = entry.attribute.column
        new = [label for label in dict.fromkeys(rows.groups[name].tolist()) if label not in entry.known]
        listed = f"{name} {', '.join(map(repr, new[:5]))}"
        if new and new_groups and mode != "frozen":
            note(f"{listed} is new to the model, and compared like the other groups.")
        elif new:
            remedy = "Correct the spelling, or add --new-groups to accept it."
            if mode == "frozen":
                remedy = "There is no shift for it: use --mode batch, or fit again with such rows or --merge-rare."
            raise InputError(
                f"{listed}: the model was not trained with this group. It knows {', '.join(map(repr, entry.known))}. "
                f"{remedy}"
            )


def _check_combinations(frozen: Frozen | None, rows: Rows) -> None:
    """Refuse combinations of groups that are compared by themselves and that training did not have."""
    if frozen is None:  # why is said when predicting
        return
    codes = frozen.encode(rows.groups, rows.X, unseen="unshifted")
    met = (frozen.membership(codes).sum(dim=0) > 0) & ~frozen.seen
    new = [name for name, is_new in zip(frozen.group_names(), met.tolist(), strict=True) if is_new]
    if new:
        raise InputError(
            f"--mode frozen: {'; '.join(new[:5])}: the model was not trained with this combination of groups, so there "
            "is no shift for it. Use --mode batch, or fit again with such rows."
        )


def _by_file(estimator: Any, rows: Rows, schema: Schema, mode: Any, write: Write) -> int:
    """Project all rows together, or move each by its groups or its features; the exit code."""
    from fairlayer.cli.learning import outputs

    rules, solution = estimator.layer_.rules, None
    if mode == "frozen":
        _check_combinations(estimator.frozen_, rows)
    raw, fair = outputs(estimator, rows.X, rows.groups, None if mode == "blind" else mode)
    write(raw, fair)
    if mode == "batch":
        _show_gaps(fair, rules, rows, schema)
        solution = estimator.layer_.solution
        say(f"Mode: batch. {solution.status.value}{'' if solution.margin is None else f' {solution.margin}'}")
        return 0 if solution.satisfied and solution.rows else 1
    if mode == "blind":
        say(
            "Mode: blind. Each row was moved by how likely its groups are given its features; no protected attribute "
            "was used. The guarantee is about the population; nothing is guaranteed for a single file. "
            f"{estimator.frozen_.certificate}"
        )
    else:
        decided = "decided by the threshold" if rules.about_decisions else "moved by the shift"
        say(
            f"Mode: frozen. Each row was {decided} that training found for its groups, whatever else is in the file. "
            "Over many rows like the training data, gaps are near their tolerances; nothing is guaranteed for a single "
            "file."
        )
    _show_remaining(fair, rules, rows, schema)
    return 0


def _show_remaining(fair: np.ndarray, rules: Any, rows: Rows, schema: Schema) -> None:
    """Say which gaps remain in a file without a guarantee."""
    from fairlayer.audit.summary import exceeding

    if rows.groups is None:
        say("The file has no protected attributes, so the gaps that remain cannot be measured.")
    elif rules.needs_targets and rows.y is None:
        say("The file has no targets: once they are known, `fairlayer audit` measures the gaps that remain.")
    elif not (found := _show_gaps(fair, rules, rows, schema)):
        say("The file has no groups to compare, so there are no gaps.")
    else:
        beyond = sum(gap > tolerance for gap, tolerance in found)
        gap, tolerance = max(found, key=lambda one: one[0] - one[1])
        kept = exceeding(beyond, len(found)) if beyond else "every gap is within its tolerance"
        say(f"In this file {kept}: at worst, {gap:.4g} for a tolerance of {tolerance:g}.")


def _show_gaps(fair: np.ndarray, rules: Any, rows: Rows, schema: Schema) -> list[tuple[float, float]]:
    """Show the gaps of outputs; their sizes and tolerances."""
    from fairlayer.gaps import measure

    gaps = measure(fair, rules, rows.groups, rows.y, rows.X, columns=[f"class {name}" for name in schema.classes])
    tolerances = (0.5 * (gaps.upper - gaps.lower)).tolist()
    names = [words_for_classes(name, schema.numbered) for name in gaps.names] if schema.positive else gaps.names
    show_gaps(names, gaps.values.tolist(), tolerances)
    return list(zip(abs(gaps.values).tolist(), tolerances, strict=True))


def _by_stream(
    estimator: Any,
    rows: Rows,
    schema: Schema,
    place: tuple[str, str],
    past: Rows | None,
    batch_size: int,
    batch_id: str | None,
    write: Write,
) -> int:
    """Decide the rows one batch after another, with all that was decided before; the exit code.

    The decisions become durable once they are written to a temporary file, which gets its name after that: a decision
    that somebody can see is in the ledger. place: the store, and the name of the stream.
    """
    import numpy as np

    taught = None if past is None else (estimator.raw_outputs(past.X), past.groups, past.X)
    named = {"classes": schema.classes} if schema.classes else {}
    stream = estimator.stream(*place, warm_start=taught, **named)
    if past is not None and stream.certificate().samples:
        note(f"Stream {place[1]!r} has made decisions already: --warm-start is for new streams, and was ignored.")
    raw = estimator.raw_outputs(rows.X)
    fair = np.empty_like(raw)
    size = batch_size or len(raw)
    with stream.transaction():
        for start in range(0, len(raw), size):
            some = slice(start, start + size)
            label = batch_id if batch_id is None or size >= len(raw) else f"{batch_id}/{start // size}"
            groups = {column: labels[some] for column, labels in rows.groups.items()}
            fair[some] = stream.update(raw[some], groups, label, features=rows.X.iloc[some]).value
        write(raw, fair)
    certificate = stream.certificate()
    stream.close()
    say(str(certificate))
    return 1 if certificate.broken else 0  # the first decision has nothing to be compared with


@contextmanager
def _leaving_nothing_undecided(state: str, name: str) -> Iterator[None]:
    """Remove a stream that this command made, file and all, where it ends before anything was decided."""
    from fairlayer.stream.store import forget_undecided, stream_names

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
