"""`eager`: a function that torch.compile leaves alone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def eager(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function, and all it calls, outside of torch.compile's graphs.

    `torch.compiler.disable` does that, but loads the compiler for it, which takes as long as the rest of torch. Here
    it is asked only once somebody has loaded the compiler: without it there are no graphs.
    """
    disabled: Callable[P, R] | None = None

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal disabled
        if disabled is None:
            if "torch._dynamo" not in sys.modules:
                return function(*args, **kwargs)
            disabled = torch.compiler.disable(function)
        return disabled(*args, **kwargs)

    run._torchdynamo_disable = True  # type: ignore[attr-defined]  # what the compiler itself looks for
    return run
