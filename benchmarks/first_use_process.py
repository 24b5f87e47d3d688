"""A program in a process of its own: how long it takes, and how much memory, beyond `import torch`."""

import contextlib
import io
import json
import runpy
import sys
import time

import torch

from measure import peak_mb


def main() -> None:
    """Run the program that is named, and print what it took."""
    torch.manual_seed(0)
    memory, wall, processor = peak_mb(), time.perf_counter(), time.process_time()
    from fairlayer import FairLayer, Stream  # noqa: F401 - what both programs import

    imports = time.perf_counter() - wall
    with contextlib.redirect_stdout(io.StringIO()):
        runpy.run_path(sys.argv[1], run_name="__main__")
    taken = {"processor": time.process_time() - processor, "wall": time.perf_counter() - wall}
    print(json.dumps({"imports": imports, **taken, "mb": peak_mb() - memory}))


if __name__ == "__main__":
    main()
