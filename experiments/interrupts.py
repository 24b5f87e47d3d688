"""Ctrl-C and requests to stop. They are remembered: what they hit, as an import, may catch them, or turn them into
another error.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PAUSE = 1.0  # seconds; what comes sooner after a signal is the same wish, told by the terminal and by another process


_came: list[float] = []  # when


@contextmanager
def interruptible() -> Iterator[None]:
    """Raises KeyboardInterrupt after a signal, in place of whatever error came of it. May be entered again within."""
    if threading.current_thread() is not threading.main_thread():  # only there can signals be handled
        yield
        return
    before = {number: signal.signal(number, _interrupt) for number in SIGNALS}
    if _interrupt not in before.values():
        _came.clear()
    try:
        yield
    except Exception as error:
        if _came:
            raise KeyboardInterrupt from error
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def raise_if_interrupted() -> None:
    """For whoever calls what may have caught an interrupt, and returned half of its work."""
    if _came:
        raise KeyboardInterrupt


def _interrupt(*_: Any) -> None:
    again = bool(_came) and time.monotonic() - _came[-1] < PAUSE
    _came.append(time.monotonic())
    if not again:  # else it would break off what ends the work in good order
        raise KeyboardInterrupt
