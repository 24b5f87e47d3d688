"""Words for one thing, and for several."""

from __future__ import annotations


def plural(n: int, one: str, several: str | None = None) -> str:
    """The word for n of a thing; `several` where an s at the end will not do."""
    return one if n == 1 else f"{one}s" if several is None else several
