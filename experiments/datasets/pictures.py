"""Loaders of pictures: the labels as a table, the pictures read from a folder or an archive when asked for."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from experiments.datasets.dataset import Dataset
from experiments.datasets.files import DatasetError, File, check, data_folder
from experiments.datasets.tables import pandas
from fairlayer.extras import needs

FAIRFACE_SOURCE = "https://github.com/joojs/fairface (pictures with padding 0.25)"
FAIRFACE = {  # checksums of the excerpt; the full set, named without a number of pictures, has none here
    "fairface_label_train_8000.csv": "9added6e9eb8986f28c5e5f7d94cd1fae03f91899991a1f0a0884c6d85e017f4",
    "fairface_label_val_4000.csv": "31824d1ead3816d523b10980e672765db9467c1ffdaae08732ae840d4be04205",
    "fairface_train_8000.zip": "5c5e117034c2f2155c55bf2b451d2ad092b1335f9dab7f630fe6fbde2377c118",
    "fairface_val_4000.zip": "52293bc56fa7d704fca7adf748ca4244baafe2730295a7ead94593d99e519730",
}
OLDER = ["30-39", "40-49", "50-59", "60-69", "more than 70"]

CELEBA_SOURCE = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html"
CELEBA_SPLITS = {0: "train", 1: "validation", 2: "test"}


class PictureFiles:
    """Pictures in a folder, or in zip archives, by name. Opens an archive once in each process that reads."""

    def __init__(self, places: Sequence[Path], names: Sequence[str], place_of: np.ndarray):
        """place_of: which of `places` holds each picture."""
        self.places = list(places)
        self.names = list(names)
        self.place_of = place_of
        self._open: dict[int, zipfile.ZipFile] = {}

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, position: int) -> Any:
        with needs("Reading a picture", "pillow"):
            from PIL import Image
        with Image.open(BytesIO(self.read(position))) as picture:
            return picture.convert("RGB")

    def read(self, position: int) -> bytes:
        """The file as it is stored."""
        number = int(self.place_of[position])
        place, name = self.places[number], self.names[position]
        if place.is_dir():
            return (place / name).read_bytes()
        if number not in self._open:
            self._open[number] = zipfile.ZipFile(place)
        return self._open[number].read(name)

    def select(self, positions: Sequence[int]) -> PictureFiles:
        """Some of the pictures."""
        return PictureFiles(self.places, [self.names[p] for p in positions], self.place_of[np.asarray(positions)])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}  # open archives are not shared between processes


def fairface(fetch: bool = True, verify: bool = True) -> Dataset:
    """FairFace: who is 30 or older, from a picture of the face; protected: gender, race.

    Reads `fairface_label_train*.csv` and `fairface_label_val*.csv`, and the pictures from `fairface_train*.zip`,
    `fairface_val*.zip`, or the folders `train` and `val`. The published validation part is the test part here.
    """
    pd = pandas()
    folder = data_folder() / "fairface"
    frames, places = [], []
    for part, split in (("train", "train"), ("val", "test")):
        labels = _first(folder, f"fairface_label_{part}*.csv", FAIRFACE_SOURCE)
        place = folder if (folder / part).is_dir() else _first(folder, f"fairface_{part}*.zip", FAIRFACE_SOURCE)
        for path in (labels, place) if verify else ():
            check(File("fairface", path.name, FAIRFACE.get(path.name)))
        frames.append(pd.read_csv(labels).assign(split=split))
        places.append(place)
    table = pd.concat(frames, ignore_index=True)
    split = table.pop("split")
    return Dataset(
        name="fairface",
        task="classification",
        features=table[["file"]],
        target=table["age"].isin(OLDER).astype("int64").rename("30_or_older"),
        protected=table[["gender", "race"]],
        split=split,
        table=table,
        pictures=PictureFiles(places, table["file"].tolist(), (split == "test").to_numpy().astype(int)),
        description="Faces, 224 x 224, with age, gender and race as perceived by annotators; target: 30 or older.",
        licence="CC BY 4.0",
        source=FAIRFACE_SOURCE,
    )


def celeba(fetch: bool = True, verify: bool = True, target: str = "Smiling") -> Dataset:
    """CelebA in its original layout: one of 40 attributes from a picture; protected: Male, Young.

    Reads `img_align_celeba/` (or `img_align_celeba.zip`), `list_attr_celeba.txt` or `.csv`, and
    `list_eval_partition.txt` or `.csv`. It may not be redistributed: get it from its authors.
    """
    pd = pandas()
    folder = data_folder() / "celeba"
    table = _celeba_list(pd, folder, "list_attr_celeba", skip=1)
    partition = _celeba_list(pd, folder, "list_eval_partition", skip=0).iloc[:, 0]
    if target not in table.columns:
        raise DatasetError(f"CelebA has no attribute {target!r}; it has {list(table.columns)}.")
    pictures = folder / "img_align_celeba"
    place = pictures if pictures.is_dir() else _first(folder, "img_align_celeba.zip", CELEBA_SOURCE)
    names = [name if place.is_dir() else f"img_align_celeba/{name}" for name in table.index]
    split = partition.reindex(table.index).map(CELEBA_SPLITS).reset_index(drop=True).rename("split")
    table = table.reset_index(names="file")
    yes_no = {1: "yes", -1: "no", 0: "no"}
    return Dataset(
        name="celeba",
        task="classification",
        features=table[["file"]],
        target=(table[target] == 1).astype("int64"),
        protected=pd.DataFrame({name: table[name].map(yes_no) for name in ("Male", "Young")}),
        split=split,
        table=table,
        pictures=PictureFiles([place], names, np.zeros(len(names), dtype=int)),
        description=f"Faces of celebrities with 40 attributes as seen by annotators; target: {target}.",
        licence="for non-commercial research only; no redistribution",
        source=CELEBA_SOURCE,
    )


def _first(folder: Path, pattern: str, source: str) -> Path:
    found = sorted(folder.glob(pattern))
    if not found:
        raise DatasetError(f"{folder / pattern} is absent and cannot be fetched automatically: get it from {source}.")
    return found[0]


def _celeba_list(pd: Any, folder: Path, name: str, skip: int) -> Any:
    """One of CelebA's lists, by picture: the original text (with `skip` lines before the header) or the CSV copy."""
    path = _first(folder, f"{name}.*", CELEBA_SOURCE)
    if path.suffix == ".csv":
        return pd.read_csv(path, index_col=0)
    return pd.read_csv(path, sep=r"\s+", skiprows=skip, header="infer" if skip else None, index_col=0)
