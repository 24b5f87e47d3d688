"""Rows: what constraints and solver have in common, and all of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy  # whose parts load when they are used

EACH, DIFFERENCE, RATIO = 0, 1, 2  # how the statistics of a family are compared
KIND, COEFFICIENT, LOWER, UPPER = 0, 1, 2, 3  # places in Rows.family


class Rows(NamedTuple):
    """Constraints as the solver sees them, over the cell sums S.

    Statistic k is q_k = sum_c M[c, k] S_c - offset_k, for instance a group's mean. M is kept without its zeros, cell by
    cell. Statistics first[f] to first[f + 1] are family f, of which those `present` are compared:

        EACH         lower <= q_k <= upper                       for its one statistic,
        DIFFERENCE   q_a - q_b <= upper                          for every two,
        RATIO        ratio * q_a - q_b <= upper                  for every two; lower is -inf.

    So a family of many statistics has one row for every two of them. They are never listed: the worst is that of the
    greatest against the least.
    """

    start: np.ndarray  # (G + 1,) where the entries of each cell start
    statistic: np.ndarray  # (entries,)
    value: np.ndarray  # (entries,) of M
    offset: np.ndarray  # (K,)
    present: np.ndarray  # (K,) whether any sample counts towards it
    first: np.ndarray  # (F + 1,)
    family: np.ndarray  # (4, F) kind, ratio, lower and upper of each family

    @property
    def kind(self) -> np.ndarray:
        """(F,) how the statistics of each family are compared."""
        return self.family[KIND]

    @property
    def ratio(self) -> np.ndarray:
        """(F,) the coefficient of the first statistic of every row."""
        return self.family[COEFFICIENT]

    @property
    def lower(self) -> np.ndarray:
        """(F,) lower bounds."""
        return self.family[LOWER]

    @property
    def upper(self) -> np.ndarray:
        """(F,) upper bounds."""
        return self.family[UPPER]

    @property
    def entry_cell(self) -> np.ndarray:
        """(entries,) the cell of each entry of M."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))

    @property
    def statistic_family(self) -> np.ndarray:
        """(K,) the family of each statistic."""
        return np.repeat(np.arange(len(self.kind)), np.diff(self.first))

    def between(self, lower: np.ndarray, upper: np.ndarray) -> Rows:
        """These rows with other bounds."""
        return self._replace(family=np.stack([self.kind, self.ratio, lower, upper]))

    def with_box(self, cell: np.ndarray, weight: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> Rows:
        """These rows over samples, each a cell of its own; and after their statistics every output within its bounds.

        cell, weight: (n,) of the samples; lo, hi: (n,) or (1,). Outputs without weight are left free.
        """
        n, cells = len(cell), len(self.start) - 1
        M = scipy.sparse.csr_array((self.value, self.statistic, self.start), shape=(cells, len(self.offset)))[cell]
        own = scipy.sparse.diags_array(1.0 / np.where(weight > 0, weight, 1.0), format="csr")
        both = scipy.sparse.hstack([M, own], format="csr")
        box = np.stack([np.full(n, EACH), np.ones(n), np.broadcast_to(lo, n), np.broadcast_to(hi, n)])
        return Rows(
            both.indptr.astype(np.int64),
            both.indices.astype(np.int64),
            both.data,
            np.append(self.offset, np.zeros(n)),
            np.append(self.present, weight > 0),
            np.append(self.first, self.first[-1] + 1 + np.arange(n)),
            np.concatenate([self.family, box], axis=1),
        )

    def dense(self) -> np.ndarray:
        """(G, K) M with its zeros."""
        M = np.zeros((len(self.start) - 1, len(self.offset)))
        np.add.at(M, (self.entry_cell, self.statistic), self.value)
        return M

    def totals(self, of_cell: np.ndarray, absolute: bool = False) -> np.ndarray:
        """(K,) sum over cells of M (or |M|) times a number of each."""
        value = np.abs(self.value) if absolute else self.value
        weights = value * np.repeat(of_cell, np.diff(self.start))
        return np.bincount(self.statistic, weights=weights, minlength=len(self.offset)).astype(np.float64, copy=False)

    def sizes(self, of_cell: np.ndarray) -> np.ndarray:
        """(K,) how large the numbers are that each statistic is made of; of_cell: sums of absolute values."""
        return self.totals(of_cell, absolute=True) + np.abs(self.offset)
