"""Names that come from data, as parts of a sentence. They are still plain text: templates escape them."""

from __future__ import annotations

import unicodedata

from fairlayer.audit.numerals import MINUS
from fairlayer.audit.result import Finding

_LEFT_TO_RIGHT = {"L", "EN", "ES", "ET", "AN", "CS", "NSM", "BN", "B", "S", "WS", "ON"}
_START, _END = "\N{FIRST STRONG ISOLATE}", "\N{POP DIRECTIONAL ISOLATE}"


def pair(finding: Finding, length: int | None = None) -> str:
    """Who is compared: two groups, or one with its target."""
    names = (group if length is None else shortened(group, length) for group in finding.groups)
    return f" {MINUS} ".join(map(isolated, names))


def shortened(name: str, length: int = 28) -> str:
    """A name on one line, its end left out where it is too long."""
    words = " ".join(name.split())
    return words if len(words) <= length else words[: length - 1].rstrip() + "\N{HORIZONTAL ELLIPSIS}"


def isolated(name: str) -> str:
    """A name whose direction of writing ends with it: one in Hebrew must not turn around the figures behind it."""
    turns = any(unicodedata.bidirectional(character) not in _LEFT_TO_RIGHT for character in name)
    return f"{_START}{name}{_END}" if turns else name
