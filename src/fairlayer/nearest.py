"""`nearest`: the known name that a mistyped one must have meant, if there is one."""

from __future__ import annotations

from collections.abc import Iterable

LETTERS_PER_SLIP = 4  # one slip is forgiven in any word, two in one of eight letters
FEWEST_OF_A_START = 3  # letters from which on the beginning of a name stands for it


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The nearest name in `known`, whatever its case, where it is near; None where none is."""
    typed = word.lower()
    found: tuple[int, str] | None = None
    for name in known:
        slips = _slips(typed, name.lower())
        is_start = len(typed) >= FEWEST_OF_A_START and name.lower().startswith(typed)
        near = is_start or slips <= max(1, len(typed) // LETTERS_PER_SLIP)
        if near and slips < len(typed) and (found is None or slips < found[0]):
            found = slips, name
    return None if found is None else found[1]


def _slips(a: str, b: str) -> int:
    """How many letters must be added, dropped, changed or swapped with the next to make one word of the other."""
    before: list[int] = []
    last = list(range(len(b) + 1))
    for i, x in enumerate(a):
        row = [i + 1]
        for j, y in enumerate(b):
            row.append(min(last[j + 1] + 1, row[j] + 1, last[j] + (x != y)))
            if i and j and x == b[j - 1] and y == a[i - 1]:
                row[-1] = min(row[-1], before[j - 1] + 1)
        before, last = last, row
    return last[-1]
