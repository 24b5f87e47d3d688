"""`fairlayer project`: make the scores of a whole table fair, whatever its size."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fairlayer.cli import constraint_options as asking
from fairlayer.cli import options
from fairlayer.cli.options import option
from fairlayer.cli.terminal import note, say, show_gaps, steps
from fairlayer.errors import InfeasibleError, InputError
from fairlayer.tables.table_io import TableFile, check_format, check_output, is_csv, open_source, points_for_commas

if TYPE_CHECKING:
    from fairlayer.tables.project_file import ProjectedFile


def project(
    data: options.Data,
    score: Annotated[str, option("COLUMN", "The column of scores to make fair.", "--score", "--prediction")],
    protected: options.Protected,
    output: Annotated[Path, option("FILE", "Where to write the table, as CSV or Parquet.", "--output", "-o")],
    parity: asking.Parity = None,
    ratio: asking.Ratio = None,
    rate: asking.Rate = None,
    rate_ratio: asking.RateRatio = None,
    given: asking.Given = None,
    odds: asking.Odds = None,
    residuals: asking.Residuals = None,
    residual_mean: asking.ResidualMean = None,
    conditional: asking.Conditional = None,
    threshold: asking.Threshold = None,
    constraint: asking.Constraint = None,
    over: asking.Over = None,
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
    asked = asking.ConstraintOptions(
        parity, ratio, rate, rate_ratio, given, odds, residuals, residual_mean, conditional, threshold, constraint, over
    )  # fmt: skip
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
        asked.columns(source)
        constraints = asked.read(table, attributes)
        constraints.check_kinds()
        constraints.check_target(target, "scores")
        _check_numbers(table, constraints, target)

    from fairlayer.problem.constraint_set import ConstraintSet
    from fairlayer.tables.project_file import project_file

    may_be_negative = box is None or box[0] is None or box[0] < 0.0
    if may_be_negative and ConstraintSet(list(constraints)).needs_positive:
        raise InputError(
            "--ratio: a share of a mean says nothing of scores that may be negative: add --bounds 0 1, or another "
            "lower end of at least 0; or compare differences, with --parity."
        )
    columns = {"target": target, "keep_raw": keep_raw}
    with steps() as progress:
        progress("Reading")
        try:
            found = project_file(
                source, score, attributes, list(constraints), output, bounds=box, progress=progress, **columns
            )
        except InfeasibleError as error:
            how = "Lower the ratios" if error.relative else "Raise the tolerances"
            raise InputError(
                f"No scores satisfy these constraints together: {'; '.join(error.rows[:5])}. {how} by "
                f"{error.excess:.4g}, or widen --bounds."
            ) from error
    _show(found)
    note(f"Wrote {output}.{points_for_commas(source)}")
    return 0 if found.solution.missed.max(initial=0.0) <= 0.0 else 1


def _check_numbers(table: TableFile, constraints: asking.Constraints, target: str | None) -> None:
    """Refuse columns whose intervals a constraint looks at and that lack numbers."""
    named = {}
    for condition in [condition for constraint in constraints for condition in constraint.conditions]:
        if any(isinstance(region, tuple) for region in condition.regions or ()):
            of_target = condition.source == "target"
            column = str(target if of_target else condition.name)
            named[column] = "--target" if of_target else constraints.option_of(condition)
    table.check_numbers(named)


def _show(found: ProjectedFile) -> None:
    solution, change, system = found
    n = int(system.weight.sum())
    lower, upper = system.view.limits(*system.stated)
    show_gaps(solution.rows, solution.gaps.tolist(), (0.5 * (upper - lower)).tolist())
    say(solution.status.value)
    say(
        f"{change.changed:,} of {n:,} scores were changed, by {change.total / n:.4g} on average over all and by "
        f"{change.largest:.4g} at most."
    )
