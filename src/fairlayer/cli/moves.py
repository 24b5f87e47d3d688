"""How the scores of a table are moved: by a shift for each cell, or one by one where decisions are compared.

A shift per cell is found in passes over scores of which a part is in memory at a time. Decisions need the scores of a
cell in order, and people with the same score may get different ones: they are solved with all scores in memory.

Both find the nearest scores that keep the constraints, or raise InfeasibleError (`solve`); give SQL of the table with
its scores moved, its parameters, and the tables to register for it (`copy_sql`); and say what is true of scores as they
were written, in exact arithmetic (`certify`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fairlayer.binding.bounds import read_bounds
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.system import System
from fairlayer.constraints import Constraint
from fairlayer.decisions.project import exact_rates, project_decisions, read_threshold
from fairlayer.errors import InputError
from fairlayer.extras import needs
from fairlayer.solution import Facts
from fairlayer.solve.files import Change, Chunk, ChunkPasses, Chunks, Shifts, certify_chunks, project_passes
from fairlayer.tables.scored_rows import ScoredRows

MOST_DECISIONS = 50_000_000  # rows, of which some 100 bytes each are in memory


class _Bound:
    """Scores bound to constraints."""

    def __init__(self, system: System, constraints: Sequence[Constraint], bounds: Any):
        self.system = system
        self.rules = ConstraintSet(list(constraints))
        self.bounds = bounds


class ByShifts(_Bound):
    """Means: a shift for each cell."""

    def __init__(self, system: System, constraints: Sequence[Constraint], bounds: Any):
        super().__init__(system, constraints, bounds)
        if self.rules.needs_positive and not read_bounds(bounds, 1, np.float64).lowest >= 0.0:
            raise InputError(
                "--ratio: a share of a mean says nothing of scores that may be negative: add --bounds 0 1, or another "
                "lower end of at least 0; or compare differences, with --parity."
            )
        self.shifts: Shifts | None = None

    def solve(self, passes: ChunkPasses) -> tuple[Facts, Change]:
        """In passes."""
        self.shifts = project_passes(passes, self.system, self.bounds)
        return self.shifts.facts, self.shifts.change

    def copy_sql(self, cells: ScoredRows, keep_raw: str | None) -> tuple[str, dict[str, Any], dict[str, Any]]:
        """The shifts as a list by code."""
        assert self.shifts is not None
        shift = self.shifts.shift[cells.cell_of_code].tolist()
        known = {**cells.code.parameters, "shift": shift, "lo": self.shifts.lo, "hi": self.shifts.hi}
        moved = f"{cells.values['z']} - list_extract($shift, {cells.values['code']} + 1)"
        return cells.copy_sql(f"least(greatest({moved}, $lo), $hi)", keep_raw), known, {}

    def certify(self, chunks: Chunks) -> Facts:
        """In one pass."""
        return certify_chunks(chunks, self.system)


class ByDecisions(_Bound):
    """Rates of decisions: each score by itself."""

    def __init__(self, system: System, constraints: Sequence[Constraint], bounds: Any):
        super().__init__(system, constraints, bounds)
        self.threshold = read_threshold(self.rules)
        self.value = np.zeros(0)
        self.facts: Any = None
        rows = int(system.weight.sum())
        if rows > MOST_DECISIONS:
            raise InputError(
                f"The table has {rows:,} rows, and decisions are compared with all scores in memory, up to "
                f"{MOST_DECISIONS:,} rows: project parts of the table one by one, which keeps the tolerance within "
                "each of them, or decide by `fairlayer predict --mode stream`."
            )

    def _bound_to(self, cell: np.ndarray) -> System:
        """The system with a cell for every row, in place of one for every code."""
        samples = np.bincount(cell, minlength=len(self.system.weight)).astype(self.system.samples.dtype)
        return self.system._replace(cell=cell, samples=samples, weights=np.zeros(0))

    def solve(self, passes: ChunkPasses) -> tuple[Facts, Change]:
        """All at once."""
        z, cell = _whole(passes.chunks)
        box = read_bounds(self.bounds, len(z), np.float64)
        solution = project_decisions(torch.from_numpy(z), self._bound_to(cell), self.rules, box)
        self.value, self.facts = solution.value.numpy(), solution.facts
        moved = np.abs(self.value - z)
        return self.facts, Change(int(np.count_nonzero(moved)), float(moved.max(initial=0.0)), float(moved.sum()))

    def copy_sql(self, cells: ScoredRows, keep_raw: str | None) -> tuple[str, dict[str, Any], dict[str, Any]]:
        """The scores as a column beside the table, in the order of its rows."""
        with needs("Writing a table", "pandas"):
            import pandas as pd
        return cells.copy_sql("moved.y", keep_raw, "moved"), {}, {"moved": pd.DataFrame({"y": self.value})}

    def certify(self, chunks: Chunks) -> Facts:
        """By counts."""
        y, cell = _whole(chunks)
        rates, missed = exact_rates(y >= self.threshold, self._bound_to(cell))
        found = self.facts
        nobody = np.zeros(len(rates))  # has a multiplier
        return Facts(self.system.view, rates, nobody, missed, found.excess, found.optimality_gap, found.ties)


Moves = ByShifts | ByDecisions


def _whole(chunks: Chunks) -> Chunk:
    """All scores and cells, in the order of the table."""
    parts = list(chunks())
    if not parts:
        return np.zeros(0), np.zeros(0, dtype=np.int32)
    z, cell = zip(*parts, strict=True)
    return np.concatenate(z), np.concatenate(cell)
