"""A plan: the rows of constraints over cells, before it is known how many samples each cell has.

What depends only on the constraints and on the labels is worked out once and kept. What a user reads of it, a name for
every row of every family, is made when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property, partial
from itertools import combinations
from typing import Any

import numpy as np
import torch

from fairlayer.constraints.affine import Affine
from fairlayer.core._native import means_of_counts
from fairlayer.problem.exact_sums import UNIT, exact_sums
from fairlayer.problem.families import Family
from fairlayer.problem.rows import EACH, RATIO, Rows

_SHOWS = 1e-9  # of the largest row: rounding of statistics that a reader would notice
_LOST = 1e-150  # statistics so small may be made of products below the range of floats


class RowPlan:
    """Rows over cells. Every statistic has a place, whether its group has samples or not."""

    def __init__(self, families: Sequence[Family], size: int, matrices: Mapping[int, Affine] | None = None):
        """size: number of cells; matrices: by position, the constraints that bring a matrix over samples instead."""
        self.matrices = matrices or {}
        blocks = [*families, *(_matrix_family(position, c) for position, c in self.matrices.items())]
        if self.matrices:
            blocks.sort(key=lambda family: family.owner)
        taken: set[str] = set()
        self.families = [family._replace(prefix=_distinct(family.prefix, family.suffix, taken)) for family in blocks]
        self.size = size
        widths = [len(family.groups) for family in self.families]
        self.begin = np.cumsum([0, *widths])  # of each family's statistics
        self.start, self.statistic, self.share = _entries(self.families, self.begin, size)
        self.residual = np.repeat([family.residual for family in self.families], widths).astype(bool)
        self.any_residual = bool(self.residual.any())
        self.whole = bool((self.share == 1.0).all())
        self.is_matrix = np.repeat([family.owner in self.matrices for family in self.families], widths).astype(bool)
        # To the solver, a statistic that is compared with none other is a family of its own.
        solved = [f for f in self.families for _ in (f.groups if f.kind == EACH else [()])]
        self.first = np.cumsum([0, *(1 if f.kind == EACH else len(f.groups) for f in solved)])
        self.owner = np.array([f.owner for f in solved], dtype=np.int64)
        self.kind = np.array([f.kind for f in solved], dtype=np.int64)
        self.ratio = np.array([f.coefficient for f in solved], dtype=np.float64)
        self.no_offset = np.zeros(len(self.residual))
        self._views: dict[bytes, PresentRows] = {}
        # Bounds of families, and the families with them.
        self._limits: tuple[np.ndarray, np.ndarray, np.ndarray] = (self.no_offset,) * 3

    @cached_property
    def labels(self) -> list[str]:
        """The name of each statistic."""
        return [f"{family.prefix}: {label}{family.suffix}" for family in self.families for label in family.labels()]

    @cached_property
    def membership(self) -> np.ndarray:
        """(G, K): how much each cell counts towards each statistic."""
        member = np.zeros((self.size, len(self.residual)))
        member[np.repeat(np.arange(self.size), np.diff(self.start)), self.statistic] = self.share
        return member

    def totals(self, of_cell: np.ndarray) -> np.ndarray:
        """(K,) sum over the cells of each statistic."""
        of_entry = np.repeat(of_cell, np.diff(self.start))
        if self.whole and not (of_cell % 1.0).any():  # counts add up without rounding
            return np.bincount(self.statistic, weights=of_entry, minlength=len(self.residual))
        total, error = np.empty(len(self.residual)), np.empty(len(self.residual))
        exact_sums(self.share, self.statistic.astype(np.int32), of_entry, total, error)
        return total

    def means(self, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Entries of M that make means of cell sums, and which statistics have any weight."""
        if self.whole and not self.matrices:
            found = means_of_counts(self.start, self.statistic, weight, len(self.residual))
            if found is not None:
                return found
        total = self.totals(weight)
        present = total > 0
        if not self.matrices:
            return self.share / np.where(present, total, 1.0)[self.statistic], present
        # Rows of a matrix apply to outputs, not to weighted sums.
        of_entry = np.where(
            self.is_matrix[self.statistic], np.repeat(weight, np.diff(self.start)), total[self.statistic]
        )
        return self.share / np.where(of_entry > 0, of_entry, 1.0), present | self.is_matrix

    def rows(
        self, value: np.ndarray, present: np.ndarray, offset: np.ndarray, lower: np.ndarray, upper: np.ndarray
    ) -> Rows:
        """Rows with these entries, offsets and bounds."""
        kept = self._limits
        if kept[0] is not lower or kept[1] is not upper:  # as a rule they are those of the last batch
            self._limits = kept = (lower, upper, np.stack([self.kind, self.ratio, lower, upper]))
        return Rows(self.start, self.statistic, value, offset, present, self.first, kept[2])

    def view(self, present: np.ndarray) -> PresentRows:
        """The rows between statistics that are `present`."""
        key = present.tobytes()
        view = self._views.get(key)
        if view is None:
            if len(self._views) > 256:
                self._views.clear()
            view = self._views[key] = PresentRows(self, present)
        return view


def _matrix_family(position: int, constraint: Affine) -> Family:
    names = tuple((f"row {j}",) for j in range(len(constraint.A)))
    return Family(constraint.name or "affine", names, constraint.A.T, False, EACH, position)


def _entries(families: Sequence[Family], begin: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where each cell's entries start, and the statistic and the share of each."""
    cell, statistic, share = [np.zeros(0, int)], [np.zeros(0, int)], [np.zeros(0)]
    for family, first in zip(families, begin.tolist(), strict=False):
        if family.member.ndim == 1:
            where = np.flatnonzero(family.member >= 0)
            which, part = family.member[where], np.ones(len(where))
        else:
            where, which = np.nonzero(family.member)
            part = family.member[where, which]
        cell.append(where)
        statistic.append(which + first)
        share.append(part)
    cells = np.concatenate(cell)
    order = np.argsort(cells, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(cells, minlength=size))]).astype(np.int64)
    return start, np.concatenate(statistic)[order].astype(np.int64), np.concatenate(share)[order].astype(np.float64)


def _distinct(prefix: str, suffix: str, taken: set[str]) -> str:
    """The prefix, numbered if need be: rows and statistics are known by their names, so these must differ."""
    text, number = prefix, 1
    while text + suffix in taken:
        number += 1
        text = f"{prefix} ({number})"
    taken.add(text + suffix)
    return text


class PresentRows:
    """The rows of a plan whose groups have samples, listed: what a user reads. Made when it is asked for."""

    def __init__(self, plan: RowPlan, present: np.ndarray):
        self.plan = plan
        self.present = present

    @cached_property
    def _listed(self) -> list[tuple[int, int, int, str]]:
        """Of each row its first statistic, the second or -1, its constraint, and its name."""
        found: list[tuple[int, int, int, str]] = []
        for family, begin in zip(self.plan.families, self.plan.begin.tolist(), strict=False):
            label, own, start = family.labels(), family.owner, f"{family.prefix}: "
            here = [k for k in range(len(label)) if self.present[begin + k]]
            if family.kind == EACH:
                found += [(begin + a, -1, own, f"{start}{label[a]}{family.suffix}") for a in here]
                continue
            end = family.suffix + (", relative" if family.kind == RATIO else "")
            for a, b in combinations(here, 2):
                found.append((begin + a, begin + b, own, f"{start}{label[a]} - {label[b]}{end}"))
        return found

    @cached_property
    def plus(self) -> np.ndarray:
        """(m,) the first statistic of each row."""
        return np.array([row[0] for row in self._listed], dtype=np.int64)

    @cached_property
    def minus(self) -> np.ndarray:
        """(m,) the second, -1 where there is none."""
        return np.array([row[1] for row in self._listed], dtype=np.int64)

    @cached_property
    def owner(self) -> np.ndarray:
        """(m,) the position of the constraint that states the row."""
        return np.array([row[2] for row in self._listed], dtype=np.int64)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The name of each row."""
        return tuple(row[3] for row in self._listed)

    @cached_property
    def family(self) -> np.ndarray:
        """(m,) the solver's family that each row belongs to."""
        return np.searchsorted(self.plan.first, self.plus, side="right") - 1

    @cached_property
    def vacuous(self) -> tuple[str, ...]:
        """What cannot be said because groups have no samples."""
        if self.present.all() and (np.diff(self.plan.first)[self.plan.kind != EACH] > 1).all():
            return ()
        missing: list[str] = []
        for family, begin in zip(self.plan.families, self.plan.begin.tolist(), strict=False):
            there = self.present[begin : begin + len(family.groups)]
            label = family.labels()
            missing += [f"{family.prefix}: {label[k]} is absent" for k in np.flatnonzero(~there).tolist()]
            if family.kind != EACH and there.sum() == 1:
                missing.append(f"{family.prefix}: only {label[int(there.argmax())]} is present")
        return tuple(dict.fromkeys(missing))

    @cached_property
    def relative(self) -> np.ndarray:
        """(m,) the rows whose values are shares of the larger statistic."""
        return self.plan.kind[self.family] == RATIO

    def values(self, q: Any) -> Any:
        """(m,) value of each row at statistics q, an array or a tensor of shape (K,)."""
        library, mask = (torch, partial(torch.as_tensor, device=q.device)) if torch.is_tensor(q) else (np, np.asarray)
        first, second = q[self.plus], q[self.minus] * mask(self.minus >= 0)
        if not self.relative.any():
            return first - second
        most = library.maximum(first, second)
        share = mask(self.relative) & (most > 0)  # where the larger is 0, so is the other
        return library.where(share, (first - second) / library.where(share, most, most * 0 + 1), first - second)

    def exact_values(self, q: np.ndarray, exact: Callable[[], list[Fraction] | None] | None) -> np.ndarray:
        """Value of each row; where the rounding of statistics would show, from those that `exact` gives."""
        values = self.values(q)
        rounding = UNIT * np.abs(q).max(initial=0.0) + _LOST
        if exact is None or not rounding > _SHOWS * np.abs(values).max(initial=0.0):
            return values
        fractions = exact()
        return values if fractions is None else self.values(np.array(fractions, dtype=object)).astype(np.float64)

    def limits(self, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(m,) what is allowed of the value of each row; lower, upper: (F,) the bounds of the families."""
        share = 1.0 - self.plan.ratio[self.family]
        low, high = lower[self.family], upper[self.family]
        return np.where(self.relative, -share, low), np.where(self.relative, share, high)

    def largest(self, q: np.ndarray, constraints: int) -> list[float]:
        """The largest |row| of each constraint at statistics q, 0 where it has none. No row is listed for it."""
        found = [0.0] * constraints
        for family, begin in zip(self.plan.families, self.plan.begin.tolist(), strict=False):
            here = q[begin : begin + len(family.groups)][self.present[begin : begin + len(family.groups)]]
            if family.kind == EACH and len(here):
                found[family.owner] = max(found[family.owner], float(np.abs(here).max()))
            elif len(here) > 1:
                most, least = float(here.max()), float(here.min())
                gap = most - least if family.kind != RATIO else 1.0 - least / most if most > 0.0 else 0.0
                found[family.owner] = max(found[family.owner], gap)
        return found

    def multipliers(self, nu: np.ndarray) -> np.ndarray:
        """(m,) multipliers of the rows, made of those of the statistics: of a family, they are carried from the
        statistics pushed down to those pushed up, in order."""
        of_row = np.zeros(len(self.plus))
        place = {(a, b): j for j, (a, b, _, _) in enumerate(self._listed)}
        for f, (begin, end) in enumerate(zip(self.plan.first[:-1].tolist(), self.plan.first[1:].tolist(), strict=True)):
            if self.plan.kind[f] == EACH:
                if nu[begin] != 0.0:
                    of_row[place[begin, -1]] = nu[begin]
                continue
            for a, b, amount in carried(nu, range(begin, end), float(self.plan.ratio[f])):
                of_row[place[min(a, b), max(a, b)]] += amount if a < b else -amount
        return of_row


def carried(nu: np.ndarray, members: range, coefficient: float) -> list[tuple[int, int, float]]:
    """Pairs (a, b, amount) whose amounts add up to nu: a is pushed down by them (times the coefficient), b up."""
    down = [(k, float(nu[k]) / coefficient) for k in members if nu[k] > 0.0]
    up = [(k, float(-nu[k])) for k in members if nu[k] < 0.0]
    pairs = []
    while down and up:
        (a, left), (b, right) = down.pop(), up.pop()
        amount = min(left, right)
        pairs.append((a, b, amount))
        if left > amount:
            down.append((a, left - amount))
        if right > amount:
            up.append((b, right - amount))
    return pairs
