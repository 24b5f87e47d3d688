"""Measure one peer at one size, in that peer's environment: `python -m peers.worker REQUEST`.

REQUEST is JSON (see `Request`). Prints JSON lines, one per stage, so that what was measured survives if
the process is stopped: {"stage": "first", ...} after the first call, {"stage": "done", ...} at the end.
Outputs and gradients go to the file named in the request; the parent scores them, not the worker.
"""

import importlib
import json
import os
import sys
import time
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TextIO

import numpy as np

from affine import AffineCase, AffineProblems
from measure import OtherWork, milliseconds, peak_mb
from peers.frameworks import Calls, JaxCalls, TorchCalls
from problems import Case, Problem

WARM_UP = 2


@dataclass(frozen=True)
class Request:
    """What to measure and for how long."""

    adapter: str
    options: dict[str, Any]
    dtype: str
    fixed: bool
    compiled: bool
    case: Case | AffineCase
    seed: int
    repeats: int  # at least this many, unless `seconds` have passed
    max_repeats: int
    seconds: float
    patience: float  # a first call slower than this many seconds is not repeated
    checked: int  # how many outputs to keep for scoring
    outputs: str  # path of the .npz they go to

    @classmethod
    def from_json(cls, text: str) -> "Request":
        """Read what the parent wrote with `dataclasses.asdict`."""
        fields = json.loads(text)
        kind = AffineCase if "problems" in fields["case"] else Case
        return cls(**{**fields, "case": kind(**fields["case"])})

    def problem(self, number: int) -> Problem | AffineProblems:
        """Draw the numbered batch, with groups, or rows, of its own unless they are fixed."""
        return self.case.make(self.seed + number, self.seed if self.fixed else None)


def ready(request: Request, adapter: ModuleType) -> Calls:
    """Build what the peer can build before it sees a batch."""
    project = adapter.build(request.case, request.problem(0).given, **request.options)
    if adapter.FRAMEWORK == "jax":
        return JaxCalls(project, request.dtype, request.compiled)
    return TorchCalls(project, request.dtype)


def load_adapter(request: Request) -> ModuleType:
    """Import the peer, and let JAX compute in the precision that is asked for: alone it stays in float32."""
    adapter = importlib.import_module(f"peers.adapters.{request.adapter}")
    if adapter.FRAMEWORK == "jax":
        importlib.import_module("jax").config.update("jax_enable_x64", request.dtype == "float64")
    return adapter


def run(request: Request, out: TextIO) -> None:
    """Build, call once, then repeat on fresh batches, forward and forward+backward in turn."""

    def report(stage: str, **values: Any) -> None:
        print(json.dumps({"stage": stage, "peak_mb": peak_mb(), **values}), file=out, flush=True)

    build_ms, calls = milliseconds(ready, request, load_adapter(request))
    kept: dict[str, np.ndarray] = {}

    def timed_backward(number: int) -> float:
        problem = request.problem(number)
        batch = calls.load(problem)
        elapsed, result = milliseconds(calls.forward_backward, batch)
        if len(kept) < 3 * request.checked:
            y, gradient = calls.read(batch, result)
            kept[f"y{number}"], kept[f"gradient{number}"] = y, gradient
            kept[f"fingerprint{number}"] = np.array(problem.fingerprint())
        return elapsed

    began = time.perf_counter()
    first_ms = timed_backward(0)
    np.savez(request.outputs, **kept)
    report("first", build_ms=build_ms, first_ms=first_ms)
    for _ in range(WARM_UP):  # forward is compiled apart, and some compile again for a second batch
        if time.perf_counter() - began < request.patience / 4:
            calls.forward(calls.load(request.problem(0)))
            calls.forward_backward(calls.load(request.problem(0)))

    forward, backward = [], []
    start, others = time.perf_counter(), OtherWork()
    # The first call may have compiled something, so it counts only where a second is out of the question.
    while first_ms < 1e3 * request.patience and len(backward) < request.max_repeats:
        number = 2 * len(backward) + 1
        backward.append(timed_backward(number + 1))
        if (elapsed := time.perf_counter() - start) > request.seconds:
            break
        batch = calls.load(request.problem(number))
        forward.append(milliseconds(calls.forward, batch)[0])
        # Fast calls go on for a second, for a steadier median.
        if len(backward) >= request.repeats and elapsed > 1.0:
            break
    np.savez(request.outputs, **kept)
    report(
        "done",
        build_ms=build_ms,
        first_ms=first_ms,
        forward_ms=float(np.median(forward)) if forward else None,
        forward_backward_ms=float(np.median(backward)) if backward else first_ms,
        least_ms=min(backward, default=first_ms),
        repeats=len(backward),
        other_cores=others.cores(),
    )


if __name__ == "__main__":
    # Libraries print what they like to standard output; send that to standard error, keep ours clean.
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    run(Request.from_json(sys.argv[1]), lines)
