"""Packages that only some parts of fairlayer need: where one is missing, which extra brings it.

    with needs("Writing a report", "jinja2"):
        import jinja2

The extra is looked up in the metadata of the installed package, so that the hint cannot go stale.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata

from fairlayer.errors import FairlayerError


class MissingExtraError(ModuleNotFoundError, FairlayerError):
    """A package that this part of fairlayer needs is not installed; the message says how to get it."""


@contextmanager
def needs(what: str, *packages: str) -> Iterator[None]:
    """Stand around imports, and say who needs these packages (named as pip knows them) where they fail."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(
            f"{what} needs {' and '.join(packages)} ({error}): pip install {_bringing(packages)}.", name=error.name
        ) from error


def _bringing(packages: tuple[str, ...]) -> str:
    """What to install: the smallest extra with all of the packages, or they themselves where none has them."""
    extras = {name: brought for name, brought in _extras().items() if brought.issuperset(packages)}
    if not extras:
        return " ".join(packages)
    return f"'fairlayer[{min(extras, key=lambda name: (len(extras[name]), name))}]'"


def _extras() -> dict[str, set[str]]:
    """The packages of every extra, as in 'scikit-learn>=1.6; extra == "sklearn"'."""
    try:
        requirements = metadata.requires("fairlayer") or []
    except metadata.PackageNotFoundError:  # run from a folder, without having been installed
        requirements = []
    found: dict[str, set[str]] = defaultdict(set)
    for requirement in requirements:
        package, extra = re.match(r"[\w.-]+", requirement), re.search(r"""extra == ['"]([\w-]+)""", requirement)
        if package and extra:
            found[extra[1]].add(package[0].lower())
    return found
