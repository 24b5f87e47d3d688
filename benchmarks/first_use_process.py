"""A program in a process of its own: how long it takes, and what of that is compiling which function."""

import contextlib
import io
import json
import runpy
import sys
import time
from typing import Any

import torch
from numba.core import event

from measure import peak_mb


class Compiled(event.Listener):
    """Processor time of each function that is compiled, less that of others compiled for it."""

    def __init__(self) -> None:
        self.under_way: list[list[float]] = []
        self.own: dict[str, list[float]] = {}

    def on_start(self, event: Any) -> None:
        """A function that was not found on disk."""
        self.under_way.append([time.process_time(), 0.0])

    def on_end(self, event: Any) -> None:
        """It is compiled."""
        start, inner = self.under_way.pop()
        taken = time.process_time() - start
        if self.under_way:
            self.under_way[-1][1] += taken
        function = event.data["dispatcher"].py_func
        self.own.setdefault(f"{function.__module__}.{function.__qualname__}", []).append(taken - inner)


def main() -> None:
    """Run the program that is named, and print what it took."""
    torch.manual_seed(0)
    compiled = Compiled()
    event.register("numba:compile", compiled)
    wall, processor = time.perf_counter(), time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        runpy.run_path(sys.argv[1], run_name="__main__")
    taken = {"processor": time.process_time() - processor, "wall": time.perf_counter() - wall, "peak_mb": peak_mb()}
    print(json.dumps({**taken, "compiled": compiled.own}))


if __name__ == "__main__":
    main()
