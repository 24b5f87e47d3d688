"""`compiled`: numba's njit, cached on disk under a name that changes with the compiled code.

numba's own cache watches the file a function stands in, not the files of the functions it calls: after an update of one
file it would go on running the old code of another, or fail on what an older release left behind. So the names of cache
files carry a digest of the function's file and of all files that it imports from, directly or by way of others.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numba
from numba.core import event

_PACKAGE = Path(__file__).parent
_IMPORT = re.compile(r"^from fairlayer\.([\w.]+) import", re.MULTILINE)


@cache
def _source(module: str) -> tuple[bytes, tuple[str, ...]]:
    """The source of a module of this package, and the modules that it imports from."""
    path = _PACKAGE.joinpath(*module.split("."))
    text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")
    return text.encode(), tuple(_IMPORT.findall(text))


def sources(module: str) -> list[str]:
    """All modules that code of a module can be made of: itself, and what it imports from, however far away."""
    found, ahead = {module}, [module]
    while ahead:
        new = set(_source(ahead.pop())[1]) - found
        found |= new
        ahead += new
    return sorted(found)


@cache
def _digest(module: str) -> str:
    return hashlib.sha256(b"".join(_source(name)[0] for name in sources(module))).hexdigest()[:12]


class _Notice(event.Listener):
    """Says in one line why the first call takes long, where somebody is watching."""

    said = False

    def on_start(self, event: Any) -> None:
        """At the first function that was not found on disk."""
        function = event.data["dispatcher"].py_func
        if not _Notice.said and function.__module__.startswith("fairlayer.") and sys.stderr.isatty():
            _Notice.said = True
            print("fairlayer: compiling for this machine, once; this takes up to a minute.", file=sys.stderr)

    def on_end(self, event: Any) -> None:
        """Nothing more to say."""


event.register("numba:compile", _Notice())


def compiled(
    function: Callable[..., Any] | None = None, *, reorder: bool = False, inline: bool = False, inner: bool = False
) -> Any:
    """Compile at the first call; run without the interpreter's lock.

    reorder: allow sums to be taken in any order, many terms at a time, and take it that no number is NaN.
    inline: becomes part of whoever calls it. A compiled function is optimised anew with every caller, and with theirs:
    what has one caller, or a few lines, is compiled in a fraction of the time as a part of it.
    inner: is called by compiled functions alone.
    """
    if function is None:
        return partial(compiled, reorder=reorder, inline=inline, inner=inner)
    if inline:
        return numba.njit(inline="always", error_model="numpy")(function)
    liberties = {"reassoc", "nsz", "nnan", "contract"} if reorder else False
    options: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True} if inner else {}
    dispatcher = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=liberties, **options)(function)
    file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if file is not None:  # absent where numba has no folder to write to
        digest = _digest(function.__module__.removeprefix("fairlayer."))
        file._source_stamp = digest
        file._index_name = f"{digest}.{file._index_name}"
        file._index_path = str(Path(file._cache_path) / file._index_name)
        file._data_name_pattern = f"{digest}.{file._data_name_pattern}"
    return dispatcher
