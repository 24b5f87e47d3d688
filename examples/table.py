"""A table with strings and missing values, and scikit-learn: a classifier whose mean probabilities agree.

Applicants of two sexes and three regions apply for a loan. Income depends on both, so a classifier that never sees them
still scores groups differently. The fair one differs by at most 0.02, for each attribute by itself, in the batch that
it predicts.

    python examples/table.py
"""

import numpy as np
import pandas as pd

from fairlayer import MeanParity
from fairlayer.metrics import mean_parity_difference
from fairlayer.sklearn import FairClassifier

TOLERANCE = 0.02


def applicants(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray, pd.DataFrame]:
    """What is known of them, whether they paid back, and who they are."""
    random = np.random.default_rng(seed)
    who = pd.DataFrame(
        {"sex": random.choice(["f", "m"], n), "region": random.choice(["north", "south", "west"], n, p=[0.5, 0.4, 0.1])}
    )
    income = random.normal(30 + 6 * (who["sex"] == "m") - 5 * (who["region"] == "west"), 8)
    table = pd.DataFrame(
        {
            "income": np.where(random.random(n) < 0.05, np.nan, income),
            "job": random.choice(["office", "field", "none", None], n, p=[0.5, 0.3, 0.1, 0.1]),
            "debts": random.integers(0, 5, n),
        }
    )
    paid = income / 8 - 0.6 * table["debts"] + random.normal(size=n) > 2.5
    return table, paid.to_numpy(), who


def main() -> None:
    table, paid, who = applicants(3000, seed=0)
    new, paid_new, who_new = applicants(1000, seed=1)
    for name, constraints in (("unconstrained", []), ("fair", [MeanParity(TOLERANCE)])):
        model = FairClassifier(constraints, max_epochs=20, random_state=0)
        model.fit(table, paid, sensitive_features=who)
        probability = model.predict_proba(new, sensitive_features=who_new)[:, 1]
        accuracy = ((probability > 0.5) == paid_new).mean()
        gap = mean_parity_difference(paid_new, probability, sensitive_features=who_new)
        print(f"{name}: accuracy {accuracy:.3f}, means of groups up to {gap:.3f} apart")
    assert gap <= TOLERANCE


if __name__ == "__main__":
    main()
