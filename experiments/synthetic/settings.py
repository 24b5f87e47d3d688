"""Settings of the synthetic experiment: as published, and scaled down for a small machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

SETS = tuple(range(32))
GENERATORS = ("published", "corrected")  # corrected: features depend on the group, see `experiments.datasets.synthetic`


@dataclass(frozen=True)
class Settings:
    """One profile. Pairs are for the large and the small batches.

    The published results come from 24,000 training rows, batches of 2,000 and 256 for training and of 2,000 and 16 for
    inference, and a threshold b_tau of 1,000, below which batches get the primal-dual step of Algorithm 1.
    """

    sets: tuple[int, ...] = SETS
    corrected_sets: tuple[int, ...] = SETS  # whose corrected variant all methods are tried on, with large batches
    train_rows: int = 24_000  # the first of the training part; likewise the others
    validation_rows: int = 10_000
    test_rows: int = 6_000
    hidden: tuple[int, ...] = (800, *[600] * 7, 400, 300, 200, 100, 50, 10, 3)
    train_batch: tuple[int, int] = (2000, 256)
    infer_batch: tuple[int, int] = (2000, 16)
    b_tau: int = 1000
    train_eta: float = 0.1
    infer_eta: float = 0.5
    tolerance: float = 0.05

    learning_rate: float = 5e-4  # of SGD without momentum
    epochs: tuple[int, int] = (15_000, 15_000)
    patience: int = 25
    min_delta: float = 5e-5
    plateau_factor: float = 0.66
    plateau_patience: int = 8
    least_rate: float = 8e-10
    epoch: Literal["best", "last"] = "last"  # the authors meant the first and used the second
    strengths: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 0.1, 0.5, 1.0, 5.0, 10.0, 100.0, 1000.0)
    search_epochs: int = 25
    strict: float = 5000.0

    # The well-trained setting: a network that is easy to train, Adam, the best epoch.
    well_hidden: tuple[int, ...] = (64,)
    well_rate: float = 2e-3
    well_batch: int = 128
    well_epochs: int = 200
    well_patience: int = 15
    tuned_rate: float = 2e-4  # of the F-Layer that goes on from there
    tuned_epochs: int = 100

    seed: int = 123456789


PAPER = Settings()
# Half the rows, a network of half the depth with 18,000 weights instead of 3.2 million, and a step a hundred times as
# long, so that it gets somewhere in few epochs. A penalty of 5,000 with that step only drives outputs to a bound: it is
# scaled, too.
MEDIUM = replace(
    PAPER,
    corrected_sets=(0, 5, 10, 15, 19, 22, 25, 28),  # a quarter of them, in which no two factors go together
    train_rows=12_000,
    validation_rows=4_000,
    hidden=(64, 48, 48, 32, 24, 10, 3),
    train_batch=(1000, 128),
    b_tau=500,
    learning_rate=0.05,
    epochs=(50, 12),
    search_epochs=6,
    strict=500.0,
    well_epochs=24,
    well_patience=6,
    tuned_epochs=12,
)
QUICK = replace(
    MEDIUM,
    sets=(0, 19),
    corrected_sets=(19,),
    train_rows=600,
    validation_rows=300,
    test_rows=400,
    hidden=(16, 3),
    train_batch=(150, 32),
    infer_batch=(200, 16),
    b_tau=100,
    epochs=(3, 2),
    search_epochs=1,
    strengths=(0.1, 10.0),
    well_hidden=(16,),
    well_batch=64,
    well_epochs=4,
    tuned_epochs=2,
)
PROFILES = {"paper": PAPER, "medium": MEDIUM, "quick": QUICK}
