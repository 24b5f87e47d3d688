"""What `fit` and `predict` are given: columns of a table, protected attributes by name, in any form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fairlayer.arrays import as_numpy
from fairlayer.errors import InputError
from fairlayer.frames import frame_column, frame_columns, frame_names, is_frame


def columns_of(X: Any) -> dict[Any, Any]:
    """A table's columns by name, or by position where they have no names."""
    if isinstance(X, Mapping) or is_frame(X):
        return frame_columns(X)
    table = np.asarray(X)
    if table.ndim != 2:
        raise InputError(f"X has shape {table.shape}: a table has rows and columns.")
    return {j: table[:, j] for j in range(table.shape[1])}


def named_groups(sensitive_features: Any) -> dict[Any, Any]:
    """Protected attributes by name: of a frame, a mapping, a series, a list, or an array of one or more columns."""
    if isinstance(sensitive_features, Mapping) or is_frame(sensitive_features):
        return frame_columns(sensitive_features)
    name = getattr(sensitive_features, "name", None)
    if name is not None and name != "":
        return {name: sensitive_features}
    table = as_numpy(sensitive_features, "sensitive_features")
    if table.ndim == 1:
        return {"sensitive_feature": table}
    if table.ndim == 2 and table.shape[1] > 0:
        return {f"sensitive_feature_{j}": table[:, j] for j in range(table.shape[1])}
    raise InputError(f"sensitive_features has shape {table.shape}: pass one label, or one row of labels, per sample.")


def groups_within(X: Any, names: Sequence[Any], option: str) -> dict[Any, Any]:
    """Protected attributes that are columns of X, under these names or at these positions."""
    columns = columns_of(X)
    absent = [name for name in names if name not in columns]
    if absent:
        raise InputError(f"{option} names {absent}, which X does not have; it has {list(columns)[:20]}.")
    return {name: columns[name] for name in names}


def are_columns(groups: Mapping[Any, Any], X: Any) -> bool:
    """Whether the frame X holds the attributes under the same names."""
    if not is_frame(X):
        return False
    known = frame_names(X)
    return all(
        name in known and (np.asarray(frame_column(X, name)) == np.asarray(labels)).all()
        for name, labels in groups.items()
    )
