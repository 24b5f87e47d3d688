"""Streams of batches to test with."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

Arrival = tuple[np.ndarray, dict[str, np.ndarray]]

EFFECT = {"sex": 0.3, "age": -0.15, "region": 0.1}


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
