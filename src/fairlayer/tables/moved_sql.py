"""The projection in SQL, for every engine: a score less the shift of its cell, within the bounds."""

from __future__ import annotations

import math


def moved(score: str, shift: str, lo: float, hi: float) -> str:
    """SQL of y = clip(score - shift, lo, hi). score, shift: SQL. Neither may be NULL, which some engines would clip."""
    sql = f"({score} - {shift})"
    if lo > -math.inf:
        sql = f"GREATEST({sql}, {literal(lo)})"
    return f"LEAST({sql}, {literal(hi)})" if hi < math.inf else sql


def free(score: str, shift: str, lo: float, hi: float) -> str:
    """SQL of 1 where no bound holds y, else 0: minus its slope in the shift."""
    return f"CASE WHEN {moved(score, shift, lo, hi)} = ({score} - {shift}) THEN 1 ELSE 0 END"


def literal(value: float) -> str:
    """A float64 that every engine reads as the same."""
    return f"({value:.17e})"
