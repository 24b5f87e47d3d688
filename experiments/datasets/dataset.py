"""`Dataset`: what every loader returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Protocol


class Pictures(Protocol):
    """Pictures read when they are asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, position: int) -> Any:
        """One picture, as a PIL image in RGB."""

    def select(self, positions: Sequence[int]) -> Pictures:
        """Some of them."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """A table (or pictures), what to predict, and who is to be treated alike.

    features: what may be used to predict, protected columns included where the source has them; for pictures, what is
    known of each. target: the column to predict. protected: labels of each protected attribute.
    split: "train" or "test" and the like for every row, where the source has a split. weights: of the rows, where the
    source has them. table: everything as read, where that is more than features and target.
    bounds: what predictions should lie within, where the source says so. pictures: one per row.
    """

    name: str
    task: Literal["classification", "regression"]
    features: Any
    target: Any
    protected: Any
    description: str
    licence: str
    source: str
    split: Any = None
    weights: Any = None
    table: Any = None
    bounds: tuple[float, float] | None = None
    pictures: Pictures | None = None

    def __len__(self) -> int:
        return len(self.target)

    def part(self, name: str) -> Dataset:
        """The rows of one part of the split, numbered anew."""
        parts = [] if self.split is None else sorted(set(self.split))
        if name not in parts:
            raise KeyError(f"{self.name} has no part {name!r}; it has {parts}.")
        return self.rows((self.split == name).to_numpy().nonzero()[0])

    def rows(self, positions: Any) -> Dataset:
        """Some of the rows, by position, numbered anew."""
        taken: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if hasattr(value, "iloc"):
                taken[field.name] = value.iloc[positions].reset_index(drop=True)
        if self.pictures is not None:
            taken["pictures"] = self.pictures.select(positions)
        return replace(self, **taken)
