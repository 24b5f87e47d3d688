"""The command `fairlayer`: a module for each command, which imports what is slow only when it runs.

Ctrl-C, whenever it comes, ends a command in one line, with exit code 130, and nothing was written. Python raises
KeyboardInterrupt wherever it happens to be. While a module is imported or an object is deleted, that may abort the
process or be swallowed, so there it is put off.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = "fairlayer: interrupted; nothing was written."
EXIT_CODE = 130  # 128 and the number of the signal, as shells have it
PAUSE = 0.02  # seconds until an interrupt that was put off is tried again

_watching = False
_came = False


def main() -> None:
    """Run the command line; the entry point of `fairlayer`."""
    with ending_in_one_line():
        from fairlayer.extras import MissingExtraError, needs

        try:
            with needs("The command line", "typer", "rich"):
                import rich  # noqa: F401
                import typer  # noqa: F401
        except MissingExtraError as error:
            print(error, file=sys.stderr)
            sys.exit(2)
        from fairlayer.cli.app import app

        app(prog_name="fairlayer")


@contextmanager
def ending_in_one_line() -> Iterator[None]:
    """Watch for Ctrl-C while a command runs, unless the process was started to ignore it."""
    global _watching
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield
        return
    _watching = True
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    except BaseException:
        if not _came:
            raise
        print(INTERRUPTED, file=sys.stderr, flush=True)
        os._exit(EXIT_CODE)  # at once: while Python shuts down, another interrupt would print a traceback


def raise_interrupt() -> None:
    """Raise an interrupt again that something caught, where one came."""
    if _came:
        raise KeyboardInterrupt


def ignore_interrupts() -> None:
    """Ignore Ctrl-C from here on: results take their place, which is quick and must not be torn."""
    if _watching:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise_interrupt()


def _interrupt(_: int, frame: FrameType | None) -> None:
    global _came
    if _is_fragile(frame):
        again = threading.Timer(PAUSE, _interrupt_again)
        again.daemon = True
        again.start()
        return
    _came = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what tidies up must not be broken off by another one
    raise KeyboardInterrupt


def _interrupt_again() -> None:
    """As a signal to the main thread, which also ends a call that it waits in; Windows has none to a thread."""
    if sys.platform == "win32":
        _thread.interrupt_main()
    else:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _is_fragile(frame: FrameType | None) -> bool:
    """Whether a module is being imported, or an object deleted."""
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith("<frozen importlib") or code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False
