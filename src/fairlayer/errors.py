"""What can go wrong, one exception each. All are ValueErrors: the remedy is in the input."""

from __future__ import annotations

import decimal
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any


class FairlayerError(ValueError):
    """Base of every error raised on purpose; nothing has been changed when one is raised, unless it says so."""


class InputError(FairlayerError):
    """An argument cannot be used as it is."""


class StoreError(FairlayerError):
    """The store of a stream cannot be used; nothing was changed. The message says what to do."""


class UncertainError(StoreError):
    """The connection to a store was lost at the very end, and with it whether a batch was counted.

    The message says how to find out. `reason` is what went wrong.
    """

    def __init__(self, message: str, reason: str = ""):
        super().__init__(message)
        self.reason = reason


class RankError(FairlayerError):
    """A rank of a process group failed, did not answer in time, or was given other settings than the rest.

    It is raised on every rank, so that none waits for ever. The message names the rank where it is known.
    """


class AbsentGroupError(FairlayerError):
    """A group is absent from the batch and `absent="raise"` was asked for."""


class InfeasibleError(FairlayerError):
    """No output satisfies the constraints (within the bounds, where there are any).

    `rows` names the rows in conflict; every one of them holds once all tolerances grow by `excess`.
    """

    def __init__(
        self,
        rows: Sequence[str],
        excess: float,
        smallest: Sequence[float],
        relative: bool = False,
        proved: bool = True,
    ):
        """relative: gaps are shares of the larger mean or rate, and the remedy is a lower ratio.

        proved: False where no output was found, but not every one was looked at.
        """
        self.rows = tuple(rows)
        self.relative = relative
        self.proved = proved
        self.excess = excess
        self.smallest = tuple(smallest)
        listed = "; ".join(
            row
            if not math.isfinite(limit)
            else f"{row} (feasible up to ratio {rounded_down(1.0 - limit):.6g})"
            if relative
            else f"{row} (feasible from tolerance {rounded_up(limit):.6g})"
            for row, limit in zip(rows, smallest, strict=True)
        )
        raised = "lower the ratio by" if relative else "raise the tolerances (or widen the limits) by"
        none = "No output satisfies" if proved else "No output was found that satisfies"
        super().__init__(
            f"{none} these constraints together: {listed}. Widen the bounds, {raised} {rounded_up(excess):.6g}, or "
            'pass infeasible="relax" for the output that violates them least.'
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.rows, self.excess, self.smallest, self.relative, self.proved)


def rounded_up(value: Fraction | float) -> float:
    """A number of six digits that is not below the value: a tolerance that is named must be enough."""
    return _rounded(value, decimal.ROUND_CEILING)


def rounded_down(value: Fraction | float) -> float:
    """A number of six digits that is not above the value."""
    return _rounded(value, decimal.ROUND_FLOOR)


def _rounded(value: Fraction | float, rounding: str) -> float:
    if not math.isfinite(value):
        return float(value)
    exact = value if isinstance(value, Fraction) else Fraction(repr(float(value)))
    six = decimal.Context(prec=6, rounding=rounding)
    return float(six.divide(decimal.Decimal(exact.numerator), decimal.Decimal(exact.denominator)))
