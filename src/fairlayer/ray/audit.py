"""`audit` of a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlayer.audit import Audit
from fairlayer.audit import audit as audit_table
from fairlayer.constraints import Constraint
from fairlayer.ray.dataset import DatasetTable


def audit(
    dataset: Any,
    groups: Sequence[str] | str,
    constraints: Sequence[Constraint] | Constraint,
    *,
    prediction: str,
    target: str | None = None,
    weight: str | None = None,
    raw: str | None = None,
    bounds: tuple[float, float] | None = None,
    threshold: float | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    tradeoff: bool = True,
) -> Audit:
    """Judge the predictions of a dataset, group by group: the `Audit` that `fairlayer.audit` gives of a file.

    Columns are named as they are there, and all figures are the same, to the bit; only the rows that are drawn for the
    trade-off, where there are more than 200,000, are others. The dataset is read in eight passes or so: call
    `materialize` before, where its rows are dear to make.
    """
    return audit_table(
        DatasetTable(dataset),
        groups,
        constraints,
        prediction=prediction,
        target=target,
        weight=weight,
        raw=raw,
        bounds=bounds,
        threshold=threshold,
        confidence=confidence,
        seed=seed,
        tradeoff=tradeoff,
    )
