"""The API reference: one page per public module, from the docstrings."""

from importlib import import_module

from names import public_modules, sections
from pages import Page, Section

INTRODUCTION = """# API reference

Every public name, from its docstring. Import from the module named in the heading; anything not listed here may change
without notice.
"""

# Where the methods of classes make them work, and nobody calls them.
WITHOUT_MEMBERS = ("fairlayer.constraints", "fairlayer.errors")
INHERITS = ("fairlayer.sklearn",)  # where what a base class brings is part of the interface
MEMBERS_WITHOUT_DOCSTRING = ("Status", "Verdict")  # enumerations: their values say it

# What a reader looks for first stands first; errors stand last, and all else between.
FIRST = (
    *("projection", "layer", "model", "constraints", "groups", "solution"),
    *("stream", "freeze", "frozen", "confidence"),
)
LAST = ("errors",)


def api() -> Section:
    """An index, and a page per module."""
    modules = public_modules()
    lines = [INTRODUCTION, *(f"- [`{name}`]({name}.md): {_summary(name)}" for name in modules)]
    index = Page("reference/index.md", "API", "\n".join(lines) + "\n")
    return Section("Reference", [index, *(_page(name) for name in modules)])


def _summary(module: str) -> str:
    text = (import_module(module).__doc__ or "").strip().split("\n\n")[0]
    return " ".join(text.split())


def _page(module: str) -> Page:
    parts = [f"# `{module}`", _summary(module)]
    for home, summary, paths in sorted(sections(module), key=lambda section: _place(section[0])):
        if home != module:
            parts.append(f"## {home.rpartition('.')[2].replace('_', ' ').capitalize()}\n\n{summary}")
        parts += [_directive(path, home) for path in paths]
    return Page(f"reference/{module}.md", module, "\n\n".join(parts) + "\n")


def _place(home: str) -> int:
    """Where the names defined in a module stand on a page."""
    name = home.rpartition(".")[2]
    return FIRST.index(name) if name in FIRST else len(FIRST) + (name in LAST)


def _directive(path: str, home: str) -> str:
    """What mkdocstrings replaces by the documentation of one name."""
    options = []
    if home in WITHOUT_MEMBERS:
        options.append("members: false")
    if home in INHERITS:
        options.append("inherited_members: true")
    if path.rpartition(".")[2] in MEMBERS_WITHOUT_DOCSTRING:
        options.append("show_if_no_docstring: true")
    settings = "".join(f"\n      {option}" for option in options)
    return f"::: {path}" + (f"\n    options:{settings}" if settings else "")
