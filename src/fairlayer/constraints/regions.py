"""Regions: parts of a batch, told by the value of a feature or of the target.

A region is an interval (low, high), read as low <= x < high with None for an open end, or a set of values.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fairlayer.constraints.plain_data import Name, to_plain
from fairlayer.errors import InputError

Region = tuple[float | None, float | None] | set[Any] | frozenset[Any]


@dataclass(frozen=True)
class Condition:
    """What tells the parts of a batch apart within which groups are compared."""

    source: Literal["feature", "target"]
    name: Name  # of the feature; "target" otherwise
    regions: tuple[Region, ...] | None  # None: one part per class of the target

    def __post_init__(self) -> None:
        if self.source not in ("feature", "target"):
            raise InputError(f'Condition has source {self.source!r}: it must be "feature" or "target".')
        if self.regions is not None:
            check_regions(self.regions, f"regions of {self.argument}")

    @property
    def key(self) -> tuple[str, Name, str]:
        """What the parts depend on, apart from the data."""
        return self.source, self.name, "classes" if self.regions is None else json.dumps(to_plain(self.regions))

    @property
    def argument(self) -> str:
        """What it looks at, as messages name it."""
        return f"features[{self.name!r}]" if self.source == "feature" else "targets"


def check_regions(regions: Sequence[Region], what: str) -> None:
    """Refuse what is no region, or one that no value can lie in."""
    if not isinstance(regions, Collection):
        raise InputError(f"{what} must be a list of intervals (low, high) and sets of values; got {regions!r}.")
    for region in regions:
        if isinstance(region, set | frozenset):
            if not region:
                raise InputError(f"{what} has an empty set, in which no value lies: name its values.")
            if any(isinstance(value, float) and math.isnan(value) for value in region):
                raise InputError(f"{what} has a set with NaN, which no value equals: name other values.")
            continue
        try:
            low, high = region
            ends = [end for end in (low, high) if end is not None]
            possible = not any(isinstance(end, float) and math.isnan(end) for end in ends)
            possible = possible and (len(ends) < 2 or bool(low < high))  # type: ignore[operator]
        except (TypeError, ValueError) as error:
            raise InputError(
                f"{what}: region {region!r} is neither an interval (low, high) nor a set of values."
            ) from error
        if not possible:
            raise InputError(
                f"{what}: no value lies in [{low}, {high}): give an interval (low, high) with low < high, None for an "
                "open end."
            )


def inside(values: np.ndarray, region: Region, what: str) -> np.ndarray:
    """(n,) which values lie in a region."""
    if isinstance(region, set | frozenset):
        return np.isin(values, list(region))
    low, high = region
    member = np.ones(len(values), dtype=bool)
    try:
        if low is not None:
            member &= values >= low
        if high is not None:
            member &= values < high
    except TypeError as error:
        raise InputError(f"{what}: values of {values.dtype} cannot be compared with {region!r}: {error}") from error
    return member


def region_text(region: Region) -> str:
    """As a row's name has it."""
    if isinstance(region, set | frozenset):
        return "in {" + ", ".join(sorted(map(str, region))) + "}"
    low, high = region
    return f"in [{'-inf' if low is None else low}, {'inf' if high is None else high})"


def class_text(label: Any) -> str:
    """A class, in full: 1 for 1.0 and True as well."""
    is_whole = isinstance(label, bool) or (isinstance(label, float) and label.is_integer())
    return str(int(label) if is_whole else label)
