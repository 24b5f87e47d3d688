"""What can be chosen in the picture experiments, and what differs between their two datasets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from experiments.datasets import Dataset


@dataclass(frozen=True)
class Network:
    """How one backbone is trained; the rates are of its features and of its head."""

    name: str
    weights: str = "hub"
    size: int = 224
    rate: float = 1e-6
    head_rate: float = 1e-4
    epochs: int = 100
    patience: int = 3
    search_epochs: int = 10  # for each strength of the penalty
    repeats: int = 1  # with seeds of their own
    wider: tuple[float, ...] = ()  # tolerances besides the paper's
    frozen: bool = False  # features are computed once and kept
    short: bool = False  # features in bfloat16


@dataclass(frozen=True)
class Settings:
    """Of a picture experiment; the defaults are those of FairFace as published."""

    networks: tuple[Network, ...]
    tolerance: float = 1e-4
    batch_size: int = 256  # in training and in evaluation
    weight_decay: float = 0.01
    clip_norm: float = 2.0
    plateau_factor: float = 0.8
    plateau_patience: int = 1
    lowest_rate: float = 1e-6
    strengths: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0, 10000.0)
    strict: float = 10000.0
    allowance: float = 0.01  # share of the tolerance by which a penalty may exceed it in the search for its strength
    projected_choice: bool = False  # choose Projection's epoch by its projected outputs, rather than the raw ones
    altered: bool = True  # training pictures are mirrored and coloured at random, once
    served: tuple[int, ...] = (4, 8, 14, 16, 32, 64, 128, 256)  # batch sizes in inference
    b_tau: tuple[int, ...] = (2, 1024)
    eta: float = 0.1
    rows: int | None = None  # at most, of each part
    generated: int = 0  # pictures to draw instead of reading data
    seed: int = 42


@dataclass(frozen=True)
class Study:
    """A dataset of pictures: split(data, seed) gives the positions of training, validation and test."""

    name: str
    load: Callable[[], Dataset]
    split: Callable[[Dataset, int], tuple[np.ndarray, np.ndarray, np.ndarray]]
    attributes: tuple[str, ...]
