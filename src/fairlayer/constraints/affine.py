"""Any affine rows, given as a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fairlayer.arrays import as_numpy
from fairlayer.constraints.constraint import Constraint
from fairlayer.errors import InputError


class Affine(Constraint):
    """Any affine rows: lower <= A y <= upper, for one problem or a batch of independent ones.

    A: (m, n), or (B, m, n) for B problems; lower, upper: numbers, (m,) or (B, m), None for an open side. Equal lower
    and upper make an equality. Outputs z have shape (n,) or (n, 1), or (B, n) for a batch.
    """

    def __init__(self, A: Any, lower: Any = None, upper: Any = None, name: str | None = None):
        # By numpy: the threads of torch may wait for each other longer than a batch of problems takes.
        matrix = as_numpy(A, "A")
        try:
            self.A = np.asarray(matrix, dtype=np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"A cannot be read as a matrix of floats: {error}") from error
        self.name = name
        if self.A.ndim not in (2, 3):
            raise InputError(f"A must have shape (m, n) or (B, m, n); got {self.A.shape}.")
        if not np.isfinite(self.A).all():
            raise InputError("A has entries that are not finite.")
        self.lower = self._side(lower, "lower", -np.inf)
        self.upper = self._side(upper, "upper", np.inf)
        stacks = {len(each) for each, single in ((self.A, 2), (self.lower, 1), (self.upper, 1)) if each.ndim > single}
        if len(stacks) > 1:
            raise InputError(f"A, lower and upper hold different numbers of problems: {sorted(stacks)}.")
        self.problems: int | None = stacks.pop() if stacks else None
        low, high = as_numpy(self.lower), as_numpy(self.upper)
        if np.isnan(low).any() or np.isnan(high).any() or (low > high).any():
            raise InputError("Affine needs lower <= upper in every row, and no NaN.")
        if np.isposinf(low).any() or np.isneginf(high).any():
            raise InputError("Affine has a lower of inf or an upper of -inf, which no output satisfies.")

    def _side(self, side: Any, what: str, default: float) -> Any:
        """A bound for every row, of every problem; a tensor that requires gradients stays one."""
        value: Any = default if side is None else side
        keeps_graph = isinstance(value, torch.Tensor) and value.requires_grad
        array: Any = value if keeps_graph else as_numpy(value, what)
        try:
            array = array if keeps_graph else np.asarray(array, dtype=np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"{what} must be a number, one per row, or None for no bound; got {side!r}.") from error
        rows = self.A.shape[:-1] if self.A.ndim == 3 or array.ndim != 2 else (len(array), len(self.A))
        try:
            return array.expand(rows) if keeps_graph else np.broadcast_to(array, rows)
        except (RuntimeError, ValueError) as error:
            raise InputError(f"{what} has shape {tuple(array.shape)}, which does not fit {rows[-1]} rows.") from error

    def __repr__(self) -> str:
        problems = "" if self.problems is None else f", {self.problems} problems"
        return f"Affine({self.A.shape[-2]} rows over {self.A.shape[-1]} outputs{problems})"

    def settings(self) -> dict[str, Any]:
        """Matrix, bounds and name."""
        return {"A": self.A, "lower": as_numpy(self.lower), "upper": as_numpy(self.upper), "name": self.name}

    def problem(self, b: int) -> Affine:
        """Problem b of a batch."""
        part = Affine.__new__(Affine)
        part.name = self.name
        part.problems = None
        part.A = self.A[b] if self.A.ndim == 3 else self.A
        part.lower, part.upper = (side[b] if side.ndim == 2 else side for side in (self.lower, self.upper))
        return part
