"""Protected attributes in any form a user has them -> one column of integers per attribute.

A column keeps the meaning of its integers (`labels`), so that a label absent from a batch never shifts the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import torch

from fairlayer.arrays import as_floats, as_numpy, is_dense
from fairlayer.constraints.plain_data import Label, Name
from fairlayer.core._native import number_words
from fairlayer.errors import InputError
from fairlayer.frames import frame_columns, is_frame

_INTEGERS = np.dtype(np.int64)
GivenLevels = Mapping[Name, Sequence[Label]] | None  # all labels an attribute can have, where a batch may lack some
_WHOLE = {torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32}


@dataclass(slots=True, eq=False)
class Column:
    """One integer per sample. `labels[v]` is what v stands for; None where the integers are the labels themselves."""

    name: Name
    values: np.ndarray  # (n,) int64
    labels: tuple[Label, ...] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Any) -> Column:
        """These samples."""
        return Column(self.name, self.values[rows], self.labels)

    def decoded(self) -> np.ndarray:
        """The label of each sample."""
        return self.values if self.labels is None else np.array(self.labels, dtype=object)[self.values]


class SoftGroup:
    """Probabilities of belonging to each group, where the attribute itself is unknown.

    probabilities: (n, K), each row at most 1 in sum. A constraint then holds for the expected group means,
    sum_i p_ig y_i / sum_i p_ig.
    """

    def __init__(self, probabilities: Any, labels: Sequence[Label] | None = None):
        matrix = as_floats(probabilities, "probabilities of SoftGroup", "numbers of shape (n, groups)")
        if matrix.ndim != 2:
            raise InputError(f"SoftGroup needs probabilities of shape (n, groups), got shape {matrix.shape}.")
        slack = max(1e-6, 2 * _rounding(probabilities))  # a softmax adds up to 1 up to the rounding of its dtype
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

    def take(self, rows: Any) -> SoftGroup:
        """These samples."""
        return SoftGroup(self.probabilities[rows], self.labels)

    def decoded(self) -> SoftGroup:
        """Itself: it is not coded."""
        return self


Attributes = dict[Name, "Column | SoftGroup"]


class CodedGroups:
    """Protected attributes as `code_groups` read them: pass them wherever groups are asked for.

    Rows of them are as quick to take as rows of an array: `coded[indices]`, `coded[100:200]`.
    """

    def __init__(self, attributes: Attributes):
        self.attributes = attributes

    def __len__(self) -> int:
        return len(next(iter(self.attributes.values()), ()))

    def __getitem__(self, rows: Any) -> CodedGroups:
        rows = as_numpy(rows) if isinstance(rows, torch.Tensor) else rows
        return CodedGroups({name: column.take(rows) for name, column in self.attributes.items()})

    @property
    def names(self) -> tuple[Name, ...]:
        """The attributes."""
        return tuple(self.attributes)

    @classmethod
    def joined(cls, parts: Sequence[CodedGroups]) -> CodedGroups:
        """The rows of several, taken from the same groups."""
        attributes: Attributes = {}
        for name, column in parts[0].attributes.items():
            same: list[Any] = [part.attributes[name] for part in parts]
            if isinstance(column, SoftGroup):
                attributes[name] = SoftGroup(np.concatenate([one.probabilities for one in same]), column.labels)
            else:
                attributes[name] = Column(name, np.concatenate([one.values for one in same]), column.labels)
        return cls(attributes)


def code_groups(groups: Any, levels: GivenLevels = None) -> CodedGroups:
    """Read protected attributes once, for many batches.

    Labels that are words are turned into integers at every call of the layer. Before a training loop, do it once, and
    take the rows of each batch:

        coded = code_groups(frame[["sex", "race"]])
        y = layer(network(x[batch]), groups=coded[batch])
    """
    if isinstance(groups, CodedGroups):
        return groups
    columns = group_columns(groups)
    n = len(next(iter(columns.values()))) if columns else 0
    return CodedGroups(read_groups(groups, n, levels))


def read_groups(groups: Any, n: int, levels: GivenLevels = None) -> Attributes:
    """Read protected attributes.

    groups: a mapping or frame of columns, one column, an (n, k) array or tensor whose columns are named 0 to k-1, or
    what `code_groups` gave.
    levels: all labels an attribute can have, where the batch may lack some; a label not listed is an error.
    """
    if isinstance(groups, CodedGroups):
        if len(groups) != n:
            raise InputError(
                f"groups has {len(groups)} rows for {n} outputs: take the rows of this batch, groups[rows]."
            )
        raw: dict[Name, Any] = groups.attributes
    else:
        raw = group_columns(groups)
        if not raw:
            raise InputError("groups has no columns: pass at least one protected attribute.")
    for name in levels or ():
        if name not in raw:
            raise InputError(f"levels names attribute {name!r}, which groups does not have; it has {list(raw)}.")
    return {name: read_column(name, values, n, levels.get(name) if levels else None) for name, values in raw.items()}


def group_columns(groups: Any) -> dict[Name, Any]:
    """Columns by name, as they are."""
    if groups is None:
        raise InputError("groups is missing: pass the protected attributes, for instance groups={'sex': sex}.")
    table = groups
    if isinstance(groups, torch.Tensor):
        if not is_dense(groups):
            raise InputError("groups is a sparse or meta tensor: pass a dense one that holds its labels.")
        if groups.is_cpu and groups.dtype in _WHOLE:
            table = groups.numpy()
        dimensions = table.ndim
    elif isinstance(groups, Mapping):
        return dict(groups)
    elif isinstance(groups, CodedGroups):
        return {name: column.decoded() for name, column in groups.attributes.items()}
    elif isinstance(groups, SoftGroup):
        return {0: groups}
    elif is_frame(groups):
        return frame_columns(groups)
    else:
        dimensions = getattr(groups, "ndim", None) or as_numpy(groups, "groups").ndim
        if dimensions == 2:
            table = _as_array(groups, "groups")
    if dimensions == 1:
        return {getattr(groups, "name", None) or 0: groups}
    if dimensions != 2:
        kind = type(groups).__name__
        raise InputError(f"groups must be columns, a frame, or an array of shape (n,) or (n, k); got {kind}.")
    return {j: table[:, j] for j in range(table.shape[1])}


def read_column(name: Name, values: Any, n: int, levels: Sequence[Label] | None = None) -> Column | SoftGroup:
    """Turn one attribute into a column of integers."""
    if levels is None and getattr(values, "shape", ()) == (n,):
        if type(values) is torch.Tensor and values.dtype in _WHOLE and is_dense(values):
            values = values.numpy() if values.is_cpu else values.cpu().numpy()
        if type(values) is np.ndarray and values.dtype is _INTEGERS:
            return Column(name, values)
    if not hasattr(values, "__len__") or isinstance(values, str):
        raise InputError(f"groups[{name!r}] is {values!r}: pass a column, one label per output.")
    if len(values) != n:
        raise InputError(f"groups[{name!r}] has {len(values)} entries for {n} outputs: pass one label per output.")
    if isinstance(values, Column | SoftGroup):
        return _relabelled(name, values, levels)
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
    return _relabelled(name, _coded_array(name, array), levels)


def _coded_array(name: Name, array: np.ndarray) -> Column:
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
                f"groups[{name!r}] holds {len(fractions)} numbers that are not labels, such as {fractions[0]:g}: pass "
                "labels, the number of an interval (numpy.digitize), or SoftGroup(probabilities)."
            )
        return Column(name, codes.astype(np.int64), tuple(labels.tolist()))
    if array.dtype.kind == "U" and array.dtype.itemsize and array.dtype.isnative and len(array):
        letters = np.ascontiguousarray(array).view(np.uint32).reshape(len(array), -1)
        codes, first = number_words(letters)
        return _sorted(name, array[first].tolist(), codes)
    code: defaultdict[Any, int] = defaultdict(lambda: len(code))  # numbers labels as they come
    try:
        codes = np.fromiter(map(code.__getitem__, array.tolist()), np.int64, len(array))
    except TypeError as error:
        raise InputError(f"groups[{name!r}] holds labels that cannot be compared ({error}): use strings.") from error
    _refuse_missing(name, sum(map(is_missing, code)))
    return _sorted(name, list(code), codes)


def _sorted(name: Name, found: list[Any], codes: np.ndarray) -> Column:
    """A column whose labels stand in their order, from labels and codes as they came."""
    labels = sorted_labels(found)
    position = {label: place for place, label in enumerate(labels)}
    return Column(name, np.array([position[label] for label in found], dtype=np.int64)[codes], labels)


def sorted_labels(labels: Collection[Any]) -> tuple[Any, ...]:
    """Labels in their order; in that of their names where they cannot be compared."""
    try:
        return tuple(sorted(labels))
    except TypeError:
        return tuple(sorted(labels, key=str))


def is_missing(label: Label) -> bool:
    """None, NaN, or what a frame has in their place."""
    try:
        return label is None or bool(label != label)
    except (TypeError, ArithmeticError):  # pandas.NA is neither equal to itself nor not; some decimals refuse to say
        return True


def find_missing(values: np.ndarray) -> np.ndarray:
    """(n,) which entries of a column are missing."""
    if values.dtype.kind in "fmM":
        return np.isnat(values) if values.dtype.kind in "mM" else np.isnan(values)
    if values.dtype != object:
        return np.zeros(len(values), dtype=bool)
    return np.fromiter(map(is_missing, values.tolist()), bool, len(values))


def _relabelled(name: Name, column: Column | SoftGroup, levels: Sequence[Label] | None) -> Column | SoftGroup:
    """A column with these labels, whether it has them all or not."""
    if levels is None:
        return column
    known = tuple(levels)
    if isinstance(column, SoftGroup):
        code = _level_codes(name, column.labels, known)
        probabilities = np.zeros((len(column), len(known)))
        probabilities[:, [code[label] for label in column.labels]] = column.probabilities
        return SoftGroup(probabilities, known)
    if column.labels == known:
        return column
    if column.labels is None:
        found, codes = np.unique(column.values, return_inverse=True)
        labels = met = tuple(found.tolist())
    else:
        labels, codes = column.labels, column.values
        met = tuple(compress(labels, np.bincount(codes, minlength=len(labels)) > 0))
    code = _level_codes(name, met, known)
    place = np.array([code.get(label, 0) for label in labels], dtype=np.int64)
    return Column(name, place[codes], known)


def _level_codes(name: Name, labels: Iterable[Label], levels: tuple[Label, ...]) -> dict[Label, int]:
    """The position of each level; labels that are none are refused."""
    code = {level: position for position, level in enumerate(levels)}
    if len(code) < len(levels):
        raise InputError(f"levels of {name!r} lists a label twice: {list(levels)}. Name each once.")
    unknown = [label for label in dict.fromkeys(labels) if label not in code]
    if unknown:
        raise InputError(
            f"groups[{name!r}] holds {unknown[:5]}, not among its levels {list(levels)}: add them to levels."
        )
    return code


def _refuse_missing(name: Name, count: int) -> None:
    if count:
        raise InputError(
            f"groups[{name!r}] has missing labels: leave these samples out, or label them, for instance 'unknown'."
        )


def _as_array(values: Any, what: str) -> np.ndarray:
    if isinstance(values, torch.Tensor | np.ndarray):
        return as_numpy(values, what)
    try:
        array = np.asarray(values)
        if array.dtype.kind in "US":  # numpy writes out whatever stands beside words, and drops zeros at their ends
            is_flat = array.ndim == 1
            array = np.fromiter(values, object, len(values)) if is_flat else np.asarray(values, object)
        return array
    except Exception as error:
        raise InputError(f"{what} cannot be read as an array: {error}") from error


def _rounding(values: Any) -> float:
    """The rounding error of the dtype that values come in; 0 where they are no floats."""
    if isinstance(values, torch.Tensor):
        return torch.finfo(values.dtype).eps if values.is_floating_point() else 0.0
    dtype = getattr(values, "dtype", None)
    return float(np.finfo(dtype).eps) if isinstance(dtype, np.dtype) and dtype.kind == "f" else 0.0
