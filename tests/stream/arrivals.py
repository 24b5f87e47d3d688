"""Streams of batches to test with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

Arrival = tuple[np.ndarray, dict[str, np.ndarray]]

EFFECT = {"sex": 0.3, "age": -0.15, "region": 0.1}
some = settings(max_examples=70, deadline=None, suppress_health_check=list(HealthCheck))


def arrivals(
    count: int, size: int | tuple[int, int] = (1, 9), seed: int = 0, names: tuple[str, ...] = ("sex", "age")
) -> Iterator[Arrival]:
    """Batches of `size` samples, or between two sizes, whose group means differ; the last attribute has 3 values."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        n = size if isinstance(size, int) else int(rng.integers(*size))
        groups = {name: rng.choice(2 + (name == names[-1]), n, p=None) for name in names}
        z = rng.normal(0.5, 0.25, n) + sum(EFFECT[name] * groups[name] for name in names)
        yield z, groups


@st.composite
def adversaries(draw: Any, largest: int = 20, most: int = 14) -> list[tuple[np.ndarray, np.ndarray]]:
    """Batches by someone who means ill, outputs around 0: one-sided, drifting, all alike or far away.

    Groups come late or alone; batches are of any size.
    """
    levels = [draw(st.integers(2, 4)) for _ in range(draw(st.integers(1, 4)))]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    batches = []
    for number in range(draw(st.integers(1, most))):
        n = draw(st.one_of(st.just(1), st.integers(1, largest)))
        arrival = draw(st.sampled_from(["mixed", "one group", "two camps", "alternating", "constant", "far away"]))
        groups = np.stack([rng.integers(0, count, n) for count in levels], axis=1)
        if arrival == "one group":  # all alike, perhaps never seen before
            groups[:] = [draw(st.integers(0, count)) for count in levels]
        z = rng.normal(0.0, 1.0, n)
        if arrival == "two camps":
            z = np.where(groups[:, 0] == 0, 1.0, -1.0)
        elif arrival == "alternating":
            z = z + (1.0 if number % 2 else -1.0) * groups.sum(axis=1)
        elif arrival == "constant":
            z[:] = draw(st.sampled_from([0.0, 1.0, -1.0, 0.3, 1e-9, -1e-9]))
        elif arrival == "far away":
            z = z + draw(st.sampled_from([100.0, -100.0, 1e4]))
        batches.append((z, groups))
    return batches


def probabilities(rng: np.random.Generator, n: int, d: int, shift: Any = 0.0) -> np.ndarray:
    """(n, d) points on the simplex."""
    weights = np.exp(rng.normal(size=(n, d)) + shift)
    return weights / weights.sum(axis=1, keepdims=True)


def everything(stream: Any) -> Any:
    """The ledger of a stream, and its log."""
    return stream.ledger.to_bytes(), list(stream.entries())
