"""Pictures drawn at random in the layouts of FairFace and CelebA, to see the experiments run without the data.

They are noise around a colour that depends on group and target, so that there is something to learn and a gap to
close. Nothing else can be concluded from them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from experiments import datasets
from experiments.datasets import Dataset
from experiments.pictures.arrays import cache_folder

RACES = ("Black", "East Asian", "Indian", "Latino_Hispanic", "Middle Eastern", "Southeast Asian", "White")
AGES = ("20-29", "30-39")


def load(name: str, rows: int, seed: int) -> Dataset:
    """A dataset of generated pictures, read by the loader of the real ones; rows: for training, and half for test."""
    folder = cache_folder() / "generated" / f"{name}-{rows}-{seed}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=folder.parent))
        try:
            DRAW[name](unfinished / name, rows, np.random.default_rng(seed))
            unfinished.replace(folder)
        except OSError:  # another process was faster
            shutil.rmtree(unfinished)
    before = os.environ.get("FAIRLAYER_DATA")
    os.environ["FAIRLAYER_DATA"] = str(folder)
    try:
        return datasets.load(name)
    finally:
        if before is None:
            del os.environ["FAIRLAYER_DATA"]
        else:
            os.environ["FAIRLAYER_DATA"] = before


def draw_fairface(folder: Path, rows: int, random: np.random.Generator) -> None:
    """Folders `train` and `val`, and a list of each."""
    for part, count in (("train", rows), ("val", rows // 2)):
        (folder / part).mkdir(parents=True)
        lines = ["file,age,gender,race,service_test"]
        for i in range(count):
            older, female, race = int(random.random() < 0.3 + 0.03 * (i % 14)), i % 14 // 7, i % 7
            _draw(folder / part / f"{i + 1}.jpg", older, i % 14 / 14, random)
            lines.append(f"{part}/{i + 1}.jpg,{AGES[older]},{('Male', 'Female')[female]},{RACES[race]},False")
        (folder / f"fairface_label_{part}.csv").write_text("\n".join(lines) + "\n")


def draw_celeba(folder: Path, rows: int, random: np.random.Generator) -> None:
    """The folder `img_align_celeba`, attributes and partition as text."""
    (folder / "img_align_celeba").mkdir(parents=True)
    counts = (rows, rows // 2, rows // 2)
    attributes, partition = [str(sum(counts)), "Male Smiling Young"], []
    for i, part in enumerate(np.repeat([0, 1, 2], counts)):
        name, male, young = f"{i + 1:06d}.jpg", i % 4 // 2, i % 2
        smiling = int(random.random() < 0.4 + 0.2 * male)
        _draw(folder / "img_align_celeba" / name, smiling, (male + young) / 2, random)
        attributes.append(f"{name} {2 * male - 1:2d} {2 * smiling - 1:2d} {2 * young - 1:2d}")
        partition.append(f"{name} {part}")
    (folder / "list_attr_celeba.txt").write_text("\n".join(attributes) + "\n")
    (folder / "list_eval_partition.txt").write_text("\n".join(partition) + "\n")


def _draw(path: Path, target: int, group: float, random: np.random.Generator) -> None:
    from PIL import Image

    colour = np.array([90 + 60 * target, 90 + 80 * group, 110])
    noise = random.normal(0, 30, 3) + random.normal(0, 20, (32, 32, 3))
    Image.fromarray(np.clip(colour + noise, 0, 255).astype(np.uint8)).save(path)


DRAW: dict[str, Callable[[Path, int, Any], None]] = {"fairface": draw_fairface, "celeba": draw_celeba}
