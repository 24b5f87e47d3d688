"""FairFace: who is 30 or older, with the same mean logit for each of 14 groups by gender and race, within 1e-4.

"paper" is as published, on as many pictures as the data folder holds: five networks, pictures of 224 pixels, weights
from the hub, a GPU advised. "medium" is for two cores: the five-block network on small pictures, from scratch, at rates
that fit the few steps there are; and EfficientNet-Lite0 as it is, of which only the head is trained.
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
    """A tenth of the training pictures, by target, for validation; the published validation pictures for test."""
    from sklearn.model_selection import train_test_split

    named = np.flatnonzero((data.split == "train").to_numpy())
    target = data.target.to_numpy()[named]
    train, validation = train_test_split(named, test_size=0.1, stratify=target, random_state=seed)
    return train, validation, np.flatnonzero((data.split == "test").to_numpy())


STUDY = Study("fairface", datasets.fairface, split, ("gender", "race"))
TRAINED = partial(Network, wider=(1e-3,))
HEAD = partial(TRAINED, "efficientnet_lite0", weights="package", frozen=True)
FIVE_BLOCKS = partial(TRAINED, "cnn", weights="random", rate=1e-3, head_rate=1e-3)
PROFILES = {
    "paper": Settings(
        networks=(
            *(TRAINED(name, short=True) for name in ("resnet18", "densenet121", "swin_t", "vit_b16")),
            TRAINED("cnn", weights="random", short=True),
            HEAD(),
        ),
    ),
    "medium": Settings(
        networks=(
            HEAD(repeats=3, wider=(1e-3, 0.1)),
            FIVE_BLOCKS(size=32, epochs=6, search_epochs=1, repeats=3, short=True),
        ),
    ),
    "quick": Settings(
        networks=(
            FIVE_BLOCKS(size=16, epochs=1, search_epochs=1, wider=()),
            HEAD(size=32, head_rate=1e-2, epochs=2, search_epochs=1),
        ),
        batch_size=64,
        strengths=(1.0, 100.0),
        served=(4, 16, 64),
        generated=280,
    ),
}

EXPERIMENT = Experiment(
    "fairface", PROFILES, units, partial(run, STUDY), partial(summarise, "fairface"), partial(claims, "fairface")
)
