"""Four classes: a network whose class probabilities are fair, trained through the layer.

Which of four bands a customer's credit limit falls into, predicted from how they pay. Limits differ between the sexes
and between the married and others; mean probabilities are to differ by at most 0.02 in each of the four classes, for
both attributes. The network ends in softmax, the layer follows it, and the loss is the logarithmic one.

    python examples/four_classes.py    # on the credit-card data, where FAIRLAYER_DATA names a folder that has them

Without the data, a made-up table of the same kind takes their place.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

from fairlayer import FairLayer, FairModel, MeanParity, audit, freeze

sys.path.append(str(Path(__file__).parents[1]))  # a checkout has the loader of these data
from experiments import datasets

TOLERANCE, CLASSES = 0.02, ("low", "lower middle", "upper middle", "high")


def load(most: int = 8000) -> tuple[torch.Tensor, torch.Tensor, dict[str, np.ndarray], str]:
    """Inputs, the band of each customer, protected attributes, and where they come from."""
    rng = np.random.default_rng(0)
    if any(one.name == "credit_card" and one.present for one in datasets.available()):
        data = datasets.load("credit_card")
        data = data.rows(rng.permutation(len(data))[:most])
        limit = data.features["LIMIT_BAL"].to_numpy(dtype=float)
        kept = [name for name in data.features if name not in ("LIMIT_BAL", "SEX", "MARRIAGE")]
        x = data.features[kept].to_numpy(dtype=float)
        amounts = [j for j, name in enumerate(kept) if "AMT" in name]
        x[:, amounts] = np.sign(x[:, amounts]) * np.log1p(np.abs(x[:, amounts]))
        groups = {name: np.asarray(data.protected[name]) for name in data.protected}
        source = "credit-card data"
    else:
        groups = {"sex": rng.choice(["female", "male"], 4000), "marriage": rng.choice(["married", "single"], 4000)}
        x = (
            rng.normal(size=(4000, 8))
            + 0.5 * (groups["sex"] == "female")[:, None]
            - 0.4 * (groups["marriage"] == "single")[:, None]
        )
        limit, source = x @ rng.normal(size=8) + rng.normal(size=4000), "made-up data"
    band = np.searchsorted(np.quantile(limit, [0.25, 0.5, 0.75]), limit)
    x = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-9)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(band), groups, source


def train(x: torch.Tensor, band: torch.Tensor, groups: dict[str, np.ndarray], layer: nn.Module | None) -> FairModel:
    """A network with a softmax at its end, and the layer after that."""
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Linear(32, 4), nn.Softmax(dim=1))
    model = FairModel(backbone, layer)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(8):
        for rows in torch.randperm(len(x)).split(500):
            own = {name: labels[rows] for name, labels in groups.items()}
            loss = nn.functional.nll_loss(model(x[rows], groups=own).log(), band[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


def main() -> None:
    x, band, groups, source = load()
    cut = len(x) * 3 // 4
    learn, test = slice(0, cut), slice(cut, None)
    part = {name: labels[learn] for name, labels in groups.items()}
    own = {name: labels[test] for name, labels in groups.items()}
    print(f"{source}: {cut} customers to learn from, {len(x) - cut} to judge by")
    layer = FairLayer([MeanParity(TOLERANCE)], discrepancy="entropy", simplex=True)
    for name, model in (
        ("without the layer", train(x[learn], band[learn], part, None)),
        ("through the layer", train(x[learn], band[learn], part, layer)),
    ):
        with torch.no_grad():
            p = model(x[test], groups=own).numpy()
        truth = np.array(CLASSES)[band[test].numpy()]
        result = audit(p, own, [MeanParity(TOLERANCE)], targets=truth, classes=CLASSES)
        right = (p.argmax(axis=1) == band[test].numpy()).mean()
        loss = -np.log(p[np.arange(len(p)), band[test].numpy()]).mean()
        worst = result.worst
        print(f"{name}: accuracy {right:.3f}, log loss {loss:.3f}; largest gap {abs(worst.gap):.3f} ({worst.name})")
    assert result.satisfied
    frozen = freeze(model, x[learn], part, confidence=None)
    alone = frozen.predict(x[test][:1], {name: labels[:1] for name, labels in own.items()})
    print("one customer by itself:", dict(zip(CLASSES, alone[0].tolist(), strict=True)))


if __name__ == "__main__":
    main()
