"""What the columns of a table mean to a model: inferred by `fit`, kept in the model folder, applied by `predict`.

Text is read as it stands in the file, and each column is either numbers or categories. Protected attributes are labels,
always as text, so that 1 in a CSV file and 1 in a Parquet file are the same group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any, Literal

import numpy as np

from fairlayer.errors import InputError
from fairlayer.tables.attribute import Attribute
from fairlayer.tables.doubts import danger, no_feature
from fairlayer.tables.duckdb_table import MISSING
from fairlayer.tables.entries import is_number, numbers, text_labels, without_missing
from fairlayer.tables.table_io import Source

OTHER = "other"  # the label of groups that were joined
MOST_LABELS = 50  # of a protected attribute
MOST_CLASSES = 50  # of a target

Task = Literal["classification", "regression"]


@dataclass(frozen=True)
class Labels:
    """A protected attribute as the model knows it. merge: labels not known become `other`."""

    attribute: Attribute
    known: tuple[str, ...]
    merge: bool


@dataclass(frozen=True)
class Schema:
    """The columns of a table: what is predicted, from what, and who is to be treated alike."""

    target: str
    task: Task
    positive: str | None  # the class whose probability is predicted
    negative: str | None  # the other class, where there is one only
    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    labels: tuple[Labels, ...]
    decimal_commas: bool = False  # in the file it was inferred from
    classes: tuple[str, ...] = ()  # all of them, where there are three or more and each has a probability

    @property
    def features(self) -> tuple[str, ...]:
        """What the network sees."""
        return (*self.numbers, *self.categories)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The protected columns."""
        return tuple(entry.attribute.column for entry in self.labels)

    @property
    def numbered(self) -> dict[str, int]:
        """The numbers that the model knows classes by."""
        if self.positive is None:
            return {name: j for j, name in enumerate(self.classes)}
        return {self.positive: 1, self.other: 0}

    @property
    def other(self) -> str:
        """What is predicted where it is not the positive class."""
        return self.negative if self.negative is not None else f"not {self.positive}"

    def inputs(self, frame: Any) -> Any:
        """The features, as numbers and text."""
        import pandas as pd

        columns = {name: numbers(frame[name], name) for name in self.numbers}
        for name in self.categories:
            columns[name] = pd.Series(text_labels(frame[name]), index=frame.index, dtype=object)
        return pd.DataFrame(columns, index=frame.index)

    def groups(self, frame: Any) -> dict[str, np.ndarray]:
        """Labels of every protected attribute; none where the frame lacks one."""
        return {entry.attribute.column: _known_labels(frame, entry) for entry in self.labels}

    @property
    def added(self) -> tuple[str, ...]:
        """The columns that predictions add: what is predicted, probabilities (for classes), and raw outputs."""
        if self.classes:
            parts = (f"{what}_{name}" for what in ("probability", "raw") for name in self.classes)
            return ("prediction", *parts)
        return ("prediction", "raw") if self.task == "regression" else ("prediction", "probability", "raw")

    def predicted(self, raw: np.ndarray, fair: np.ndarray, threshold: float | None) -> dict[str, np.ndarray]:
        """The columns that predictions add, by name: see `added`."""
        if self.task == "regression":
            return {"prediction": fair, "raw": raw}
        if self.classes:
            predicted = np.array(self.classes, dtype=object)[fair.argmax(axis=1)]
            return dict(zip(self.added, [predicted, *fair.T, *raw.T], strict=True))
        assert self.positive is not None
        return {"prediction": np.where(fair >= threshold, self.positive, self.other), "probability": fair, "raw": raw}


def group_labels(frame: Any, attribute: Attribute) -> np.ndarray:
    """The group of every row."""
    column = frame[attribute.column]
    if not attribute.cuts:
        return text_labels(column)
    values = numbers(column, attribute.column).to_numpy()
    named = np.array([*attribute.groups, MISSING], dtype=object)
    place = np.searchsorted(np.array(attribute.cuts), values, side="right")
    return named[np.where(np.isnan(values), len(attribute.groups), place)]


def _known_labels(frame: Any, entry: Labels) -> np.ndarray:
    found = group_labels(frame, entry.attribute)
    if not entry.merge:
        return found
    return np.where(np.isin(found, np.array(entry.known, dtype=object)), found, OTHER)


@dataclass(frozen=True)
class Inferred:
    """A schema, the rows of the table that have a target, and what a user should know of how columns were read."""

    schema: Schema
    frame: Any
    answers: np.ndarray  # the targets of its rows, as `target_values` has them
    notes: tuple[str, ...]  # on rows and groups
    left_out: dict[str, str]  # columns that are no features, and why
    doubtful: dict[str, str]  # features that may not be what they seem, and why

    @property
    def lines(self) -> list[str]:
        """All of it, a sentence or a list each."""
        schema = self.schema
        kinds = {"numbers": schema.numbers, "categories": schema.categories}
        read = [f"Read as {kind}: {', '.join(names)}." for kind, names in kinds.items() if names]
        if schema.decimal_commas:
            read.append("Commas are read as decimal commas, and points between digits as separators of thousands.")
        out = [f"{name} is left out: {why}." for name, why in self.left_out.items()]
        return [*read, *out, *(f"Look at {name}: {why}" for name, why in self.doubtful.items()), *self.notes]


def infer(
    frame: Any,
    source: Source,
    *,
    target: str,
    attributes: Sequence[Attribute],
    ignore: Sequence[str] = (),
    keep: Sequence[str] = (),
    hide_protected: bool = False,
    task: Task | None = None,
    positive: str | None = None,
    merge_rare: int = 0,
) -> Inferred:
    """What the columns of a table mean. keep: columns that must be among the features."""
    notes: list[str] = []
    have = without_missing(frame[target]).notna().to_numpy()
    if not have.all():
        notes.append(f"{int((~have).sum()):,} rows have no {target} and are left out.")
        frame = frame[have].reset_index(drop=True)
    if not len(frame):
        raise InputError(f"--target: column {target!r} of {source.path} has no entries.")
    task, positive, negative, classes = _task(frame[target], target, task, positive)
    labels = [_labels(frame, attribute, merge_rare, notes) for attribute in attributes]
    protected = {attribute.column for attribute in attributes}
    left_out = dict.fromkeys(ignore, "as --ignore asks")
    if hide_protected:
        left_out |= dict.fromkeys(sorted(protected - set(keep) - set(ignore)), "as --hide-protected asks")
    answers = target_values(frame[target], task, positive, classes)
    kinds: dict[str, list[str]] = {"numbers": [], "categories": []}
    doubtful: dict[str, str] = {}
    for name in source.columns:
        if name == target or name in left_out:
            continue
        column = frame[name]
        why = None if name in keep else no_feature(column)
        if why is not None:
            left_out[name] = why
            continue
        kinds["numbers" if is_number(column) else "categories"].append(name)
        doubt = None if name in protected else danger(column, answers, target)
        if doubt is not None:
            doubtful[name] = f"{doubt}? --ignore {quote(name)} leaves it out."
    if not kinds["numbers"] and not kinds["categories"]:
        raise InputError(f"{source.path} has no column to predict {target!r} from.")
    features = (tuple(kinds["numbers"]), tuple(kinds["categories"]))
    schema = Schema(target, task, positive, negative, *features, tuple(labels), bool(source.decimal_commas), classes)
    return Inferred(schema, frame, answers, tuple(notes), left_out, doubtful)


def target_values(column: Any, task: Task, positive: str | None, classes: Sequence[str] = ()) -> np.ndarray:
    """As numbers: 1 for the class predicted and 0 for the rest; the number of one of several; or as they are."""
    if classes:
        known, found = {name: float(j) for j, name in enumerate(classes)}, text_labels(column).tolist()
        unknown = next((label for label in found if label not in known), None)
        if unknown is not None:
            raise InputError(f"Column {column.name!r} has {unknown!r}, which is none of the classes {list(classes)}.")
        return np.array([known[label] for label in found])
    if task == "classification":
        return (text_labels(column) == positive).astype(np.float64)
    return numbers(column, str(column.name)).to_numpy()


def _task(
    column: Any, name: str, task: Task | None, positive: str | None
) -> tuple[Task, str | None, str | None, tuple[str, ...]]:
    """Classification where there are classes, regression where there are more numbers than two."""
    found = sorted(set(text_labels(column).tolist()))
    numeric = is_number(column)
    if len(found) == 1:
        raise InputError(f"--target: column {name!r} is constant, always {found[0]!r}: there is nothing to learn.")
    if positive is not None and positive not in found:
        some = ", ".join(map(repr, found[:8]))
        raise InputError(f"--positive: column {name!r} has no value {positive!r}; it has {some}.")
    if task == "regression" or (task is None and positive is None and numeric and len(found) > 2):
        if not numeric:
            raise InputError(f"--task regression: column {name!r} does not hold numbers.")
        return "regression", None, None, ()
    ordered = sorted(found, key=float if numeric else str)
    if positive is None and len(found) > MOST_CLASSES:
        some = ", ".join(map(repr, found[:5]))
        raise InputError(
            f"--target: column {name!r} has {len(found)} classes ({some}, ...), more than {MOST_CLASSES}: choose one "
            f"to tell from the rest, such as --positive {found[0]!r}."
        )
    if positive is None and len(found) > 2:
        return "classification", None, None, tuple(ordered)
    chosen = positive if positive is not None else ordered[1]
    others = [value for value in found if value != chosen]
    return "classification", chosen, others[0] if len(others) == 1 else None, ()


def _labels(frame: Any, attribute: Attribute, merge_rare: int, notes: list[str]) -> Labels:
    """The groups of an attribute."""
    name = attribute.column
    found, counts = np.unique(group_labels(frame, attribute).astype(str), return_counts=True)
    if merge_rare:
        rare = found[counts < merge_rare]
        if len(rare):
            listed = ", ".join(map(repr, rare[:5].tolist()))
            notes.append(f"{name}: {listed} have fewer than {merge_rare} rows and become {OTHER!r}.")
            found = np.array([*found[counts >= merge_rare].tolist(), OTHER])
    elif len(small := found[counts < 10]):
        notes.append(
            f"{name}: few rows of {', '.join(map(repr, small[:5].tolist()))}; their means say little. --merge-rare 10 "
            f"joins such groups."
        )
    if MISSING in found.tolist():
        notes.append(f"{name}: rows without an entry are a group of their own, {MISSING!r}.")
    if len(found) < 2:
        raise InputError(
            f"--protected: column {name!r} has only one group, {str(found[0])!r}: there is nothing to compare it with."
        )
    if len(found) > MOST_LABELS:
        remedy = (
            f"give cut points, such as --protected {quote(f'{name}={quartiles(frame[name])}')}"
            if is_number(frame[name])
            else "join rare ones with --merge-rare 100"
        )
        raise InputError(f"--protected: column {name!r} has {len(found)} groups, more than {MOST_LABELS}: {remedy}.")
    return Labels(attribute, tuple(found.tolist()), bool(merge_rare))


def quartiles(column: Any) -> str:
    """Cut points that make four parts of about the same size, as the options take them."""
    values = numbers(column, str(column.name)).dropna().to_numpy()
    return ",".join(f"{cut:g}" for cut in np.unique(np.quantile(values, [0.25, 0.5, 0.75])))


@dataclass(frozen=True)
class FrameColumns:
    """The columns of a frame, as `Wanted.constraints` asks for them."""

    source: Source
    frame: Any

    def is_number(self, column: str) -> bool:
        """Whether it holds numbers."""
        return is_number(self.frame[column])

    def quartiles(self, column: str) -> str:
        """As cut points."""
        return quartiles(self.frame[column])

    def values(self, column: str, most: int | None) -> list[str]:
        """The different values, sorted."""
        return sorted(set(text_labels(self.frame[column]).tolist()))
