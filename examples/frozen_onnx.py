"""A fair model as an ONNX file: one sample at a time, without Python, with a statement on the gaps. Needs `export`.

A projected output depends on its batch. `freeze` solves the projection once, on a calibration sample, and keeps one
shift per group: what is served is a function of one sample, and what is promised is statistical.

    python examples/frozen_onnx.py
"""

import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch import nn

from fairlayer import FairLayer, FairModel, MeanParity, freeze

TOLERANCE = 0.05


def population(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Inputs, what is to be predicted, and a protected attribute that the inputs give away."""
    random = torch.Generator().manual_seed(seed)
    rural = torch.rand(n, generator=random) < 0.35
    x = torch.randn(n, 6, generator=random) - 0.3 * rural[:, None]
    target = (x.sum(dim=1) + torch.randn(n, generator=random) > 0.0).float()
    return x, target, np.where(rural.numpy(), "rural", "urban")


def train(backbone: nn.Module, x: torch.Tensor, target: torch.Tensor) -> None:
    """A hundred steps, without any thought of fairness."""
    optimizer = torch.optim.Adam(backbone.parameters(), lr=0.02)
    for _ in range(100):
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy(backbone(x).squeeze(1), target).backward()
        optimizer.step()


def main() -> None:
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())
    train(backbone, *population(2_000, seed=0)[:2])
    model = FairModel(backbone, FairLayer([MeanParity(TOLERANCE)], bounds=(0.0, 1.0)))
    x, _, place = population(40_000, seed=1)  # the calibration sample: had no part in training
    frozen = freeze(model, x, {"place": place}, confidence=0.95, tighten=True)
    print(frozen.certificate)

    new, _, new_place = population(10_000, seed=2)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "fair.onnx"
        frozen.to_onnx(file, new[:2])
        session = onnxruntime.InferenceSession(str(file))
        served = session.run(None, {"x": new.numpy(), "groups": frozen.encode({"place": new_place}).numpy()})[0].ravel()
    raw = model.raw(new).detach().numpy()
    for name, scores in (("raw", raw), ("served by ONNX", served)):
        gap = abs(scores[new_place == "rural"].mean() - scores[new_place == "urban"].mean())
        print(f"{name}: means of {len(scores)} new samples {gap:.3f} apart")
    assert gap <= TOLERANCE
    assert np.allclose(served, frozen.predict(new, {"place": new_place}).numpy().ravel(), atol=1e-6)


if __name__ == "__main__":
    main()
