"""fairlayer over the cheapest layer there is: forward+backward against `clamp` on the same tensor."""

from argparse import Namespace
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairlayer import FairLayer, MeanParity
from measure import OtherWork, busy, milliseconds
from problems import TOLERANCE, Case, make
from records import Target, figure, markdown_table, write_csv, write_settings

SIZES = (16, 256, 2000, 20_000, 200_000)
TITLE = """# fairlayer over clamp

Forward + `sum().backward()`, float32, 2 attributes, box [0, 1], new groups in every call; medians of the ratios of
neighbouring calls. Groups come as columns by name (as in the README), each an integer tensor, a numpy array of
integers or one of words; and as one (n, 2) table of integers. `identity` is an autograd function that does nothing.

"""
FORMS = ("table", "tensors", "integers", "words")
COLUMNS = ("n", "clamp_ms", *FORMS, "identity", "clamp_alone_ms")
_LIMITS = {16: 2.5, 256: 2.5, 2000: 2.5, 200_000: 4.0}
LIMITS: dict[str, dict[int, float]] = {
    "table": _LIMITS,
    "tensors": _LIMITS,
    "integers": _LIMITS,
    "words": {2000: 5.0, 200_000: 20.0},
}
_SEX, _REGION = np.array(["female", "male"]), np.array(["north", "south"])


class Identity(torch.autograd.Function):
    """What any function of one's own costs."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        """The same tensor."""
        return z.view_as(z)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """The same gradient."""
        return gradient


def main(args: Namespace) -> list[Target]:
    """Time them in turn, so that the ratio does not feel what else the machine does."""
    layer = FairLayer([MeanParity(TOLERANCE)], bounds=(0.0, 1.0))
    rows = [compare(layer, n, args) for n in args.sizes or SIZES]
    write_csv(args.results / "floor.csv", rows)
    cells = [(row["n"], *(figure(row[name]) for name in COLUMNS[1:])) for row in rows]
    (args.results / "floor.md").write_text(TITLE + markdown_table(COLUMNS, cells) + "\n")
    write_settings(args.results / "floor.json", args)
    return [
        Target(
            f"fairlayer over clamp, groups as {form}, n = {row['n']}",
            row[form],
            LIMITS[form][row["n"]],
            busy=busy(row["other_cores"]),
        )
        for row in rows
        for form in FORMS
        if row["n"] in LIMITS[form]
    ]


def forms_of(groups: np.ndarray) -> dict[str, Any]:
    """The same groups as callers have them."""
    first, second = groups.T.copy()
    return {
        "table": torch.tensor(groups),
        "tensors": {"sex": torch.tensor(first), "region": torch.tensor(second)},
        "integers": {"sex": first, "region": second},
        "words": {"sex": _SEX[first], "region": _REGION[second]},
    }


def compare(layer: FairLayer, n: int, args: Namespace) -> dict[str, float]:
    """Median times and medians of the ratios of neighbouring calls."""

    def clamp(z: Tensor, forms: dict[str, Any]) -> None:
        z.clamp(0.0, 1.0).sum().backward()

    def identity(z: Tensor, forms: dict[str, Any]) -> None:
        Identity.apply(z).sum().backward()

    def fair(form: str) -> Callable[[Tensor, dict[str, Any]], None]:
        return lambda z, forms: layer(z, groups=forms[form]).sum().backward()

    layers = {form: fair(form) for form in FORMS}
    case = Case(n, 2, True)
    repeats, warm = (20, 3) if args.quick else (300 if n <= 20_000 else 100, 20)

    def times(*calls: Callable) -> dict[Callable, list[float]]:
        taken: dict[Callable, list[float]] = {call: [] for call in calls}
        for number in range(warm + repeats):
            problem = make(case, args.seed + number)
            forms = forms_of(problem.groups)
            # Each goes first every other time: the second finds the caches warmer.
            for call in calls if number % 2 else reversed(calls):
                z = torch.tensor(problem.z, requires_grad=True)
                taken[call].append(milliseconds(call, z, forms)[0])
        return {call: values[warm:] for call, values in taken.items()}

    others = OtherWork()
    found: dict[str, float] = {"n": n}
    for name, call in {**layers, "identity": identity}.items():
        pair = times(clamp, call)
        found.setdefault("clamp_ms", median(pair[clamp]))
        found[f"{name}_ms"] = median(pair[call])
        found[name] = median(high / low for low, high in zip(pair[clamp], pair[call], strict=True))
    # Beside the layer, clamp must not be slower than by itself, or the ratio would flatter the layer.
    found["clamp_alone_ms"] = median(times(clamp)[clamp])
    return {**found, "other_cores": others.cores(), "repeats": repeats}
