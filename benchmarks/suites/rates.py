"""Rate parity: time and proved gap, up to a million samples, with overlapping attributes too; and in training.

Training is on the Adult data, which needs FAIRLAYER_DATA; without them that part is left out.
"""

import time
from argparse import Namespace
from itertools import product
from statistics import mean
from typing import Any

import numpy as np
import torch

from experiments import datasets
from fairlayer import FairLayer, RateParity, project
from fairlayer.errors import FairlayerError
from measure import BUSY, OtherWork
from records import Target, figure, markdown_table, write_csv, write_settings

TOLERANCE = 0.02
METHODS = ("project afterwards", "through the layer, exact derivative", "through the layer, sigmoid surrogate")
SEEDS, EPOCHS, BATCH = 3, 8, 1000


def main(args: Namespace) -> list[Target]:
    """Time and train."""
    rows = [timed(n, attributes, args) for n, attributes in sizes(args.quick)]
    write_csv(args.results / "rates.csv", rows)
    trained = training(args)
    if trained:
        write_csv(args.results / "rates_training.csv", trained)
    (args.results / "rates.md").write_text(TITLE + speed_table(rows) + "\n" + training_table(trained))
    write_settings(args.results / "rates.json", args, tolerance=TOLERANCE)
    large = {(row["n"], row["attributes"]): row for row in rows}
    one, four = large[sizes(args.quick)[0]], large[sizes(args.quick)[-1]]
    return [
        Target(f"rates: seconds, one attribute, n = {one['n']:,}", one["seconds"], 1.0, busy=one["busy"]),
        Target(f"rates: seconds, four attributes, n = {four['n']:,}", four["seconds"], 2.0, busy=four["busy"]),
        Target("rates: four attributes, proved gap to the optimum over the cost", four["relative_gap"], 1e-3),
    ]


TITLE = """# Rate parity

One call of `project`, float64, tolerance 0.02:

"""


def sizes(quick: bool) -> list[tuple[int, int]]:
    """Samples and attributes; the first and the last have limits."""
    if quick:
        return [(10_000, 1), (2_000, 2)]
    return [(1_000_000, 1), (200, 2), (2_000, 3), (100_000, 2), (100_000, 4)]


def timed(n: int, attributes: int, args: Namespace) -> dict[str, Any]:
    """The best of three calls on scores of a logistic model whose groups differ."""
    rng = np.random.default_rng(args.seed)
    groups = {f"a{j}": (rng.random(n) < 0.4).astype(np.int64) for j in range(attributes)}
    effects = zip(np.linspace(0.8, 0.3, attributes), groups.values(), strict=True)
    z = 1.0 / (1.0 + np.exp(-(rng.normal(0.0, 1.0, n) + sum(e * column for e, column in effects) - 0.5)))
    constraint = RateParity(TOLERANCE)
    project(z[:100], {name: column[:100] for name, column in groups.items()}, constraint)
    others, taken = OtherWork(), []
    for _ in range(1 if args.quick else 3):
        start = time.perf_counter()
        solution = project(z, groups, constraint)
        taken.append(time.perf_counter() - start)
    cost = float(((solution.value - z) ** 2).sum())
    row = {"n": n, "attributes": attributes, "seconds": min(taken), "status": solution.status.name, "cost": cost}
    row |= {"relative_gap": solution.optimality_gap / cost, "moved": float((solution.value != z).mean())}
    row |= {"other_cores": others.cores()}
    row["busy"] = row["other_cores"] > BUSY
    print("  " + ", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return row


def speed_table(rows: list[dict[str, Any]]) -> str:
    header = ("n", "attributes", "seconds", "status", "proved gap over cost", "scores moved", "other work, cores")
    lines = [
        (
            f"{row['n']:,}",
            row["attributes"],
            figure(row["seconds"]),
            row["status"],
            figure(row["relative_gap"]),
            figure(row["moved"]),
            figure(row["other_cores"]),
        )
        for row in rows
    ]
    return markdown_table(header, lines) + "\n"


def training(args: Namespace) -> list[dict[str, Any]]:
    """The same network trained three ways on Adult, then projected on the test rows."""
    try:
        data = datasets.adult()
    except FairlayerError as error:
        print(f"  training left out: {error}", flush=True)
        return []
    parts = [data.part(name) for name in ("train", "test")]
    x, y, sex = zip(*(arrays(part, parts[0]) for part in parts), strict=True)
    rows = []
    for seed, method in product(range(args.seed, args.seed + (1 if args.quick else SEEDS)), METHODS):
        network = fit(x[0], y[0], sex[0], method, seed, 1 if args.quick else EPOCHS)
        with torch.no_grad():
            raw = network(x[1])[:, 0].double().numpy()
        fair = project(raw, {"sex": sex[1]}, RateParity(TOLERANCE), (0, 1)).value
        target = y[1].numpy() >= 0.5
        row = {"method": method, "seed": seed, "accuracy": float(((fair >= 0.5) == target).mean())}
        row |= {"rate_gap": gap(fair >= 0.5, sex[1]), "raw_accuracy": float(((raw >= 0.5) == target).mean())}
        row |= {"raw_rate_gap": gap(raw >= 0.5, sex[1]), "moved": float((fair != raw).mean())}
        rows.append(row)
        print("  " + ", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return rows


def arrays(part: Any, fitted_on: Any) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Numbers scaled and words as indicators, both as in the training rows."""
    columns = []
    for name in fitted_on.features.columns:
        reference, own = fitted_on.features[name], part.features[name]
        if reference.dtype.kind in "biuf":
            columns.append((own.to_numpy(float) - reference.mean()) / (reference.std() + 1e-9))
        else:
            words = np.array([str(word) for word in own])
            columns += [(words == label).astype(float) for label in sorted({str(word) for word in reference})]
    x = torch.tensor(np.column_stack(columns), dtype=torch.float32)
    return x, torch.tensor(np.asarray(part.target, dtype=np.float32)), np.asarray(part.protected["sex"])


def fit(x: torch.Tensor, y: torch.Tensor, sex: np.ndarray, method: str, seed: int, epochs: int) -> torch.nn.Module:
    """A small network on squared errors of what comes out of the layer, where there is one."""
    torch.manual_seed(seed)
    network = torch.nn.Sequential(
        torch.nn.Linear(x.shape[1], 32), torch.nn.ReLU(), torch.nn.Linear(32, 1), torch.nn.Sigmoid()
    )
    surrogate: Any = "sigmoid" if "sigmoid" in method else None
    layer = FairLayer([RateParity(TOLERANCE)], bounds=(0.0, 1.0), surrogate=surrogate)
    optimiser = torch.optim.Adam(network.parameters(), 3e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(BATCH):
            z = network(x[rows])[:, 0]
            out = z if "afterwards" in method else layer(z, groups={"sex": sex[rows.numpy()]})
            optimiser.zero_grad()
            (out - y[rows]).square().mean().backward()
            optimiser.step()
    return network.eval()


def gap(yes: np.ndarray, groups: np.ndarray) -> float:
    rates = [float(yes[groups == label].mean()) for label in np.unique(groups)]
    return max(rates) - min(rates)


def training_table(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return ""
    keys = ("accuracy", "rate_gap", "raw_accuracy", "raw_rate_gap", "moved")
    header = ("trained", "accuracy", "gap of rates", "accuracy before", "gap before", "scores moved")
    lines = [
        [method, *(figure(mean(row[key] for row in rows if row["method"] == method)) for key in keys)]
        for method in METHODS
    ]
    return (
        f"\nThe same network on Adult, decisions of women and men within {TOLERANCE}, on the test rows; means over "
        f"{len({row['seed'] for row in rows})} seeds. Before: as the network has it; after: projected.\n\n"
        + markdown_table(header, lines)
        + "\n"
    )
