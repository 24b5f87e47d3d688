"""Run one method on every split and tolerance, in that method's environment: `python -m deciders.worker REQUEST`.

REQUEST is JSON (see `Request`). Prints a JSON line for each split and tolerance: the times, or the error. What was
decided goes to a file next to the split; the parent judges it, not the worker.
"""

import importlib
import json
import os
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from deciders.splits import Split, read
from measure import OtherWork


@dataclass(frozen=True)
class Request:
    """What to run, on what."""

    adapter: str
    options: dict[str, Any]
    tolerances: list[float]
    splits: list[str]  # paths
    draws: int  # how often to decide: the mean is the probability of a yes
    outputs: str  # folder that the decisions go to


def run(request: Request, out: TextIO) -> None:
    """One split after the other. The first call of all is made twice: imports and compiling are not on the clock."""
    adapter = importlib.import_module(f"deciders.adapters.{request.adapter}")
    for number, path in enumerate(request.splits):
        split = read(Path(path))
        for tolerance in request.tolerances:
            if number == 0 and tolerance == request.tolerances[0]:
                measured(adapter.fit, request, split, tolerance)
            print(json.dumps(measured(adapter.fit, request, split, tolerance)), file=out, flush=True)


def measured(fit: Any, request: Request, split: Split, tolerance: float) -> dict[str, Any]:
    """Fit, predict, write what was decided."""
    row: dict[str, Any] = {"data": split.data, "seed": split.seed, "asked": tolerance, "error": None}
    others, began = OtherWork(), time.perf_counter()
    try:
        decide = fit(split, tolerance, **request.options)
        fitted = time.perf_counter()
        yes = np.asarray(decide(split.test), dtype=np.float64)
        ended = time.perf_counter()
        yes = np.mean([yes, *(decide(split.test) for _ in range(request.draws - 1))], axis=0)
    except Exception as error:  # a method may fail on one split and not on others
        return row | {"error": f"{type(error).__name__}: {error}"[:300]}
    np.save(Path(request.outputs) / f"{split.name} {tolerance}.npy", yes)
    row |= {"fit_seconds": fitted - began, "predict_seconds": ended - fitted}
    return row | {"other_cores": others.cores()}


if __name__ == "__main__":
    # Libraries print what they like to standard output; send that to standard error, keep ours clean.
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    run(Request(**json.loads(sys.argv[1])), lines)
