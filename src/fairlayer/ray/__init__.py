"""Tables that outgrow a machine: `project`, `audit`, `freeze` and `predict` over a Ray Data dataset.

    import ray, fairlayer.ray
    people = ray.data.read_parquet("people/")
    fair = fairlayer.ray.project(people, score="p", protected=["sex"], constraints=[MeanParity(0.02)], bounds=(0, 1))
    fair.dataset.write_parquet("fair/")

Workers take exact sums of their blocks, the sums are added up and solved here, and workers move the scores. The answer
is that of `fairlayer project` on a file with the same rows, to the bit, however the rows are divided into blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlayer.audit import Audit
from fairlayer.audit import audit as audit_table
from fairlayer.constraints import Constraint
from fairlayer.ray.freeze import freeze
from fairlayer.ray.predict import predict
from fairlayer.ray.project import Projected, project
from fairlayer.tables.dataset import DatasetTable

__all__ = ["Projected", "audit", "freeze", "predict", "project"]


def audit(
    dataset: Any,
    groups: Sequence[str] | str,
    constraints: Sequence[Constraint] | Constraint,
    *,
    prediction: str,
    **options: Any,
) -> Audit:
    """Judge the predictions of a dataset, group by group: the `Audit` that `fairlayer.audit` gives of a file.

    Columns are named, and options are passed, as there. All figures are the same, to the bit; only the rows that are
    drawn for the trade-off, where there are more than 200,000, are others. The dataset is read in eight passes or so:
    call `materialize` before, where its rows take long to make.
    """
    return audit_table(DatasetTable(dataset), groups, constraints, prediction=prediction, **options)
