"""The wage data as the paper's experiment prepares them: 1,200 rows, 63 inputs, wages scaled to [0, 1]."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from experiments.datasets import load

CATEGORIES = [
    "Gender", "EducationBackground", "MaritalStatus", "EmpDepartment", "EmpJobRole", "BusinessTravelFrequency",
    "OverTime", "Attrition",
]  # fmt: skip
MEMBERS = {  # of every protected attribute, the label whose rows count as members
    "aged 50 or over": "yes",
    "manager": "yes",
    "gender": "Male",
    "technical degree": "yes",
    "married": "yes",
}


@dataclass(frozen=True)
class Wages:
    """All rows; there is no split, the task is to describe these employees."""

    x: np.ndarray  # (1200, 63) float32: numbers, two protected attributes, categories
    y: np.ndarray  # (1200,) float32 in [0, 1]
    groups: dict[str, np.ndarray]  # 1 for members
    unit: float  # what a difference of 1 in y is in wages


@lru_cache(maxsize=1)
def wages() -> Wages:
    """Read and scale the data."""
    data = load("employee")
    numbers = data.features.drop(columns=CATEGORIES).astype(np.float64)
    scaled = (numbers - numbers.mean()) / numbers.std(ddof=0)
    groups = {name: (data.protected[name] == label).to_numpy(np.int64) for name, label in MEMBERS.items()}
    one_hot = pd.get_dummies(data.features[CATEGORIES])
    x = np.column_stack([scaled, groups["aged 50 or over"], groups["manager"], one_hot]).astype(np.float32)
    rate = data.target.to_numpy()
    unit = float(rate.max() - rate.min())
    return Wages(x, ((rate - rate.min()) / unit).astype(np.float32), groups, unit)
