"""Datasets used to judge fairness: loaders with checksums, and the paper's synthetic sets.

Files are read from the folder that FAIRLAYER_DATA names, else from a cache in the user's home, where those with a
public address are fetched to. German credit comes with the package; none of the others is part of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from experiments.datasets.dataset import Dataset, Pictures
from experiments.datasets.files import DatasetError, data_folder
from experiments.datasets.pictures import celeba, fairface
from experiments.datasets.synthetic import Factors, synthetic, synthetic_arrays, synthetic_factors
from experiments.datasets.tables import FILES, acs, adult, credit_card, employee, german, sba

__all__ = [
    "Availability",
    "Dataset",
    "DatasetError",
    "Factors",
    "Pictures",
    "acs",
    "adult",
    "available",
    "celeba",
    "credit_card",
    "data_folder",
    "employee",
    "fairface",
    "german",
    "load",
    "sba",
    "synthetic",
    "synthetic_arrays",
    "synthetic_factors",
]

LOADERS: dict[str, Callable[..., Dataset]] = {
    loader.__name__: loader for loader in (acs, adult, celeba, credit_card, employee, fairface, german, sba, synthetic)
}
_PATTERNS = {
    "celeba": ("list_attr_celeba.*", "list_eval_partition.*", "img_align_celeba*"),
    "fairface": ("fairface_label_train*.csv", "fairface_label_val*.csv", "*train*", "*val*"),
}


@dataclass(frozen=True)
class Availability:
    """Whether a dataset can be loaded: `present` in the data folder, or to be had by `fetchable` download."""

    name: str
    summary: str
    present: bool
    fetchable: bool


def available() -> list[Availability]:
    """Every dataset, with what is present."""
    folder = data_folder()
    listed = []
    for name, loader in LOADERS.items():
        files = [choices for choices in FILES if choices[0].folder == name]
        patterns = _PATTERNS.get(name, ())
        present = all(any(file.present for file in choices) for choices in files)
        present = present and all(any((folder / name).glob(pattern)) for pattern in patterns)
        fetchable = bool(files) and all(any(file.url for file in choices) for choices in files)
        summary = (loader.__doc__ or "").split("\n")[0]
        listed.append(Availability(name, summary, present, fetchable))
    return listed


def load(name: str, **options: Any) -> Dataset:
    """Load a dataset by name; `synthetic` takes index= and corrected=, the others fetch= and verify=."""
    if name not in LOADERS:
        raise DatasetError(f"There is no dataset {name!r}; there are {sorted(LOADERS)}.")
    return LOADERS[name](**options)
