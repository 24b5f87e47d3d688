"""`freeze` of a dataset: shifts or thresholds fitted with rows that are drawn from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fairlayer.constraints import Constraint
from fairlayer.frozen.freeze import freeze as freeze_arrays
from fairlayer.frozen.frozen import Frozen
from fairlayer.layer import FairLayer
from fairlayer.ray.project import Protected, read_protected
from fairlayer.tables.dataset import DatasetTable
from fairlayer.tables.scored import ScoredTable


def freeze(
    dataset: Any,
    score: str,
    protected: Protected,
    constraints: Sequence[Constraint] | Constraint,
    bounds: Any = None,
    *,
    target: str | None = None,
    rows: int = 1_000_000,
    seed: int = 0,
    **options: Any,
) -> Frozen:
    """Solve the projection of a sample of a dataset and keep its shifts, or thresholds: a `Frozen`.

    Columns are named as for `project`; labels of groups are text. rows: how many are drawn at random, all where there
    are no more; they are held in memory, some 100 bytes each. Which are drawn depends on the seed and on how the
    dataset is divided into blocks. options: of `fairlayer.freeze`, such as confidence, tighten and targets_within.
    """
    layer, table = FairLayer(constraints, bounds), DatasetTable(dataset)
    cells = ScoredTable(table, score, read_protected(table, protected), constraints, target, bounds)
    values = {"z": cells.values["z"], **{f"g{j}": one.sql for j, one in enumerate(cells.code.digits)}}
    values |= {"t": cells.values["t"]} if cells.takes_residuals else {}
    found = table.sample(values, rows, table.one({"n": "count(*)"})["n"], seed, cells.code.parameters)
    known = {id(one): one.of(found[f"g{j}"]) for j, one in enumerate(cells.code.digits)}
    groups = {name: known[id(digit)] for name, digit in cells.code.groups.items()}
    features = {name: known[id(digit)] for name, digit in cells.code.features.items()}
    of_target = cells.code.of_target
    targets = known[id(of_target)] if of_target is not None else found.get("t")
    z = np.ascontiguousarray(found["z"], dtype=np.float64)
    return freeze_arrays(layer, z, groups, targets=targets, features=features or None, seed=seed, **options)
