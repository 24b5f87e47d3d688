"""Protected attributes in any form a user has them -> one column of integers per attribute.

A column keeps the meaning of its integers (`labels`), so that a label absent from a batch never shifts the others.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
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
        slack = max(1e-6, 2 * _rounding(probabilities))  # a softmax adds up to 1 but for the rounding of its dtype
        if not np.isfinite(matrix).all() or (matrix < 0).any() or (matrix.sum(axis=1) > 1 + slack).any():
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
        return read_groups(_as_array(groups, "groups"), n, levels)
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
        return values if levels is None else _soft_with_levels(name, values, tuple(levels))
    whole = isinstance(values, torch.Tensor) and not values.is_floating_point() and values.dtype != torch.uint64
    if whole and values.ndim == 1 and levels is None:
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
    if np.issubdtype(array.dtype, np.integer) and (array.dtype != np.uint64 or array.max(initial=0) < 2**63):
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
    _refuse_missing(name, sum(map(_is_missing, found)))
    try:
        labels = sorted(found)
    except TypeError:
        labels = sorted(found, key=str)
    code = {label: position for position, label in enumerate(labels)}
    return Column(name, np.fromiter((code[value] for value in values), np.int64, len(values)), tuple(labels))


def _is_missing(label: Label) -> bool:
    """None, NaN, or what a frame has in their place."""
    try:
        return label is None or bool(label != label)
    except TypeError:  # pandas.NA is neither equal to itself nor not
        return True


def _with_levels(name: Name, array: np.ndarray, levels: tuple[Label, ...]) -> Column:
    code = _level_codes(name, array.tolist(), levels)
    return Column(name, np.fromiter((code[label] for label in array.tolist()), np.int64, len(array)), levels)


def _soft_with_levels(name: Name, group: SoftGroup, levels: tuple[Label, ...]) -> SoftGroup:
    code = _level_codes(name, group.labels, levels)
    probabilities = np.zeros((len(group), len(levels)))
    probabilities[:, [code[label] for label in group.labels]] = group.probabilities
    return SoftGroup(probabilities, levels)


def _level_codes(name: Name, labels: Iterable[Label], levels: tuple[Label, ...]) -> dict[Label, int]:
    """The position of each level; labels that are none are refused."""
    code = {level: position for position, level in enumerate(levels)}
    unknown = [label for label in dict.fromkeys(labels) if label not in code]
    if unknown:
        raise InputError(
            f"groups[{name!r}] holds {unknown[:5]}, not among its levels {list(levels)}: add them to levels."
        )
    return code


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
        array = np.asarray(values)
        if array.dtype.kind in "US" and not isinstance(values, np.ndarray):
            # numpy writes out whatever stands beside words, and a missing label becomes the word "nan".
            plain = np.asarray(values, dtype=object)
            return array if all(isinstance(label, str | bytes) for label in plain.flat) else plain
        return array
    except Exception as error:
        raise InputError(f"{what} cannot be read as an array: {error}") from error


def _rounding(values: Any) -> float:
    """The rounding error of the dtype that values come in; 0 where they are no floats."""
    if isinstance(values, torch.Tensor):
        return torch.finfo(values.dtype).eps if values.is_floating_point() else 0.0
    dtype = getattr(values, "dtype", None)
    return float(np.finfo(dtype).eps) if isinstance(dtype, np.dtype) and dtype.kind == "f" else 0.0
