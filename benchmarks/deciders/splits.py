"""What every method gets: people with scores, targets and groups, in files, as methods run in other environments.

Needs only NumPy, because the worker of every method imports it.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

PARTS = ("training", "fitting", "test")
FIELDS = ("scores", "target", "groups", "features")


@dataclass(frozen=True)
class People:
    """Rows of a data set."""

    scores: np.ndarray  # (n,) float64, probabilities of a yes by the model that all share
    target: np.ndarray  # (n,) int64, 0 or 1
    groups: np.ndarray  # (n,) int64, codes from 0
    features: np.ndarray  # (n, d) float32, for methods that train models


@dataclass(frozen=True)
class Split:
    """Rows to train on, rows to fit thresholds on, rows to test on."""

    data: str
    seed: int
    training: People
    fitting: People
    test: People

    @property
    def name(self) -> str:
        """Tells splits apart."""
        return f"{self.data} {self.seed}"

    def write(self, folder: Path) -> None:
        """As a file of its own."""
        arrays = {f"{part}_{field}": getattr(getattr(self, part), field) for part in PARTS for field in FIELDS}
        np.savez(folder / f"{self.name}.npz", data=self.data, seed=self.seed, **arrays)


def read(path: Path) -> Split:
    """What `write` wrote."""
    with np.load(path) as held:
        parts = (People(*(held[f"{part}_{field}"] for field in FIELDS)) for part in PARTS)
        return Split(str(held["data"]), int(held["seed"]), *parts)
