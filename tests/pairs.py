"""Covering arrays: few combinations of settings in which every pair of two settings occurs.

A fault that needs three particular settings at once is rare; one that needs two is not. The product of all settings
grows with each of them, a covering array about as the product of the two largest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Any


def pairwise(*settings: Sequence[Any], allowed: Callable[..., bool] = lambda *_: True) -> list[tuple[Any, ...]]:
    """Combinations, one entry of each of the settings, that contain every pair that is `allowed`; the same each time.

    Greedy: a row starts with the first pair that is missing, and takes of every other setting what adds most pairs. Of
    entries that add as many it takes another each time, so that rows differ. allowed: of a whole combination.
    """
    sizes = [range(len(entries)) for entries in settings]
    whole = [row for row in product(*sizes) if allowed(*(s[k] for s, k in zip(settings, row, strict=True)))]
    missing = dict.fromkeys(pair for row in whole for pair in _pairs(row))
    rows: list[tuple[int, ...]] = []
    while missing:
        (a, i), (b, j) = next(iter(missing))
        fitting = [row for row in whole if row[a] == i and row[b] == j]
        turned = len(rows) % len(fitting)
        row = max(fitting[turned:] + fitting[:turned], key=lambda row: sum(pair in missing for pair in _pairs(row)))
        rows.append(row)
        for pair in _pairs(row):
            missing.pop(pair, None)
    return [tuple(entries[k] for entries, k in zip(settings, row, strict=True)) for row in rows]


def _pairs(row: tuple[int, ...]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    return list(combinations(enumerate(row), 2))
