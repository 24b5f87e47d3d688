"""Tables for the command line: text, missing entries, a rare category and three protected attributes."""

from __future__ import annotations

import numpy as np
import pandas as pd

FIT = ["--protected", "sex", "--protected", "race", "--protected", "disabled", "--parity", "0.05", "--epochs", "5"]


def people(n: int = 600, seed: int = 0) -> pd.DataFrame:
    """Applicants, as they might come out of a spreadsheet."""
    random = np.random.default_rng(seed)
    age = random.integers(18, 80, n)
    sex = random.choice(["female", "male"], n, p=[0.4, 0.6])
    race = random.choice(["white", "black", "other"], n, p=[0.7, 0.28, 0.02])
    race[:2] = "other"  # rare, but there
    income = random.lognormal(3, 0.5, n) + 5 * (sex == "male")
    score = income / 30 + age / 100 + 0.5 * (race == "white") + random.normal(0, 0.4, n)
    return pd.DataFrame(
        {
            "name": [f"person {i}" for i in range(n)],
            "income": np.where(random.random(n) < 0.1, "NA", np.round(income, 2).astype(str)),
            "age": age,
            "town": random.choice(["Aix", "Böblingen", "", 'Mc"Lean, VA'], n, p=[0.5, 0.3, 0.15, 0.05]),
            "job": random.choice(["clerk", "cook", "pilot"], n, p=[0.5, 0.49, 0.01]),
            "sex": sex,
            "race": race,
            "disabled": random.choice(["yes", "no", ""], n, p=[0.2, 0.75, 0.05]),
            "approved": np.where(score > np.median(score), "yes", "no"),
            "amount": np.round(100 * score, 2),
        }
    )


def write(frame: pd.DataFrame, path) -> str:
    frame.to_csv(path, index=False)
    return str(path)
