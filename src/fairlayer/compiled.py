"""`compiled`: numba's njit, cached on disk under a name that changes with the compiled code.

numba's own cache watches the file a function stands in, not the files of the functions it calls: after an update of one
file it would go on running the old code of another, or fail on what an older release left behind. So the names of all
cache files carry a digest of everything that is compiled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numba

_PACKAGE = Path(__file__).parent
# What is compiled, and what it takes its constants and records from: whoever imports this module or stands in `solve`.
_SOURCES = [source for source in sorted(_PACKAGE.rglob("*.py")) if b"fairlayer.compiled import" in source.read_bytes()]
_DIGEST = hashlib.sha256(b"".join(source.read_bytes() for source in _SOURCES)).hexdigest()[:12]


def compiled(function: Callable[..., Any] | None = None, *, reorder: bool = False) -> Any:
    """Compile at the first call; run without the interpreter's lock.

    reorder: allow sums to be taken in any order, many terms at a time, and take it that no number is NaN.
    """
    if function is None:
        return partial(compiled, reorder=reorder)
    liberties = {"reassoc", "nsz", "nnan", "contract"} if reorder else False
    dispatcher = numba.njit(cache=True, nogil=True, fastmath=liberties)(function)
    file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if file is not None:  # absent where numba has no folder to write to
        file._source_stamp = _DIGEST
        file._index_name = f"{_DIGEST}.{file._index_name}"
        file._index_path = str(Path(file._cache_path) / file._index_name)
        file._data_name_pattern = f"{_DIGEST}.{file._data_name_pattern}"
    return dispatcher
