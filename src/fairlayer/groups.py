"""Protected attributes in any form a user has them -> one column of integers per attribute.

A column keeps the meaning of its integers (`labels`), so that a label absent from a batch never shifts the others.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from fairlayer.errors import InputError

Label = Hashable
Name = Hashable


class Column:
    """One integer per sample. `labels[v]` is what v stands for; None where the integers are the labels themselves.

    `matrix` is the (n, k) table of which this is column `name`, where there is one; `values` is then a view of it.
    """

    __slots__ = ("_values", "labels", "matrix", "name")

    def __init__(self, name: Name, values: Any, labels: tuple[Label, ...] | None = None, matrix: Any = None):
        self.name = name
        self.labels = labels
        self.matrix = matrix
        self._values = values

    @property
    def values(self) -> Any:
        """(n,) int64, numpy array or tensor."""
        return self.matrix[:, self.name] if self._values is None else self._values


class SoftGroup:
    """Probabilities of belonging to each group, where the attribute itself is unknown.

    probabilities: (n, K), each row at most 1 in sum. A constraint then holds for the expected group means,
    sum_i p_ig y_i / sum_i p_ig.
    """

    def __init__(self, probabilities: Any, labels: Sequence[Label] | None = None):
        matrix = _as_array(probabilities, "probabilities").astype(np.float64)
        if matrix.ndim != 2:
            raise InputError(f"SoftGroup needs probabilities of shape (n, groups), got shape {matrix.shape}.")
        if not np.isfinite(matrix).all() or (matrix < 0).any() or (matrix.sum(axis=1) > 1 + 1e-6).any():
            raise InputError(
                "SoftGroup needs probabilities that are finite, at least 0 and at most 1 in each row's sum."
            )
        self.probabilities = matrix
        self.labels: tuple[Label, ...] = tuple(labels) if labels is not None else tuple(range(matrix.shape[1]))
        if len(self.labels) != matrix.shape[1]:
            raise InputError(f"SoftGroup got {len(self.labels)} labels for {matrix.shape[1]} columns of probabilities.")

    def __len__(self) -> int:
        return len(self.probabilities)


Attributes = dict[Name, "Column | SoftGroup"]


def read_groups(groups: Any, n: int, levels: Mapping[Name, Sequence[Label]] | None = None) -> Attributes:
    """Read protected attributes.

    groups: a mapping or frame of columns, one column, or an (n, k) array or tensor whose columns are named 0 to k-1.
    levels: all labels an attribute can have, where the batch may lack some; a label not listed is an error.
    """
    if groups is None:
        raise InputError("groups is missing: pass the protected attributes, for instance groups={'sex': sex}.")
    if isinstance(groups, torch.Tensor | np.ndarray) and groups.ndim == 2:
        if groups.dtype in (torch.int64, np.int64) and groups.shape[0] == n and not levels:
            if groups.shape[1] == 0:
                raise InputError("groups has no columns: pass at least one protected attribute.")
            return {j: Column(j, None, None, groups) for j in range(groups.shape[1])}
        raw: dict[Name, Any] = {j: groups[:, j] for j in range(groups.shape[1])}
    elif isinstance(groups, Mapping):
        raw = dict(groups)
    elif hasattr(groups, "columns") and hasattr(groups, "__getitem__"):
        raw = {name: groups[name] for name in groups.columns}
    elif isinstance(groups, SoftGroup) or np.ndim(groups) == 1:
        raw = {getattr(groups, "name", None) or 0: groups}
    elif np.ndim(groups) == 2:
        return read_groups(np.asarray(groups), n, levels)
    else:
        raise InputError(f"groups must be columns, a frame, or an (n,) or (n, k) array; got {type(groups).__name__}.")
    if not raw:
        raise InputError("groups has no columns: pass at least one protected attribute.")
    for name in levels or {}:
        if name not in raw:
            raise InputError(f"levels names attribute {name!r}, which groups does not have; it has {list(raw)}.")
    return {name: read_column(name, values, n, (levels or {}).get(name)) for name, values in raw.items()}


def read_column(name: Name, values: Any, n: int, levels: Sequence[Label] | None = None) -> Column | SoftGroup:
    """Turn one attribute into a column of integers."""
    if not hasattr(values, "__len__") or isinstance(values, str):
        raise InputError(f"groups[{name!r}] is {values!r}: pass a column, one label per output.")
    if len(values) != n:
        raise InputError(f"groups[{name!r}] has {len(values)} entries for {n} outputs: pass one label per output.")
    if isinstance(values, SoftGroup):
        return values
    if isinstance(values, torch.Tensor) and not values.is_floating_point() and values.ndim == 1 and levels is None:
        if values.dtype == torch.bool:
            return Column(name, values.long(), (False, True))
        return Column(name, values.long())
    categorical = getattr(values, "cat", values)  # a categorical series keeps both under `cat`
    if levels is None and hasattr(categorical, "categories") and hasattr(categorical, "codes"):
        codes = np.asarray(categorical.codes, dtype=np.int64)
        _refuse_missing(name, int((codes < 0).sum()))
        return Column(name, codes, tuple(categorical.categories.tolist()))
    array = _as_array(values, f"groups[{name!r}]")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(
            f"groups[{name!r}] has shape {array.shape}: pass one label per output, or SoftGroup(probabilities)."
        )
    if levels is not None:
        return _with_levels(name, array, tuple(levels))
    if array.dtype == np.bool_:
        return Column(name, array.astype(np.int64), (False, True))
    if np.issubdtype(array.dtype, np.integer):
        return Column(name, array.astype(np.int64, copy=False))
    if np.issubdtype(array.dtype, np.floating):
        _refuse_missing(name, int(np.isnan(array).sum()))
        labels, codes = np.unique(array, return_inverse=True)
        fractions = labels[labels != np.round(labels)]
        if len(fractions):
            raise InputError(
                f"groups[{name!r}] holds {len(fractions)} numbers that are no labels, such as {fractions[0]:g}: pass "
                "labels, the number of an interval (numpy.digitize), or SoftGroup(probabilities)."
            )
        return Column(name, codes.astype(np.int64), tuple(labels.tolist()))
    return _coded(name, array.tolist())


def _coded(name: Name, values: list[Any]) -> Column:
    """Number labels of any kind in their sorted order."""
    found = dict.fromkeys(values)
    _refuse_missing(name, sum(value is None or value != value or str(value) == "<NA>" for value in found))
    try:
        labels = sorted(found)
    except TypeError:
        labels = sorted(found, key=str)
    code = {label: position for position, label in enumerate(labels)}
    return Column(name, np.fromiter((code[value] for value in values), np.int64, len(values)), tuple(labels))


def _with_levels(name: Name, array: np.ndarray, levels: tuple[Label, ...]) -> Column:
    code = {level: position for position, level in enumerate(levels)}
    unknown = [label for label in dict.fromkeys(array.tolist()) if label not in code]
    if unknown:
        raise InputError(
            f"groups[{name!r}] holds {unknown[:5]}, not among its levels {list(levels)}: add them to levels."
        )
    return Column(name, np.fromiter((code[label] for label in array.tolist()), np.int64, len(array)), levels)


def _refuse_missing(name: Name, count: int) -> None:
    if count:
        raise InputError(
            f"groups[{name!r}] has missing labels: leave these samples out, or give them a label of their own "
            "such as 'unknown'."
        )


def _as_array(values: Any, what: str) -> np.ndarray:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        return (values.float() if values.dtype == torch.bfloat16 else values).numpy()  # numpy has no bfloat16
    try:
        return np.asarray(values)
    except Exception as error:
        raise InputError(f"{what} cannot be read as an array: {error}") from error
