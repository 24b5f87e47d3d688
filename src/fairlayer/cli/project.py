"""`fairlayer project`: make the scores of a whole table fair, whatever its size."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from fairlayer.cli import options
from fairlayer.cli.options import option
from fairlayer.cli.output import note, progress, say, show_gaps
from fairlayer.errors import InfeasibleError, InputError
from fairlayer.tables.table_io import TableFile, check_format, check_output, is_csv, open_source, points_for_commas


@options.with_constraints
def project(
    data: options.Data,
    score: Annotated[str, option("COLUMN", "The column of scores to make fair.", "--score", "--prediction")],
    protected: options.Protected,
    output: Annotated[Path, option("FILE", "Write the table to this CSV or Parquet file.", "--output", "-o")],
    asked: options.ConstraintOptions,
    target: options.Target = None,
    bounds: options.Bounds = None,
    keep_raw: Annotated[str | None, option("NAME", "Keep the original scores in a column of this name.")] = None,
) -> int:
    """Move scores as little as possible so that the constraints hold over the whole table, in exact arithmetic.

    All other columns and the order of the rows are kept. The table may be larger than memory: it is read in passes, and
    scores and groups are kept on disk beside the output meanwhile, 12 bytes per row. With --rate and --rate-ratio the
    scores, but not the table, have to fit in memory. The written file is read again and checked. From CSV to Parquet,
    columns of numbers and dates get their types.

    `fairlayer project scores.parquet --score p --protected sex --parity 0.02 --bounds 0 1 -o fair.parquet`
    """
    box = options.read_bounds(bounds)
    asked.check_threshold()
    check_format(output, "-o")
    check_output(output, data)
    source = open_source(data, as_text=is_csv(output))  # types are not for CSV, but they are for Parquet
    attributes = options.read_attributes(protected, source)
    for column, name in ((score, "--score"), (target, "--target")):
        if column is not None:
            source.check(column, name)
    if score in [attribute.column for attribute in attributes]:
        raise InputError(f"--score: column {score!r} is protected too: the scores that are moved cannot be groups.")
    if keep_raw is not None and keep_raw.lower() in map(str.lower, source.columns):
        raise InputError(f"--keep-raw: {data} has a column {keep_raw!r} already: choose another name.")

    with TableFile(source) as table:
        constraints = asked.read(table, attributes)
        constraints.check_kinds()
        constraints.check_target(target, "scores")
        table.check_numbers(_numbers(constraints, target))

    from fairlayer.problem.constraint_set import ConstraintSet
    from fairlayer.tables.project_file import project_file

    may_be_negative = box is None or box[0] is None or box[0] < 0.0
    if may_be_negative and ConstraintSet(list(constraints)).needs_positive:
        raise InputError(
            "--ratio: a share of a mean says nothing of scores that may be negative: add --bounds 0 1, or another "
            "lower end of at least 0; or compare differences, with --parity."
        )
    with progress() as step:
        more: Any = {"target": target, "keep_raw": keep_raw, "bounds": box, "progress": step}
        try:
            solution, change, system = project_file(source, score, attributes, list(constraints), output, **more)
        except InfeasibleError as error:
            how = "Lower the ratios" if error.relative else "Raise the tolerances"
            raise InputError(
                f"No scores satisfy these constraints together: {'; '.join(error.rows[:5])}. {how} by "
                f"{error.excess:.4g}, or widen --bounds."
            ) from error
    n = int(system.weight.sum())
    lower, upper = system.view.limits(*system.stated)
    show_gaps(solution.rows, solution.gaps.tolist(), (0.5 * (upper - lower)).tolist())
    say(solution.status.value)
    say(
        f"{change.changed:,} of {n:,} scores were changed, by {change.total / n:.4g} on average over all and by "
        f"{change.largest:.4g} at most."
    )
    note(f"Wrote {output}.{points_for_commas(source)}")
    return 0 if solution.missed.max(initial=0.0) <= 0.0 else 1


def _numbers(constraints: options.Constraints, target: str | None) -> dict[str, str]:
    """The columns of which constraints look at intervals, so that they must hold numbers; with the option of each."""
    named = {}
    for condition, name in constraints.conditions:
        if any(isinstance(region, tuple) for region in condition.regions or ()):
            of_target = condition.source == "target"
            named[str(target if of_target else condition.name)] = "--target" if of_target else name
    return named
