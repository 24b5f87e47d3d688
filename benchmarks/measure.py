"""Clocks and memory. Needs only the standard library and NumPy, as it runs in every environment."""

import hashlib
import os
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

STATUS = Path("/proc/self/status")


def milliseconds(call: Callable, *arguments: Any) -> tuple[float, Any]:
    """Time one call; also give its result."""
    start = time.perf_counter()
    result = call(*arguments)
    return 1e3 * (time.perf_counter() - start), result


def peak_mb() -> float:
    """Peak resident memory of this process.

    Where /proc exists it is preferred: `getrusage` may count the parent's memory after a fork.
    """
    if STATUS.exists():
        return memory_field("VmHWM") / 2**20
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def memory_field(name: str) -> int:
    """Read a field of /proc/self/status, in bytes."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name + ":"))
    return int(line.split()[1]) * 1024


def anchor_ms() -> float:
    """Time a fixed piece of work on all cores: rows whose anchors differ did not have the machine alone.

    Hashing, because it leaves the interpreter's lock and is the same code in every environment.
    """
    cores = os.cpu_count() or 1
    block = bytes(4 * 2**20)
    with ThreadPoolExecutor(cores) as pool:

        def hash_everywhere() -> None:
            list(pool.map(lambda _: hashlib.sha256(block).digest(), range(cores)))

        return float(np.median([milliseconds(hash_everywhere)[0] for _ in range(15)]))
