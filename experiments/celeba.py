"""CelebA: who is smiling, with the same mean logit for each of four groups by sex and age, within 1e-3.

The pictures may not be passed on: get them from their authors, and lay them out as they are. "paper" is as published:
five networks, pictures of 224 pixels, weights from the hub, a GPU advised. "medium" is for two cores, on some thousand
pictures, and "quick" on generated ones.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from experiments import datasets
from experiments.datasets import Dataset
from experiments.pictures.claims import claims
from experiments.pictures.settings import Network, Settings, Study
from experiments.pictures.study import run, units
from experiments.pictures.summary import summarise
from experiments.runner import Experiment


def split(data: Dataset, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The parts that its authors made."""
    train, validation, test = (
        np.flatnonzero((data.split == part).to_numpy()) for part in ("train", "validation", "test")
    )
    return train, validation, test


STUDY = Study("celeba", datasets.celeba, split, ("Male", "Young"))
PUBLISHED = partial(
    Settings,
    tolerance=1e-3,
    weight_decay=1e-4,
    clip_norm=8.0,
    allowance=0.0,
    projected_choice=True,
    altered=False,
    served=(4, 8, 16, 32, 64, 128),
    seed=1,
)
TRAINED = partial(Network, epochs=15, patience=2, search_epochs=5, wider=(1e-2,))
HEAD = partial(TRAINED, "efficientnet_lite0", weights="package", frozen=True)
FIVE_BLOCKS = partial(TRAINED, "cnn", weights="random", rate=1e-3, head_rate=1e-3)
PROFILES = {
    "paper": PUBLISHED(
        networks=(
            *(TRAINED(name, short=True) for name in ("resnet18", "densenet121", "swin_t", "vit_b16")),
            TRAINED("cnn", weights="random", short=True),
            HEAD(),
        ),
    ),
    "medium": PUBLISHED(
        networks=(
            FIVE_BLOCKS(size=32, search_epochs=1, short=True),
            HEAD(epochs=100, repeats=3),
        ),
        rows=8000,
    ),
    "quick": PUBLISHED(
        networks=(
            FIVE_BLOCKS(size=16, epochs=1, search_epochs=1, wider=()),
            HEAD(size=32, head_rate=1e-2, epochs=2, search_epochs=1),
        ),
        batch_size=64,
        strengths=(1.0, 100.0),
        served=(4, 16, 64),
        generated=240,
    ),
}

EXPERIMENT = Experiment(
    "celeba", PROFILES, units, partial(run, STUDY), partial(summarise, "celeba"), partial(claims, "celeba")
)
