"""`fairlayer project`: make the scores of a whole table fair, whatever its size."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fairlayer.cli import constraint_options as asking
from fairlayer.cli import options
from fairlayer.cli.options import option
from fairlayer.cli.terminal import note, say, show_gaps, steps
from fairlayer.errors import FairlayerError, InfeasibleError, InputError
from fairlayer.tables.table_io import (
    Source,
    check_format,
    check_output,
    connect,
    copy_options,
    is_csv,
    open_source,
    plain_errors,
    points_for_commas,
    replacing,
)

if TYPE_CHECKING:
    import numpy as np

    from fairlayer.binding.block_sums import BlockSums
    from fairlayer.binding.system import System
    from fairlayer.cli.moves import Moves
    from fairlayer.solution import Facts
    from fairlayer.solve.files import Change
    from fairlayer.tables.columns import FileColumns
    from fairlayer.tables.scored_rows import ScoredRows

VECTORS = 256  # of 2,048 rows, read at a time


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

    from fairlayer.cli.moves import ByDecisions, ByShifts
    from fairlayer.tables.columns import FileColumns
    from fairlayer.tables.scored_rows import ScoredRows

    with FileColumns(source) as columns:
        asked.columns(source)
        constraints = asked.read(columns, attributes)
        constraints.check_kinds()
        constraints.check_target(target, "scores")
        columns.check_number(score, "--score")
        columns.check_groups(attributes)
        _check_numbers(columns, constraints, target)
        cells = ScoredRows(columns, score, attributes, list(constraints), target)
    make = ByDecisions if constraints.about_decisions else ByShifts
    with steps(4, "Reading") as progress:
        with tempfile.TemporaryDirectory(prefix=".fairlayer-", dir=output.absolute().parent) as folder:
            kept = _Kept(Path(folder))
            scored, targets = kept.fill(cells, box)
            system = cells.bind(scored, targets)
            if not system.view.names:
                raise InputError(
                    f"{data} has nothing to compare: for every comparison asked for, all rows are in one group."
                )
            moves = make(system, list(constraints), box)
            found, change = kept.solve(moves, cells, scored, progress)
        progress("Writing")
        with replacing(output) as temporary:
            _write(cells, moves, temporary, keep_raw)
            progress("Checking what was written")
            facts = _check_written(cells, moves, temporary, keep_raw)
            if facts.missed.max(initial=0.0) > 0.0 >= found.missed.max(initial=0.0):
                raise FairlayerError(f"{output} does not hold what was computed; nothing was kept. Please report it.")
    _show(facts, change, system)
    note(f"Wrote {output}.{points_for_commas(source)}")
    return 0 if facts.missed.max(initial=0.0) <= 0.0 else 1


def _check_numbers(columns: FileColumns, constraints: asking.Constraints, target: str | None) -> None:
    """Refuse columns that a constraint takes for numbers and that lack some."""
    for constraint in constraints:
        if constraint.quantity == "residual":
            columns.check_number(str(target), "--target")
        for condition in constraint.conditions:
            if not any(isinstance(region, tuple) for region in condition.regions or ()):
                continue
            if condition.source == "target":
                columns.check_number(str(target), "--target")
            else:
                columns.check_number(str(condition.name), constraints.option_of(condition))


class _Kept:
    """Scores and codes of all rows, in two files."""

    def __init__(self, folder: Path):
        self.scores = folder / "scores"
        self.codes = folder / "codes"

    def fill(self, cells: ScoredRows, box: Any) -> tuple[BlockSums, BlockSums | None]:
        """Write them in one pass over the table, and take the sums of scores and targets by code."""
        import numpy as np

        from fairlayer.binding.block_sums import BlockSums
        from fairlayer.binding.bounds import read_bounds

        size = cells.code.size
        bounds, still = read_bounds(box, 1, np.float64), np.zeros(size)
        scored = BlockSums(size, absolute=True)
        targets = BlockSums(size) if cells.needs_target_sums else None
        with self.scores.open("wb") as scores, self.codes.open("wb") as codes:
            for frame in cells.parts(cells.table.source, vectors=VECTORS):
                z = np.ascontiguousarray(frame["z"], dtype=np.float64)
                code = np.ascontiguousarray(frame["code"], dtype=np.int32)
                z.tofile(scores)
                code.tofile(codes)
                scored.add(z, code, still, bounds.lowest, bounds.highest)
                if targets is not None:
                    t = np.ascontiguousarray(frame["t"], dtype=np.float64)
                    targets.add(t, code, still, -np.inf, np.inf)
        return scored, targets

    def chunks(self, cells: ScoredRows) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Scores and cells, some rows at a time."""
        import numpy as np

        count = 2048 * VECTORS
        with self.scores.open("rb") as scores, self.codes.open("rb") as codes:
            while len(z := np.fromfile(scores, np.float64, count)):
                yield z, cells.cell_of_code[np.fromfile(codes, np.int32, count)]

    def solve(self, moves: Moves, cells: ScoredRows, scored: BlockSums, progress: Any) -> tuple[Facts, Change]:
        """The projection. scored: the sums of scores by code."""
        from fairlayer.solve.files import ChunkPasses

        passes = itertools.count(1)

        def start() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            progress(detail=f"pass {next(passes)}")
            return self.chunks(cells)

        progress("Solving")
        size = len(moves.system.weight)
        try:
            return moves.solve(ChunkPasses(start, size, scored.regrouped(cells.cell_of_code, size)))
        except InfeasibleError as error:
            how = "Lower the ratios" if error.relative else "Raise the tolerances"
            raise InputError(
                f"No scores satisfy these constraints together: {'; '.join(error.rows[:5])}. {how} by "
                f"{error.excess:.4g}, or widen --bounds."
            ) from error


def _write(cells: ScoredRows, moves: Moves, path: Path, keep_raw: str | None) -> None:
    """Write the table with its scores moved."""
    sql, parameters, tables = moves.copy_sql(cells, keep_raw)
    source = cells.table.source
    known = {**parameters, **source.parameters, "target": str(path)}
    with plain_errors(source.path), connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        connection.execute(f"COPY ({sql}) TO $target ({copy_options(path)})", known)


def _check_written(cells: ScoredRows, moves: Moves, path: Path, keep_raw: str | None) -> Facts:
    """The rows of what is in the file."""
    import numpy as np

    names = [*cells.table.columns, *([] if keep_raw is None else [keep_raw])]
    written = Source(path, dict.fromkeys(names, "VARCHAR"))

    def chunks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for frame in cells.parts(written, vectors=VECTORS, only=("z", "code")):
            code = frame["code"].to_numpy()
            yield np.ascontiguousarray(frame["z"], dtype=np.float64), cells.cell_of_code[code]

    return moves.certify(chunks)


def _show(facts: Facts, change: Change, system: System) -> None:
    n = int(system.weight.sum())
    lower, upper = system.view.limits(*system.stated)
    show_gaps(facts.rows, facts.gaps.tolist(), (0.5 * (upper - lower)).tolist())
    say(facts.status.value)
    say(
        f"{change.changed:,} of {n:,} scores were changed, by {change.total / n:.4g} on average over all and by "
        f"{change.largest:.4g} at most."
    )
