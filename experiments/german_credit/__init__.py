"""German credit, the data of the demo: 1,000 loan applicants of a German bank, 1994 (CC BY 4.0; see LICENCE.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from fairlayer.extras import needs

PATH = Path(__file__).parent / "german.data"
DESCRIPTION = (
    "Loan applicants of a German bank, 1994; target: good credit (700 of 1,000). Sex is read from the code of personal "
    "status."
)
LICENCE = "CC BY 4.0"
# fmt: off
COLUMNS = [
    "checking_status", "duration", "credit_history", "purpose", "credit_amount", "savings", "employment",
    "installment_rate", "personal_status", "other_debtors", "residence_since", "property", "age",
    "other_installment_plans", "housing", "existing_credits", "job", "dependants", "telephone",
    "foreign_worker", "outcome",
]
# fmt: on


class GermanCredit(NamedTuple):
    """Frames of 1,000 rows each."""

    features: Any  # 20 columns
    target: Any  # 1 for good credit
    protected: Any  # "sex", and "age": over 25 or not


def load(path: Path = PATH) -> GermanCredit:
    """Read the file as UCI publishes it (Statlog, https://doi.org/10.24432/C5NC77)."""
    with needs("Reading a data set", "pandas"):
        import pandas as pd
    table = pd.read_csv(path, sep=" ", header=None, names=COLUMNS)
    sex = table["personal_status"].isin(["A92", "A95"]).map({True: "female", False: "male"})
    age = (table["age"] > 25).map({True: "over 25", False: "25 or younger"})
    target = (table["outcome"] == 1).astype("int64").rename("good_credit")
    return GermanCredit(table.drop(columns="outcome"), target, pd.DataFrame({"sex": sex, "age": age}))
