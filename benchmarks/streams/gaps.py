"""Gaps over time, from what was emitted: pooled, and averaged over batches."""

import numpy as np


def pooled_gap(emitted: np.ndarray, groups: np.ndarray, batch: int) -> np.ndarray:
    """(T,) after each batch, the largest difference of group means over everything emitted so far."""
    ends = batch_ends(len(emitted), batch)
    largest = np.zeros(len(ends))
    for column in groups.T:
        gap = _mean(emitted, column == 1, ends) - _mean(emitted, column == 0, ends)
        largest = np.fmax(largest, np.abs(gap))  # a group that has not come yet has no gap
    return largest


def average_gap(emitted: np.ndarray, groups: np.ndarray, batch: int) -> np.ndarray:
    """(T,) the average of batches' largest gaps so far, weighted by size: what Algorithm 1 is about."""
    ends = batch_ends(len(emitted), batch)
    sizes = np.diff(ends, prepend=0)
    largest = np.full(len(ends), np.nan)
    for column in groups.T:
        gap = _batch_mean(emitted, column == 1, ends) - _batch_mean(emitted, column == 0, ends)
        largest = np.fmax(largest, np.abs(gap))
    defined = np.isfinite(largest)
    weight = np.cumsum(np.where(defined, sizes, 0))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.cumsum(np.where(defined, sizes * largest, 0.0)) / weight


def batch_ends(samples: int, batch: int) -> np.ndarray:
    """Samples up to the end of each batch."""
    return np.minimum(np.arange(batch, samples + batch, batch), samples)


def _mean(emitted: np.ndarray, members: np.ndarray, ends: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return np.cumsum(emitted * members)[ends - 1] / np.cumsum(members)[ends - 1]


def _batch_mean(emitted: np.ndarray, members: np.ndarray, ends: np.ndarray) -> np.ndarray:
    total = np.diff(np.cumsum(emitted * members)[ends - 1], prepend=0.0)
    count = np.diff(np.cumsum(members)[ends - 1], prepend=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return total / count
