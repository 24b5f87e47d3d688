"""What the columns of a table mean to a model: inferred by `fit`, kept in the model folder, applied by `predict`.

Each column is either numbers or categories. Protected attributes are labels, always as text, so that 1 in a CSV file
and 1 in a Parquet file are the same group.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any, Literal, NamedTuple

import numpy as np

from fairlayer.errors import InputError
from fairlayer.tables.entries import (
    MISSING,
    Attribute,
    dates,
    decimal_commas,
    group_label,
    holds_numbers,
    label,
    number,
    text,
)
from fairlayer.tables.table import LocalTable, Totals
from fairlayer.tables.table_io import TableFile

OTHER = "other"  # the label of groups that were joined
MOST_GROUPS = 50  # of a protected attribute
MOST_CLASSES = 50  # of a target
ENOUGH_ROWS = 30  # to tell from a column what it is
NAMES_ROWS = 0.9  # share of different entries from which on a column of text is taken to name the rows, and left out
NEARLY_NAMES_ROWS = 0.5  # share from which on there is a warning
_COMMAS = "decimal commas are read as such only where semicolons or tabs part the columns"

Task = Literal["classification", "regression"]


@dataclass(frozen=True)
class Labels:
    """A protected attribute as the model knows it. merge: labels not known become `other`."""

    attribute: Attribute
    known: tuple[str, ...]
    merge: bool


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a table as a model takes them: features, targets as numbers, and labels of the protected attributes."""

    X: Any  # a frame of numbers and text
    y: Any  # (n,) float64; 0 and 1 for two classes, the number of the class for several; None where unknown
    groups: Any  # labels (n,) by name; None where unknown

    def __len__(self) -> int:
        return len(self.X)

    def take(self, positions: np.ndarray) -> Rows:
        """The rows at these positions."""
        groups = {name: labels[positions] for name, labels in self.groups.items()}
        return Rows(self.X.iloc[positions].reset_index(drop=True), self.y[positions], groups)


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

    def read(self, table: LocalTable) -> Rows:
        """The rows of a table."""
        table.check_numbers({}, dict.fromkeys(self.numbers, "The model needs numbers"))
        kinds, features = table.columns, {name: number(name) for name in self.numbers}
        features |= {name: group_label(name, kinds[name]) for name in self.categories}
        values = {f"x{j}": sql for j, sql in enumerate(features.values())}
        has_groups = all(name in kinds for name in self.attributes)
        for j, entry in enumerate(self.labels if has_groups else ()):
            values[f"g{j}"] = entry.attribute.label(kinds[entry.attribute.column])
        if self.target in kinds:
            is_class = self.task == "classification"
            values["t"] = label(self.target, kinds[self.target]) if is_class else number(self.target)
        frame = table.frame(values)
        X = frame[[f"x{j}" for j in range(len(features))]].set_axis([*features], axis=1)
        X = X.astype(dict.fromkeys(self.categories, object))
        groups = {one.attribute.column: _known(one, frame[f"g{j}"]) for j, one in enumerate(self.labels) if has_groups}
        return Rows(X, self._answers(frame["t"]) if "t" in frame else None, groups if has_groups else None)

    def _answers(self, column: Any) -> np.ndarray | None:
        """Targets as numbers, where every row has one."""
        if column.isna().any():
            return None
        if self.task == "regression":
            return column.to_numpy(dtype=np.float64)
        if not self.classes:
            return (column == self.positive).to_numpy(dtype=np.float64)
        found = column.map(self.numbered)
        if found.isna().any():
            new = column[found.isna()].iloc[0]
            raise InputError(f"Column {self.target!r} has {new!r}, which is none of the classes {list(self.classes)}.")
        return found.to_numpy(dtype=np.float64)

    @property
    def added(self) -> tuple[str, ...]:
        """The columns that predictions add: what is predicted, probabilities (for classes), and raw outputs."""
        if self.classes:
            return ("prediction", *(f"{what}_{name}" for what in ("probability", "raw") for name in self.classes))
        return ("prediction", "raw") if self.task == "regression" else ("prediction", "probability", "raw")

    def predicted(self, raw: np.ndarray, fair: np.ndarray, threshold: float | None) -> dict[str, np.ndarray]:
        """The columns that predictions add, by name: see `added`."""
        if self.task == "regression":
            columns = [fair, raw]
        elif self.classes:
            columns = [np.array(self.classes, dtype=object)[fair.argmax(axis=1)], *fair.T, *raw.T]
        else:
            columns = [np.where(fair >= threshold, str(self.positive), self.other), fair, raw]
        return dict(zip(self.added, columns, strict=True))


def _known(entry: Labels, column: Any) -> np.ndarray:
    """Labels that the model knows, and `other` where the others are joined."""
    found = column.to_numpy(dtype=object)
    return np.where(np.isin(found, np.array(entry.known, dtype=object)), found, OTHER) if entry.merge else found


@dataclass(frozen=True)
class Inferred:
    """A schema, the rows of the table that have a target, and what a user should know of how columns were read."""

    schema: Schema
    rows: Rows
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
    table: TableFile,
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
    answer = label(target, table.columns[target])
    found = table.one({"n": "count(*)", "known": f"count({answer})"})
    if not found["known"]:
        raise InputError(f"--target: column {target!r} of {table.source.path} has no entries.")
    if found["known"] < found["n"]:
        notes.append(f"{found['n'] - found['known']:,} rows have no {target} and are left out.")
        table.restrict(f"{answer} IS NOT NULL")
    protected = {attribute.column for attribute in attributes}
    left_out = dict.fromkeys(ignore, "as --ignore asks")
    if hide_protected:
        left_out |= dict.fromkeys(sorted(protected - set(keep) - set(ignore)), "as --hide-protected asks")
    columns = profile(table, [name for name in table.columns if name not in left_out or name == target])
    task, positive, negative, classes = _task(table, target, columns.pop(target), task, positive)
    table.check_numbers({}, {one.column: "--protected" for one in attributes if one.cuts})
    labels = tuple(_labels(table, attribute, merge_rare, notes) for attribute in attributes)
    reasons = {name: None if name in keep else no_feature(column) for name, column in columns.items()}
    left_out |= {name: why for name, why in reasons.items() if why is not None}
    features = {name: column for name, column in columns.items() if name not in left_out}
    if not features:
        raise InputError(f"{table.source.path} has no column to predict {target!r} from.")
    numbers = tuple(name for name, column in features.items() if column.is_number)
    categories = tuple(name for name in features if name not in numbers)
    commas = bool(table.source.decimal_commas)
    schema = Schema(target, task, positive, negative, numbers, categories, labels, commas, classes)
    rows = schema.read(table)
    doubts = {
        name: danger(column, rows.X[name], rows.y, target) for name, column in features.items() if name not in protected
    }
    doubtful = {name: f"{why}? --ignore {quote(name)} leaves it out." for name, why in doubts.items() if why}
    return Inferred(schema, rows, tuple(notes), left_out, doubtful)


def _task(
    table: TableFile, name: str, column: ColumnProfile, task: Task | None, positive: str | None
) -> tuple[Task, str | None, str | None, tuple[str, ...]]:
    """Classification where there are classes, regression where there are more numbers than two."""
    found = table.values(name, None)
    numeric = column.is_number
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


def _labels(table: TableFile, attribute: Attribute, merge_rare: int, notes: list[str]) -> Labels:
    """The groups of an attribute."""
    name = attribute.column
    by = {"label": attribute.label(table.columns[name])}
    met = table.totals(Totals({"n": "count(*)"}, by))
    order = np.argsort(met["label"])
    found, counts = met["label"][order].astype(str), met["n"][order]
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
    if len(found) > MOST_GROUPS:
        remedy = (
            f"give cut points, such as --protected {quote(f'{name}={table.quartiles(name)}')}"
            if table.is_number(name)
            else "join rare ones with --merge-rare 100"
        )
        raise InputError(f"--protected: column {name!r} has {len(found)} groups, more than {MOST_GROUPS}: {remedy}.")
    return Labels(attribute, tuple(found.tolist()), bool(merge_rare))


# What the entries of columns are


class ColumnProfile(NamedTuple):
    """What the entries of a column are."""

    present: int  # entries that are not missing
    distinct: int
    is_number: bool  # all of them are, and there is one
    is_whole: bool  # numbers without a fraction
    is_date: bool  # dates or times
    has_decimal_commas: bool  # numbers, if commas are decimal commas, and one has one


def profile(table: LocalTable, names: Iterable[str]) -> dict[str, ColumnProfile]:
    """What columns hold, in one query."""
    asked = {}
    for name in names:
        whole = f"bool_and({number(name)} = round({number(name)}))"
        facts = (holds_numbers(name), whole, dates(name), " AND ".join(decimal_commas(name)))
        counts = f"count({text(name)}), count(DISTINCT {text(name)})"
        asked[name] = f"({counts}, {', '.join(f'coalesce({fact}, false)' for fact in facts)})"
    found = table.query(f"SELECT {', '.join(asked.values())} FROM data", fetch="fetchall")[0]
    return {name: ColumnProfile(*facts) for name, facts in zip(asked, found, strict=True)}


def no_feature(column: ColumnProfile) -> str | None:
    """Why a column is left out; None where it is not."""
    present, distinct = column.present, column.distinct
    if not present:
        return "it has no entries"
    if column.is_number or present < ENOUGH_ROWS or distinct < NAMES_ROWS * present:
        return None
    if column.has_decimal_commas:
        return f"it is read as text that hardly repeats, as {_COMMAS}"
    what = "a date or time" if column.is_date else "text"
    return f"{distinct:,} of its {present:,} entries differ, so as {what} it says nothing about new rows"


def danger(column: ColumnProfile, entries: Any, answer: np.ndarray, target: str) -> str | None:
    """Why a feature may not be what it seems, as a question; None where nothing speaks against it.

    entries: of the column, as a model takes them; answer: the targets.
    """
    present, distinct = column.present, column.distinct
    if tells(entries, answer):
        return f"it predicts {target} without a single error. Is it known before {target} is"
    if present < ENOUGH_ROWS:
        return None
    if column.is_number:
        numbers_rows = column.is_whole and distinct == present
        return "its whole numbers all differ. Do they number the rows" if numbers_rows else None
    if column.has_decimal_commas:
        return f"it is read as text, as {_COMMAS}. Does it hold numbers"
    if column.is_date:
        return f"each of its {distinct:,} dates or times is a category of its own. Will new rows have the same ones"
    if distinct >= NEARLY_NAMES_ROWS * present:
        return f"{distinct:,} of its {present:,} entries differ. Does it name the rows"
    return None


def tells(entries: Any, answer: np.ndarray) -> bool:
    """Whether the target follows from a column: one class beyond a number, one for each category, or in a line."""
    values = np.asarray(entries)
    if values.dtype.kind == "f":
        known = np.isfinite(values)
        x, y = values[known], answer[known]
        if len(y) < ENOUGH_ROWS or y.min() == y.max() or x.min() == x.max():
            return False
        if set(np.unique(answer).tolist()) <= {0.0, 1.0}:
            no, yes = x[y == 0.0], x[y == 1.0]
            return bool(no.max() < yes.min() or yes.max() < no.min())
        return abs(float(np.corrcoef(x, y)[0, 1])) > 1.0 - 1e-9
    entry = values.astype(str).tolist()
    kinds = len(set(entry))
    if answer.min() == answer.max() or len(entry) < ENOUGH_ROWS or kinds < 2 or kinds > 0.1 * len(entry):
        return False
    return len(set(zip(entry, answer.tolist(), strict=True))) == kinds
