"""Ctrl-C and requests to stop. They are remembered: what they hit may catch them, or turn them into another error."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PAUSE = 1.0  # seconds; what comes sooner after a signal is the same wish, told by the terminal and by another process


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Raises KeyboardInterrupt after a signal, in place of whatever error came of it; tells whether one has come."""
    came: list[float] = []

    def interrupt(*_: Any) -> None:
        again = bool(came) and time.monotonic() - came[-1] < PAUSE
        came.append(time.monotonic())
        if not again:  # else it would break off what ends the work in good order
            raise KeyboardInterrupt

    here = threading.current_thread() is threading.main_thread()  # only there can signals be handled
    before = {number: signal.signal(number, interrupt) for number in SIGNALS} if here else {}
    try:
        yield lambda: bool(came)
    except Exception as error:
        if came:
            raise KeyboardInterrupt from error
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
