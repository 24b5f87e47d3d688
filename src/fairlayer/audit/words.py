"""Numbers and names as a reader meets them, alike in the terminal, on the page and in the model card.

Names that come from data are still plain text here: templates escape them.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable
from decimal import Decimal
from typing import TypeGuard

ABSENT = "\N{EN DASH}"  # where there is no number
NO_BREAK = "\N{NO-BREAK SPACE}"
MINUS = "\N{MINUS SIGN}"
_LEFT_TO_RIGHT = {"L", "EN", "ES", "ET", "AN", "CS", "NSM", "BN", "B", "S", "WS", "ON"}
_START, _END = "\N{FIRST STRONG ISOLATE}", "\N{POP DIRECTIONAL ISOLATE}"
_TYPED = str.maketrans({MINUS: "-", ABSENT: "-", NO_BREAK: " ", _START: None, _END: None})


def number(value: float | None, digits: int = 3, sign: bool = False) -> str:
    """A measured number with `digits` significant digits, or as many as its whole part has."""
    if not _is_number(value) or value == 0 or 1e-6 <= abs(value) < 1e15:
        return "0" if value == 0 else fixed(value, places([value], digits), sign)
    mantissa, exponent = f"{value:{'+' if sign else ''}.{digits - 1}e}".split("e")
    return f"{mantissa}e{int(exponent)}".replace("-", MINUS)


def stated(value: float | None) -> str:
    """A number that somebody chose, such as a tolerance, as they wrote it: 0.05, not 0.0500 and not 5e-02."""
    if not _is_number(value):
        return ABSENT
    short = f"{value:.10g}"
    return (f"{Decimal(short):f}" if value == 0 or 1e-9 <= abs(value) < 1e15 else short).replace("-", MINUS)


def fixed(value: float | None, decimals: int, sign: bool = False) -> str:
    """A number with so many decimals; with `sign`, a plus where it is positive."""
    if not _is_number(value):
        return ABSENT
    rounded = round(value, decimals) + 0.0  # no minus zero
    return ("+" if sign and rounded > 0 else "") + f"{rounded:,.{decimals}f}".replace("-", MINUS)


def _is_number(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def places(values: Iterable[float | None], digits: int = 3) -> int:
    """Decimals that give the largest of the values `digits` significant digits."""
    largest = max((abs(value) for value in values if _is_number(value)), default=0.0)
    if largest == 0:
        return digits - 1
    exponent = int(f"{largest:.{digits - 1}e}".split("e")[1])  # after rounding: 0.9999 has that of 1.00
    return min(max(digits - 1 - exponent, 0), 12)


def beside(value: float, limit: float, exceeds: bool, size: float, digits: int = 3) -> str:
    """A gap beside its tolerance: with the decimals that show the tolerance with `digits` significant digits.

    So a gap that is nothing but rounding reads 0.0000, and not 1.39e-17. More decimals where the gap exceeds the
    tolerance by so little that the two would read the same. size: of the numbers compared, where the tolerance is 0.
    """
    decimals = places([limit or size], digits)
    while exceeds and decimals < 15 and abs(round(value, decimals)) <= limit:
        decimals += 1
    return fixed(value, decimals, sign=True)


def aligned(values: Iterable[float | None], digits: int = 3, sign: bool = False) -> list[str]:
    """The numbers of a column, all with the same decimals."""
    listed = list(values)
    decimals = places(listed, digits)
    return [fixed(value, decimals, sign) for value in listed]


def aligned_intervals(pairs: Iterable[tuple[float, float] | None], digits: int = 3) -> list[str]:
    """The intervals of a column, all with the same decimals; a dash where there is none."""
    listed = [pair if pair is not None and any(map(math.isfinite, pair)) else None for pair in pairs]
    decimals = places([end for pair in listed for end in pair or ()], digits)
    return [ABSENT if pair is None else " to ".join(fixed(end, decimals) for end in pair) for pair in listed]


def interval(pair: tuple[float, float] | None, digits: int = 3) -> str:
    """Both ends of an interval; a dash where there is none."""
    return aligned_intervals([pair], digits)[0]


def percent(value: float | None, decimals: int = 1) -> str:
    """A share as a percentage."""
    return f"{fixed(100 * value, decimals)}{NO_BREAK}%" if _is_number(value) else ABSENT


def confidence(value: float) -> str:
    """A level of confidence: 95 %, 99.9 %."""
    return f"{100 * value:.6g}{NO_BREAK}%"


def count(value: float | None) -> str:
    """A whole number, with thousands set apart."""
    return fixed(value, 0)


def shortened(name: str, length: int = 28) -> str:
    """A name on one line, its end left out where it is too long."""
    words = " ".join(name.split())
    return words if len(words) <= length else words[: length - 1].rstrip() + "\N{HORIZONTAL ELLIPSIS}"


def isolated(name: str) -> str:
    """A name whose direction of writing ends with it: one in Hebrew must not turn around the figures behind it."""
    turns = any(unicodedata.bidirectional(character) not in _LEFT_TO_RIGHT for character in name)
    return f"{_START}{name}{_END}" if turns else name


def typed(text: str) -> str:
    """Text in the characters that a keyboard has; control characters are shown, not sent to the terminal."""
    plain = text.translate(_TYPED)
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in plain)
