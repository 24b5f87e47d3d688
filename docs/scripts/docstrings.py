"""Docstrings as Markdown: lines that begin with the name of an argument become a list.

A field of a data class has no docstring; the comment at the end of its line is taken for one.
"""

import re
from typing import Any

from griffe import Attribute, Docstring, Extension, Object

NAME = r"(?:[a-z]\w*|[A-Z])"
ARGUMENT = re.compile(rf"(?:^|(?<=[.;])[ \n])({NAME}(?:, {NAME})*): (?=\S)", re.MULTILINE)
COMMENT = re.compile(r"  # (?!type: |noqa|fmt: )(.+)$")


class Arguments(Extension):
    """Rewrites every docstring of the package as it is loaded."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Put the docstring of one object into Markdown."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)

    def on_attribute_instance(self, *, attr: Attribute, **_: Any) -> None:
        """Document one field."""
        comment = COMMENT.search(attr.source)
        if attr.docstring is None and attr.parent is not None and attr.parent.is_class and comment:
            attr.docstring = Docstring(comment[1][0].upper() + comment[1][1:], parent=attr)


def as_markdown(docstring: str) -> str:
    """Turn `name: what it is` into list items, where a paragraph has a line that begins so; all else stays as it is."""
    first, *others = docstring.split("\n\n")
    lines = first.split("\n", 1)
    if len(lines) > 1:
        others.insert(0, lines[1])
    return "\n\n".join([lines[0], *map(_list_arguments, others)])


def _list_arguments(paragraph: str) -> str:
    """One paragraph, with its arguments as a list after whatever comes before them."""
    start = re.search(rf"^{NAME}(?:, {NAME})*: (?=\S)", paragraph, re.MULTILINE)
    if start is None:
        return paragraph
    _, *parts = ARGUMENT.split(paragraph[start.start() :])
    items = []
    for names, text in zip(parts[::2], parts[1::2], strict=True):
        items.append(f"- {', '.join(f'`{name}`' for name in names.split(', '))}: {text.strip()}")
    before = paragraph[: start.start()].strip()
    return "\n\n".join([*([before] if before else []), "\n".join(items)])
