"""The template environments: the one place where values become text, and so where they are escaped."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from fairlayer.errors import InputError
from fairlayer.extras import needs

_SPECIAL = re.compile(r"([\\`*_\[\]|~$#])")


def render_html(template: str, **values: Any) -> str:
    """A template, its values escaped for HTML."""
    return _environment().get_template(template).render(**values)


def render_markdown(template: str, **values: Any) -> str:
    """A template, its values escaped for Markdown."""
    markup = _jinja().utils.markupsafe.Markup

    def finalize(value: Any) -> Any:
        """What a macro returns is Markdown already; anything else is text."""
        return value if isinstance(value, markup) else markup(escape_markdown(str(value)))

    return _environment(finalize=finalize).get_template(template).render(**values)


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is: in a line, a list or a table, with no markup, link, mathematics or HTML."""
    line = " ".join(text.split())
    # The last two: no links from bare addresses.
    return _SPECIAL.sub(r"\\\1", html.escape(line, quote=False)).replace("://", "\\://").replace("www.", "www\\.")


def write_text(path: str | Path, text: str) -> Path:
    """Write a file whose folder exists."""
    target = Path(path)
    if not target.parent.is_dir():
        raise InputError(f"path is {str(path)!r}, but there is no folder {str(target.parent)!r}: make it first.")
    target.write_text(text, encoding="utf-8")
    return target


def _environment(**options: Any) -> Any:
    jinja = _jinja()
    return jinja.Environment(
        loader=jinja.PackageLoader("fairlayer.report", "templates"),
        autoescape=True,
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **options,
    )


def _jinja() -> Any:
    with needs("Writing a report", "jinja2"):
        import jinja2
    return jinja2
