"""The examples run, learn, and are fair."""

import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def examples_on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield
    for name in ("plain_loop", "lightning_module"):
        sys.modules.pop(name, None)


def test_plain_loop(capsys):
    import plain_loop

    model, losses = plain_loop.train(epochs=4)
    assert losses[-1] < 0.9 * losses[0]
    x, _, groups = plain_loop.make_data(500, seed=2)
    with torch.no_grad():
        y, raw = (scores.double() for scores in (model(x, groups=groups), model.raw(x)))
    for attribute, labels in ((0, 2), (1, 3)):
        means = [float(y[groups[:, attribute] == label].mean()) for label in range(labels)]
        assert max(means) - min(means) <= plain_loop.TOLERANCE + 1e-9
    assert abs(float(raw[groups[:, 0] == 0].mean() - raw[groups[:, 0] == 1].mean())) > 2 * plain_loop.TOLERANCE
    plain_loop.main()
    assert "Every constraint holds exactly" in capsys.readouterr().out


def test_lightning_module():
    pytest.importorskip("lightning", reason="lightning is not installed: pip install lightning")
    import lightning_module

    torch.manual_seed(0)
    _, first = lightning_module.train(epochs=1)
    module, logged = lightning_module.train(epochs=3)
    assert logged["validation_loss"] < 0.97 * first["validation_loss"]
    assert logged["validation_gap"] <= lightning_module.TOLERANCE + 1e-7
    x, _, groups = lightning_module.make_data(200, seed=3)
    y = module(x, groups).detach().double()
    assert abs(float(y[groups[:, 0] == 0].mean() - y[groups[:, 0] == 1].mean())) <= lightning_module.TOLERANCE + 1e-9
