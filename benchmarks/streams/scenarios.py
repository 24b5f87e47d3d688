"""Streams to measure on: functions of their settings, so that every method and environment sees the same.

Needs only NumPy: the authors' package reads them in an environment of its own.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

BOX = (0.0, 1.0)
SPREAD = 0.25  # of outputs within a group; means of groups are as far apart
WIDE = 4.0  # without a box everything is this many times as spread out
PAST = 5000  # samples of past data for a warm start


@dataclass(frozen=True)
class Scenario:
    """A stream: `samples` in batches of `batch`, `attributes` of two values, group means that differ, perhaps jump."""

    batch: int
    attributes: int
    box: bool
    drifts: bool
    samples: int
    seed: int

    @property
    def tolerance(self) -> float:
        """A twentieth of the raw gap of the first attribute when alone."""
        return 0.0125 if self.box else 0.05

    @property
    def bounds(self) -> tuple[float, float] | None:
        """On every output."""
        return BOX if self.box else None

    @property
    def name(self) -> str:
        """For a table."""
        words = [f"b = {self.batch}", f"{self.attributes} attributes" if self.attributes > 1 else "1 attribute"]
        return ", ".join([*words, "box" if self.box else "no box", "drifting" if self.drifts else "stationary"])

    def settings(self) -> dict[str, Any]:
        """For a row of a table, or another process."""
        return asdict(self)

    def draw(self) -> tuple[np.ndarray, np.ndarray]:
        """Raw outputs (n,) and groups (n, k)."""
        return self._draw(np.random.default_rng([self.seed, 1]), np.arange(self.samples) >= self.samples // 2)

    def past(self) -> tuple[np.ndarray, np.ndarray]:
        """Earlier data of the same kind, from before any jump."""
        return self._draw(np.random.default_rng([self.seed, 2]), np.zeros(PAST, dtype=bool))

    def _draw(self, rng: np.random.Generator, late: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        n, k = len(late), self.attributes
        groups = (rng.random((n, k)) < np.linspace(0.2, 0.5, k)).astype(np.int64)
        effects = SPREAD * np.linspace(1.0, -0.6, k)
        jump = 1.0 + late * self.drifts  # the gaps double, and the level moves
        z = 0.4 + SPREAD * rng.standard_normal(n) + jump * (groups @ effects) + 0.1 * (jump - 1.0)
        return (z if self.box else WIDE * z), groups

    def batches(self) -> Iterator[slice]:
        """Where each batch is."""
        for start in range(0, self.samples, self.batch):
            yield slice(start, min(start + self.batch, self.samples))
