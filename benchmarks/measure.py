"""Clocks and memory. Needs only the standard library, as it runs in every environment."""

import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

STATUS, STAT = Path("/proc/self/status"), Path("/proc/stat")
BUSY = 0.2  # cores


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


class OtherWork:
    """How many cores other processes keep busy from now on: the doubt to put on times taken meanwhile.

    Threads that wait for each other, as those of PyTorch and JAX do, become many times slower beside other
    work; a time measured then says nothing.
    """

    def __init__(self) -> None:
        self._start = self._read()

    def cores(self) -> float | None:
        """Mean number of cores taken by others since the start; None where the system does not say."""
        if self._start is None:
            return None
        wall, others = (now - then for now, then in zip(self._read(), self._start, strict=True))
        return max(0.0, others / max(wall, 1e-9))

    @staticmethod
    def _read() -> tuple[float, float] | None:
        """Seconds on the wall, and of processor time that was not this process's."""
        if not STAT.exists():
            return None
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, STAT.read_text().split()[1:9])
        ticks = user + nice + system + irq + softirq + steal
        return time.perf_counter(), ticks / os.sysconf("SC_CLK_TCK") - time.process_time()


def busy(cores: float | None) -> bool:
    """Whether others took so much that a time cannot be relied on."""
    return cores is not None and cores > BUSY
