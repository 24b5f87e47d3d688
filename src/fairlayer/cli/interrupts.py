"""Ctrl-C: whenever it comes, the command ends in one line, with exit code 130, and nothing was written.

Python raises KeyboardInterrupt wherever it happens to be. An import or a destructor may catch it, or make another error
of it, so it is also remembered: `check` raises it again, and `ending_in_one_line` knows an error that came of it. A
compiled module that is being loaded may not survive it: there it is put off.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ExtensionFileLoader
from types import FrameType
from typing import Any

from fairlayer.cli import EXIT_CODE, INTERRUPTED

PAUSE = 0.02  # seconds until an interrupt that came at a bad moment is tried again
_LOADING = {ExtensionFileLoader.create_module.__code__, ExtensionFileLoader.exec_module.__code__}

_watching = False
_came = False


@contextmanager
def ending_in_one_line() -> Iterator[None]:
    """Watch for Ctrl-C while a command runs, unless whoever started it wants it to be ignored."""
    global _watching
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _say_unless_interrupted
    _watching = True
    try:
        yield
    except BaseException:
        if not _came:
            raise
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print(INTERRUPTED, file=sys.stderr, flush=True)
        os._exit(EXIT_CODE)  # at once: while Python winds down, one more interrupt would kill it


def check() -> None:
    """Raise an interrupt again that something caught."""
    if _came:
        raise KeyboardInterrupt


def finish() -> None:
    """Say that from here on results take their place, which is quick and must not be torn: Ctrl-C comes too late."""
    if _watching:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    check()


def _interrupt(_: int, frame: FrameType | None) -> None:
    global _came
    if _came and _is_ending(sys.exception()):
        return
    _came = True
    if _is_loading(frame):
        again = threading.Timer(PAUSE, _thread.interrupt_main)
        again.daemon = True
        again.start()
    else:
        raise KeyboardInterrupt


def _is_loading(frame: FrameType | None) -> bool:
    """Whether a compiled module is being loaded: its code may abort the process at an error from Python.

    torch has parts of its own that its modules load by a call, as `torch.distributed` does.
    """
    if frame is not None and frame.f_code.co_name == "<module>" and frame.f_globals["__name__"].startswith("torch"):
        return True
    while frame is not None and frame.f_code not in _LOADING:
        frame = frame.f_back
    return frame is not None


def _is_ending(error: BaseException | None) -> bool:
    """Whether an earlier interrupt is on its way out: what tidies up after it must not be broken off."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _say_unless_interrupted(problem: Any) -> None:
    """Report what a destructor could not raise, but not an interrupt: that is remembered."""
    if not issubclass(problem.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(problem)
