"""The loan data as the paper's experiment prepares them: split, then encoded and scaled by what training rows hold."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import OneHotEncoder

from experiments.datasets import load

TEST, VALIDATION = 0.2, 0.15  # of all rows, and of those that remain
# The order of columns is the authors': with it and their seed, Projection gives their stored results.
CONTINUOUS = [
    "Term", "NoEmp", "CreateJob", "RetainedJob", "DisbursementGross", "GrAppv", "SBA_Appv", "Portion", "daysterm",
    "log DisbursementGross",
]  # fmt: skip
CATEGORIES = [
    "ApprovalFY", "NewExist", "FranchiseCode", "RevLineCr", "LowDoc", "New", "RealEstate", "Recession", "BankState",
    "Bank", "NAICS",
]  # fmt: skip
TWO_MOST_FREQUENT = ["BankState", "RevLineCr"]  # the other values are one


@dataclass(frozen=True)
class Part:
    """Rows of one part of the split."""

    x: np.ndarray  # (n, inputs) float32; the last two columns are the protected attributes
    y: np.ndarray  # (n,) float32, 1 for a default
    groups: dict[str, np.ndarray]  # "new" and "urban", 0 or 1


@lru_cache(maxsize=2)
def loan_split(seed: int) -> dict[str, Part]:
    """The parts "train", "validation" and "test" of one of the 25 splits."""
    table, target, protected = _loans()
    rest, test = train_test_split(np.arange(len(target)), test_size=TEST, stratify=target, random_state=seed)
    train, validation = train_test_split(rest, test_size=VALIDATION, stratify=target[rest], random_state=seed)
    inputs = _encode(table, train)
    groups = {name: protected[name].to_numpy() for name in protected.columns}
    return {
        name: Part(inputs[rows], target[rows], {key: column[rows] for key, column in groups.items()})
        for name, rows in (("train", train), ("validation", validation), ("test", test))
    }


@lru_cache(maxsize=1)
def _loans() -> tuple[pd.DataFrame, np.ndarray, pd.DataFrame]:
    """What is known of every loan, whether it defaulted, and its protected attributes as 0 and 1."""
    data = load("sba")
    table = data.features.copy()
    table["Bank"] = _bank(table["Bank"])
    table["NAICS"] = table["NAICS"].astype(object).where(table["NAICS"].notna(), "Missing").astype(str)
    table["log DisbursementGross"] = np.log1p(table["DisbursementGross"])
    protected = pd.DataFrame(
        {"new": data.protected["new"] == "new", "urban": data.protected["urban"] == "urban"}, dtype=np.int64
    )
    return table, data.target.to_numpy(dtype=np.float32), protected


def _bank(names: Any) -> np.ndarray:
    """The two banks of the case study, by the words in a name, and all others."""
    upper = names.fillna("").str.upper()

    def has(*words: str) -> Any:
        return np.logical_and.reduce([upper.str.contains(word) for word in words])

    return np.select([has("WELLS", "FARGO"), has("BANK", "AMERICA")], ["Wells Fargo", "Bank of America"], "Other")


def _encode(table: pd.DataFrame, train: np.ndarray) -> np.ndarray:
    """All rows as network inputs: numbers, categories, protected attributes."""
    categories = table[CATEGORIES].copy()
    for name in TWO_MOST_FREQUENT:
        filled = categories[name].fillna("Missing").astype(str)
        frequent = filled.iloc[train].value_counts().index[:2]
        categories[name] = filled.where(filled.isin(frequent), "Other")
    columns = [_one_hot(categories[name], train) for name in CATEGORIES]
    numbers = table[CONTINUOUS].astype(np.float64)
    known = numbers.iloc[train]
    numbers = numbers.fillna(known.median())
    known = numbers.iloc[train]
    scaled = ((numbers - known.mean()) / known.std(ddof=0)).fillna(0.0)
    _, _, protected = _loans()
    return np.column_stack([scaled, *columns, protected]).astype(np.float32)


def _one_hot(column: Any, train: np.ndarray) -> np.ndarray:
    """One column per value seen in training; a value not seen there, or missing, is all zero."""
    levels = np.sort(column.iloc[train].dropna().unique())
    encoder = OneHotEncoder(categories=[levels], handle_unknown="ignore", sparse_output=False)
    return encoder.fit(column.iloc[train].to_frame()).transform(column.to_frame())
