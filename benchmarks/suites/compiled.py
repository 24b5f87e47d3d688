"""`torch.compile`: what the layer adds to a compiled network, over what it adds without compilation."""

from argparse import Namespace
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from fairlayer import FairLayer, MeanParity
from measure import OtherWork, busy, milliseconds
from problems import TOLERANCE, Case, make
from records import Target, figure, markdown_table, write_csv, write_settings

BATCHES, FEATURES, LIMIT = (256, 2000), 32, 1.5
TITLE = """# torch.compile

Forward + `sum().backward()` of a small network, alone and with the layer behind it, float32, two attributes by name,
box [0, 1]; in eager mode and by `torch.compile(fullgraph=True)`. Added: the median of what the layer adds between
neighbouring calls, in ms.

"""
COLUMNS = ("n", "eager_ms", "compiled_ms", "eager_added_ms", "compiled_added_ms", "compiled / eager")


class Fair(nn.Module):
    """A network with the layer behind it."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network
        self.layer = FairLayer([MeanParity(TOLERANCE)], bounds=(0.0, 1.0))

    def forward(self, x: Tensor, groups: dict[str, Tensor]) -> Tensor:
        """Fair outputs."""
        return self.layer(self.network(x)[:, 0], groups)


class Plain(nn.Module):
    """The same network without it."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, groups: dict[str, Tensor]) -> Tensor:
        """Raw outputs."""
        return self.network(x)[:, 0]


def main(args: Namespace) -> list[Target]:
    """Time; write compiled.csv, .json and .md."""
    torch.set_num_threads(1)
    rows = [measure(n, args) for n in args.sizes or BATCHES]
    write_csv(args.results / "compiled.csv", rows)
    lines = [(row["n"], *(figure(row[name]) for name in COLUMNS[1:])) for row in rows]
    (args.results / "compiled.md").write_text(TITLE + markdown_table(COLUMNS, lines) + "\n")
    write_settings(args.results / "compiled.json", args)
    what = "torch.compile: what the layer adds, over eager"
    return [
        Target(f"{what}, n = {row['n']}", row["compiled / eager"], LIMIT, busy=busy(row["other_cores"])) for row in rows
    ]


def measure(n: int, args: Namespace) -> dict[str, Any]:
    """Times of four programs in turn, on the same batches."""
    torch.manual_seed(args.seed)
    network = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 1), nn.Sigmoid())
    eager = {"plain": Plain(network), "fair": Fair(network)}
    programs: dict[str, Any] = {f"eager {name}": module for name, module in eager.items()}
    programs |= {f"compiled {name}": torch.compile(module, fullgraph=True) for name, module in eager.items()}
    repeats, warm = (10 if args.quick else 300), 10
    taken: dict[str, list[float]] = {name: [] for name in programs}
    others = OtherWork()
    for number in range(warm + repeats):
        labels = make(Case(n, 2, True), args.seed + number).groups
        groups = {"sex": torch.tensor(labels[:, 0]), "region": torch.tensor(labels[:, 1])}
        x = torch.randn(n, FEATURES)
        for name, program in programs.items():
            spent, _ = milliseconds(lambda: program(x, groups).sum().backward())  # noqa: B023
            taken[name].append(spent)
        if number + 1 == warm:
            others = OtherWork()
    taken = {name: values[warm:] for name, values in taken.items()}
    added = {
        way: median(a - b for a, b in zip(taken[f"{way} fair"], taken[f"{way} plain"], strict=True))
        for way in ("eager", "compiled")
    }
    row = {"n": n, **{f"{way}_ms": median(taken[f"{way} fair"]) for way in added}}
    row |= {f"{way}_added_ms": value for way, value in added.items()}
    return {**row, "compiled / eager": added["compiled"] / added["eager"], "other_cores": others.cores()}
