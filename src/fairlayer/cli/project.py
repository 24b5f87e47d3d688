"""`fairlayer project`: make the scores of a whole table fair, whatever its size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fairlayer.cli import options
from fairlayer.cli.terminal import note, say, show_gaps, steps
from fairlayer.errors import InfeasibleError, InputError
from fairlayer.tables.table_io import (
    TableFile,
    check_format,
    check_output,
    is_csv,
    open_source,
    points_for_commas,
)

if TYPE_CHECKING:
    from fairlayer.constraints import Constraint
    from fairlayer.tables.project_file import ProjectedFile


def project(
    data: Path,
    score: str,
    protected: list[str],
    output: Path,
    wanted: options.Wanted,
    target: str | None = None,
    bounds: tuple[float, float] | None = None,
    keep_raw: str | None = None,
) -> int:
    """Move scores as little as possible so that the constraints hold over the whole table, in exact arithmetic.

    All other columns and the order of the rows are kept. The table is read in passes, a part at a time, so it may be
    larger than memory; scores and groups are kept on disk beside the output meanwhile, 12 bytes per row. With --rate
    and --rate-ratio the scores, but not the table, have to fit in memory. What was written is read again and checked.
    From CSV to Parquet, columns of numbers and dates get their types.

    `fairlayer project scores.parquet --score p --protected sex --parity 0.02 --bounds 0 1 -o fair.parquet`

    DATA: A CSV or Parquet file of any size.
    --score, --prediction COLUMN: The column of scores to make fair.
    --output, -o FILE: Where to write the table, as CSV or Parquet.
    --keep-raw NAME: Keep the scores as they were in a column of this name.
    """
    box = options.read_bounds(bounds)
    wanted.check_threshold()
    wanted.check_kinds()
    wanted.check_target(target, "scores")
    check_format(output, "-o")
    check_output(output, data)
    source = open_source(data, as_text=is_csv(output))  # types are not for CSV, but they are for Parquet
    attributes = options.read_attributes(protected, source)
    for name, option in ((score, "--score"), (target, "--target")):
        if name is not None:
            source.check(name, option)
    if score in [attribute.column for attribute in attributes]:
        raise InputError(f"--score: column {score!r} is protected too: the scores that are moved cannot be groups.")
    if keep_raw is not None and keep_raw.lower() in map(str.lower, source.columns):
        raise InputError(f"--keep-raw: {data} has a column {keep_raw!r} already: choose another name.")

    with TableFile(source) as table:
        wanted.conditional_columns(source)
        constraints = wanted.constraints(table, attributes)
        _check_numbers(table, constraints, target, wanted)

    from fairlayer.binding.constraint_set import ConstraintSet
    from fairlayer.tables.project_file import project_file

    may_be_negative = box is None or box[0] is None or box[0] < 0.0
    if may_be_negative and ConstraintSet(constraints).needs_positive:
        raise InputError(
            "--ratio: a share of a mean says nothing of scores that may be negative: add --bounds 0 1, or another "
            "lower end of at least 0; or compare differences, with --parity."
        )
    with steps(4, "Reading") as progress:
        try:
            found = project_file(
                source,
                score,
                attributes,
                constraints,
                output,
                target=target,
                bounds=box,
                keep_raw=keep_raw,
                progress=progress,
            )
        except InfeasibleError as error:
            how = "Lower the ratios" if error.relative else "Raise the tolerances"
            raise InputError(
                f"No scores satisfy these constraints together: {'; '.join(error.rows[:5])}. {how} by "
                f"{error.excess:.4g}, or widen --bounds."
            ) from error
    _show(found)
    note(f"Wrote {output}.{points_for_commas(source)}")
    return 0 if found.facts.missed.max(initial=0.0) <= 0.0 else 1


def _check_numbers(
    table: TableFile, constraints: Sequence[Constraint], target: str | None, wanted: options.Wanted
) -> None:
    """Refuse columns whose intervals a constraint looks at and that lack numbers."""
    named = {}
    for condition in [condition for constraint in constraints for condition in constraint.conditions]:
        if any(isinstance(region, tuple) for region in condition.regions or ()):
            of_target = condition.source == "target"
            named[str(target if of_target else condition.name)] = (
                "--target" if of_target else wanted.option_of(condition)
            )
    table.check_numbers(named)


def _show(found: ProjectedFile) -> None:
    facts, change, system = found
    n = int(system.weight.sum())
    lower, upper = system.view.limits(*system.stated)
    show_gaps(facts.rows, facts.gaps.tolist(), (0.5 * (upper - lower)).tolist())
    say(facts.status.value)
    say(
        f"{change.changed:,} of {n:,} scores were changed, by {change.total / n:.4g} on average over all and by "
        f"{change.largest:.4g} at most."
    )
