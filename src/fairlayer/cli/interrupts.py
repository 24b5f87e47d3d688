"""Ctrl-C: whenever it comes, the command ends in one line, with exit code 130, and nothing was written.

Python raises KeyboardInterrupt wherever it happens to be. An import or a destructor may catch it, or make another error
of it, so it is also remembered: `check` raises it again, and `ending_in_one_line` knows an error that came of it.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

EXIT_CODE = 130  # 128 and the number of the signal, as shells say it

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
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what is left to do is to end
        print("fairlayer: interrupted; nothing was written.", file=sys.stderr)
        sys.exit(EXIT_CODE)


def came() -> bool:
    """Whether there was an interrupt."""
    return _came


def check() -> None:
    """Raise an interrupt again that something caught."""
    if _came:
        raise KeyboardInterrupt


def finish() -> None:
    """Say that from here on results take their place, which is quick and must not be torn: Ctrl-C comes too late."""
    if _watching:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    check()


def _interrupt(*_: Any) -> None:
    global _came
    if not (_came and _is_ending(sys.exception())):
        _came = True
        raise KeyboardInterrupt


def _is_ending(error: BaseException | None) -> bool:
    """Whether an earlier interrupt is on its way out: what tidies up after it must not be broken off."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _say_unless_interrupted(problem: Any) -> None:
    """Report what a destructor could not raise, but not an interrupt: that is remembered."""
    if not issubclass(problem.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(problem)
