"""When relative entropy is worth it: the same network and the same gap, with the squared discrepancy and with entropy.

On Adult, credit-card and loan data: the probabilities of one unconstrained network projected either way, and networks
trained through the layer, on the Brier score with the squared discrepancy, on the logarithmic loss with relative
entropy of their logits. Gaps are those of the whole test set, within the tolerance for every method but the first.
"""

import time
from argparse import Namespace
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from experiments import datasets
from fairlayer import FairLayer, FairModel, MeanParity, project
from fairlayer.estimators.models import TableNumbers
from fairlayer.estimators.scores import Probability, network
from fairlayer.training import batches, fit
from records import Target, figure, markdown_table, write_csv, write_settings

TOLERANCE, MOST_ROWS, TEST_SHARE, EPOCHS, BATCH, SEEDS = 0.02, 20_000, 0.3, 12, 512, 3
DATA = {"Adult": "adult", "credit card": "credit_card", "loan": "sba"}
METHODS = ("unconstrained", "projected, squared", "projected, entropy", "trained, Brier", "trained, log loss")
FIGURES = ("log_loss", "brier", "calibration", "auc", "accuracy", "gap", "moved_to_an_end")
TITLE = """# Squared or relative entropy

Mean parity of probabilities within {tolerance:g} for every protected attribute, on the whole test set. Means over
{seeds} seeds; up to {rows:,} rows, 30 % of them to test. calibration: expected error in 10 bins of equal size.
moved_to_an_end: share of outputs below 0.001 or above 0.999 that were not before; the logarithmic loss counts outputs
of exactly 0 and 1 as 1e-6 from there.

"""


def main(args: Namespace) -> list[Target]:
    """Train and judge; write probabilities.csv, .json and .md."""
    torch.set_num_threads(1)
    start, rows = time.perf_counter(), []
    for name, key in DATA.items():
        for seed in range(args.seed, args.seed + (1 if args.quick else SEEDS)):
            rows += [{"data": name, "seed": seed, **row} for row in compare(datasets.load(key), seed, args.quick)]
            print(f"  {name}, seed {seed}: {time.perf_counter() - start:.0f} s", flush=True)
    write_csv(args.results / "probabilities.csv", rows)
    lines = []
    for name in DATA:
        for method in METHODS:
            own = [row for row in rows if row["data"] == name and row["method"] == method]
            lines.append([name, method, *(figure(float(np.mean([row[key] for row in own]))) for key in FIGURES)])
    title = TITLE.format(tolerance=TOLERANCE, seeds=len({row["seed"] for row in rows}), rows=MOST_ROWS)
    (args.results / "probabilities.md").write_text(title + markdown_table(("data", "method", *FIGURES), lines) + "\n")
    write_settings(args.results / "probabilities.json", args, epochs=EPOCHS, batch=BATCH, tolerance=TOLERANCE)
    worst = max(row["gap"] for row in rows if row["method"] != "unconstrained")
    return [Target("probabilities: largest gap of the projected and trained", worst, TOLERANCE * (1 + 1e-9))]


def compare(data: Any, seed: int, quick: bool) -> list[dict[str, Any]]:
    """All methods on one split of a data set."""
    rng = np.random.default_rng(seed)
    data = data.rows(rng.permutation(len(data))[: 2_000 if quick else MOST_ROWS])
    held = round(TEST_SHARE * len(data))
    inputs = TableNumbers().fit(data.features).transform(data.features).astype(np.float32)
    targets = np.asarray(data.target, dtype=np.float32)
    groups = {name: np.asarray(data.protected[name]) for name in data.protected}
    train, test = slice(held, None), slice(0, held)
    own = {name: column[test] for name, column in groups.items()}
    z = torch.from_numpy(inputs[test]).double()

    def fitted(model: nn.Module, loss: Any) -> nn.Module:
        loader = batches(
            inputs[train],
            targets[train],
            {name: column[train] for name, column in groups.items()},
            batch_size=BATCH,
            shuffle=True,
            stratify=True,
            seed=seed,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            fit(model, loader, loss=loss, epochs=2 if quick else EPOCHS)
        return model.double().eval()

    def net() -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return network(inputs.shape[1], (64, 64), None)

    found: dict[str, np.ndarray] = {}
    with torch.no_grad():
        plain = FairModel(net(), FairLayer([], discrepancy="logits"))
        with torch.enable_grad():
            fitted(plain, log_loss)
        logits = plain.backbone(z).reshape(-1)
        found["unconstrained"] = torch.sigmoid(logits).numpy()
        for kind, given in (("squared", torch.sigmoid(logits)), ("logits", logits)):
            bounds = (0.0, 1.0) if kind == "squared" else None
            solution = project(given, own, [MeanParity(TOLERANCE)], bounds, discrepancy=kind)
            found["projected, squared" if kind == "squared" else "projected, entropy"] = solution.value.numpy()
        for method, backbone, layer, loss in (
            ("trained, Brier", Probability(net()), FairLayer([MeanParity(TOLERANCE)], (0.0, 1.0)), brier),
            ("trained, log loss", net(), FairLayer([MeanParity(TOLERANCE)], discrepancy="logits"), log_loss),
        ):
            model = FairModel(backbone, layer)
            with torch.enable_grad():
                fitted(model, loss)
            found[method] = model(z, groups=own).reshape(-1).numpy()
    raw = found["unconstrained"]
    return [{"method": method, **judge(found[method], raw, targets[test], own)} for method in METHODS]


def brier(output: Tensor, target: Tensor) -> Tensor:
    return torch.nn.functional.mse_loss(output, target)


def log_loss(output: Tensor, target: Tensor) -> Tensor:
    return torch.nn.functional.binary_cross_entropy(output, target)


def judge(p: np.ndarray, raw: np.ndarray, target: np.ndarray, groups: dict[str, np.ndarray]) -> dict[str, float]:
    """Figures of probabilities on test rows."""
    inside = p.clip(1e-6, 1 - 1e-6)
    order = np.array_split(np.argsort(p), 10)
    extreme, before = ((one < 0.001) | (one > 0.999) for one in (p, raw))
    means = [[p[column == label].mean() for label in np.unique(column)] for column in groups.values()]
    return {
        "log_loss": float(-np.mean(target * np.log(inside) + (1 - target) * np.log(1 - inside))),
        "brier": float(np.mean((p - target) ** 2)),
        "calibration": float(sum(len(part) * abs(p[part].mean() - target[part].mean()) for part in order) / len(p)),
        "auc": float(roc_auc_score(target, p)),
        "accuracy": float(np.mean((p > 0.5) == (target > 0.5))),
        "gap": float(max(max(one) - min(one) for one in means)),
        "moved_to_an_end": float(np.mean(extreme & ~before)),
    }
