"""Commands that need the repository: experiments and benchmarks are not part of the installed package."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fairlayer.errors import InputError


def find(folder: str) -> Path:
    """The checkout that has a folder: that of this package's source, or one that the current folder lies in."""
    here = Path.cwd()
    places = [Path(__file__).resolve().parents[3], here, *here.parents]
    for place in places:
        if (place / folder).is_dir() and (place / "src" / "fairlayer").is_dir():
            return place
    raise InputError(
        f"The folder {folder}/ is part of the repository, not of the installed package: clone the repository, and run "
        "this command inside it."
    )


def run(root: Path, arguments: Sequence[str]) -> int:
    """Run Python in the checkout, on this terminal; who asks this process to stop asks the other, which says how."""
    with subprocess.Popen([sys.executable, *arguments], cwd=root) as process:
        wishes = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(wish, lambda number, _: process.send_signal(number)) for wish in wishes]
        try:
            code = process.wait()
            return code if code >= 0 else 128 - code  # ended by a signal: as a shell says it
        finally:
            for wish, handler in zip(wishes, before, strict=True):
                signal.signal(wish, handler)
