"""`compiled`: numba's njit, cached on disk under a name that changes with the compiled code.

numba's own cache watches the file a function stands in, not the files of the functions it calls: after an update of one
file it would go on running the old code of another, or fail on what an older release left behind. So the names of all
cache files carry a digest of everything that is compiled.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numba
from numba.core import event

_PACKAGE = Path(__file__).parent
# The rooms that hold compiled code, and the records and constants that it is made of.
_ROOMS = ("binding", "solve", "decisions", "stream")
_SOURCES = sorted(source for room in _ROOMS for source in (_PACKAGE / room).glob("*.py"))
_DIGEST = hashlib.sha256(b"".join(source.read_bytes() for source in _SOURCES)).hexdigest()[:12]


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
        file._source_stamp = _DIGEST
        file._index_name = f"{_DIGEST}.{file._index_name}"
        file._index_path = str(Path(file._cache_path) / file._index_name)
        file._data_name_pattern = f"{_DIGEST}.{file._data_name_pattern}"
    return dispatcher
