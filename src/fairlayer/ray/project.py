"""`project` of a dataset: sums by workers, one solve, shifts by workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fairlayer.binding.block_sums import BlockSums
from fairlayer.binding.bounds import read_bounds
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.system import System
from fairlayer.constraints import Constraint
from fairlayer.errors import InputError
from fairlayer.ray.dataset import DatasetTable, add_up, mapped_blocks, own_errors
from fairlayer.solution import Status
from fairlayer.solve.files import BlockPasses, Shifts, project_passes
from fairlayer.tables import blocks
from fairlayer.tables.attribute import Attribute, read_cuts
from fairlayer.tables.duckdb_table import number, number_text
from fairlayer.tables.scored_rows import ScoredTable
from fairlayer.tables.table import Totals

Protected = str | Sequence[str] | Mapping[str, Sequence[float]]


@dataclass(eq=False, repr=False)
class Projected:
    """A projected dataset, and what is known of it. Its rows are made when they are asked for."""

    dataset: Any  # with one column more
    shifts: Shifts
    samples: int

    @property
    def status(self) -> Status:
        """How far the promise holds."""
        return self.shifts.facts.status

    @property
    def satisfied(self) -> bool:
        """Whether every row that can be stated holds exactly."""
        return self.status in (Status.OPTIMAL, Status.VACUOUS, Status.BOUNDED)

    @property
    def rows(self) -> tuple[str, ...]:
        """Name of each row of the constraints."""
        return self.shifts.facts.rows

    @property
    def gaps(self) -> np.ndarray:
        """Value of each row: a difference of group means, for instance."""
        return self.shifts.facts.gaps

    @property
    def vacuous(self) -> tuple[str, ...]:
        """What could not be compared, because a group is absent."""
        return self.shifts.facts.vacuous

    @property
    def changed(self) -> int:
        """How many scores were changed."""
        return self.shifts.change.changed

    @property
    def largest_change(self) -> float:
        """By how much at most."""
        return self.shifts.change.largest

    @property
    def mean_change(self) -> float:
        """By how much on average over all, in absolute value."""
        return self.shifts.change.total / self.samples

    def __repr__(self) -> str:
        gaps = dict(zip(self.rows, np.round(self.gaps, 6).tolist(), strict=True))
        return f"Projected(status={self.status.name}, gaps={gaps}, changed={self.changed:,} of {self.samples:,})"


def project(
    dataset: Any,
    score: str,
    protected: Protected,
    constraints: Sequence[Constraint] | Constraint,
    bounds: Any = None,
    *,
    target: str | None = None,
    output: str = "fair",
) -> Projected:
    """Move the scores of a dataset as little as possible so that the constraints hold over all of its rows.

    score: the column of scores; protected: the columns of groups, or {"sex": (), "age": (30, 50)} with cut points that
    make groups of numbers; target: the column of targets, where a constraint needs them; features of constraints are
    columns by their names. output: the column to add.

    The rows hold in exact arithmetic. The shifts depend neither on how the dataset is divided into blocks nor on the
    order in which workers finish. Score and cell of every row, 9 to 12 bytes, are kept in Ray's object store meanwhile.
    """
    table = DatasetTable(dataset)
    if output in table.columns:
        raise InputError(f"output: the dataset has a column {output!r} already: choose another name.")
    problem = Problem(table, score, protected, constraints, bounds, target)
    bound = problem.bind()
    shifts = problem.solve(bound)
    shift = shifts.shift[bound.cell_of_code]
    known = {"shift": shift, "lo": shifts.lo, "hi": shifts.hi, "output": output}
    moved = mapped_blocks(dataset, blocks.moved, asked=problem.asked, **known)
    return Projected(moved, shifts, int(bound.system.weight.sum()))


class Problem:
    """Constraints bound to the scores of a dataset, of which score and cell are kept.

    seed, share: where rows are dealt at random into two parts, see `blocks.scores`.
    """

    def __init__(
        self,
        table: DatasetTable,
        score: str,
        protected: Protected,
        constraints: Sequence[Constraint] | Constraint,
        bounds: Any,
        target: str | None,
        seed: int | None = None,
        share: float = 0.0,
    ):
        self.rules = ConstraintSet(constraints)
        self.bounds = bounds
        self.box = read_bounds(bounds, 1, np.float64)
        attributes = read_protected(table, protected)
        _check(table, self.rules, score, attributes, target)
        self.rules.check_bounds(self.box.lowest)
        self.cells = ScoredTable(table, score, attributes, self.rules.constraints, target, "protected")
        self.asked = table.row_values(self.cells.values, self.cells.code.parameters)
        drawn = {"codes": self.cells.code.size, "seed": seed, "share": share}
        kept = mapped_blocks(table.only(self.asked.schema), blocks.scores, asked=self.asked, **drawn)
        kept.set_name("fairlayer scores")
        with own_errors():
            self.kept = kept.materialize()

    def bind(self, part: int | None = None) -> Bound:
        """Bind the constraints to the rows, or to a part of them, and take the sums of the scores as they are."""
        size = self.cells.code.size
        by_code: dict[str, Any] = {"number": np.arange(size, dtype=np.int32), "shift": np.zeros(size), "part": part}
        lo, hi = self.box.lowest, self.box.highest
        scored = self.total("sums by cell", column="z", **by_code, lo=lo, hi=hi, absolute=True)
        if not scored.rows.any():
            raise InputError("The dataset has no rows: there is nothing to compare.")
        targets = None
        if self.cells.needs_target_sums:
            targets = self.total("sums of targets", column="t", **by_code, lo=-np.inf, hi=np.inf, absolute=False)
        system = self.cells.bind(scored, targets)
        if not system.view.names:
            raise InputError("The dataset has nothing to compare: for every comparison, all rows are in one group.")
        return Bound(system, self.cells.cell_of_code, scored, part)

    def solve(self, bound: Bound) -> Shifts:
        """The projection."""
        return project_passes(DatasetPasses(self, bound), bound.system, self.bounds)

    def total(self, name: str, *, shift: np.ndarray, absolute: bool, **known: Any) -> BlockSums:
        """Exact sums of all blocks, added up as they come. known: what else `blocks.sums` takes."""
        total = BlockSums(len(shift), absolute)
        add_up([total], self.kept, blocks.sums, name, shift=shift, absolute=absolute, **known)
        return total


class Bound(NamedTuple):
    """Constraints bound to rows of a dataset."""

    system: System
    cell_of_code: np.ndarray
    scored: BlockSums  # of the scores as they are, within bounds, by code
    part: int | None  # of the rows; None for all


class DatasetPasses(BlockPasses):
    """Passes over the blocks that workers hold."""

    def __init__(self, problem: Problem, bound: Bound):
        cells = len(bound.system.weight)
        super().__init__(cells, bound.scored.regrouped(bound.cell_of_code, cells))
        self.problem, self.bound = problem, bound
        self.passes = 0

    def total(self, shift: np.ndarray, lo: float, hi: float, absolute: bool) -> BlockSums:
        """The sums of all blocks."""
        self.passes += 1
        known = {"column": "z", "number": self.bound.cell_of_code, "part": self.bound.part, "lo": lo, "hi": hi}
        return self.problem.total(f"pass {self.passes}", shift=shift, absolute=absolute, **known)


def read_protected(table: DatasetTable, protected: Protected) -> list[Attribute]:
    """The protected attributes."""
    if isinstance(protected, str):
        protected = [protected]
    cuts = protected if isinstance(protected, Mapping) else dict.fromkeys(protected, ())
    if not cuts:
        raise InputError("protected is empty: name the columns of groups, such as protected=['sex'].")
    attributes = []
    for name, points in cuts.items():
        table.require(name, "protected")
        listed = read_cuts(",".join(map(str, points)), f"protected[{name!r}]") if len(points) else ()
        attributes.append(Attribute(name, listed))
    return attributes


def _check(
    table: DatasetTable, rules: ConstraintSet, score: str, attributes: Sequence[Attribute], target: str | None
) -> None:
    """Refuse what cannot be projected, in one pass over the columns that must hold numbers."""
    if rules.about_decisions:
        raise InputError(
            "constraints compare rates of decisions, which takes all scores in the memory of one machine: project a "
            "file of up to 50,000,000 rows with `fairlayer project`, or constrain means of scores."
        )
    if rules.matrices:
        raise InputError(f"{type(rules.matrices[0]).__name__} is about single outputs, not about groups: leave it out.")
    if rules.needs_targets is not None and target is None:
        raise InputError(f"target is missing: {rules.needs_targets} compares with it; name its column.")
    numeric = {table.require(score, "score"): "score"}
    if target is not None:
        table.require(target, "target")
        if any(constraint.quantity == "residual" for constraint in rules.constraints):
            numeric.setdefault(target, "target")
    asked = {"n": "count(*)"}
    for j, name in enumerate(numeric):
        wrong = f"CASE WHEN {number(name)} IS NULL THEN coalesce({number_text(name)}, 'no entry') END"
        asked |= {f"known_{j}": f"count({number(name)})", f"wrong_{j}": f"min({wrong})"}
    cut = [attribute.column for attribute in attributes if attribute.cuts]
    for j, name in enumerate(cut):
        odd = f"CASE WHEN {number(name)} IS NULL THEN {number_text(name)} END"
        asked |= {f"odd_{j}": f"count({odd})", f"such_{j}": f"min({odd})"}
    found = {name: values.tolist()[0] for name, values in table.totals(Totals(asked)).items()}
    for j, (name, argument) in enumerate(numeric.items()):
        if found[f"known_{j}"] < found["n"]:
            raise InputError(
                f"{argument}: column {name!r} has {found['n'] - found[f'known_{j}']:,} entries that are not numbers, "
                f"such as {found[f'wrong_{j}']!r}: leave these rows out, or name another column."
            )
    for j, name in enumerate(cut):
        if found[f"odd_{j}"]:
            raise InputError(
                f"protected: column {name!r} has cut points, but {found[f'odd_{j}']:,} of its entries are not numbers, "
                f"such as {found[f'such_{j}']!r}: correct them, or leave them empty."
            )
