"""Frozen class probabilities: a shift per group and class, a function of one sample, a statement about every class."""

import numpy as np
import pytest
import torch

from fairlayer import ConditionalParity, FairLayer, FairModel, InputError, MeanParity, SoftGroup, freeze, project


def make(seed, n=40, d=4, sizes=(2, 3), spread=1.5):
    """Probabilities that differ between groups, the groups, a feature and a class of each sample."""
    rng = np.random.default_rng(seed)
    groups = np.stack([rng.integers(0, size, n) for size in sizes], axis=1)
    logits = spread * rng.normal(size=(n, d)) + groups @ rng.normal(size=(len(sizes), d))
    z = np.exp(logits - logits.max(axis=1, keepdims=True))
    return z / z.sum(axis=1, keepdims=True), groups, rng.uniform(size=n), rng.integers(0, 2, n)


every_kind = pytest.mark.parametrize("kind", ["entropy", "squared"])


def population(seed, n):
    """Probabilities of three classes that differ between two groups."""
    rng = np.random.default_rng(seed)
    groups = (rng.random(n) < 0.4).astype(int)
    logits = rng.normal(size=(n, 3)) + groups[:, None] * [0.8, 0.0, -0.5]
    weights = np.exp(logits)
    return weights / weights.sum(axis=1, keepdims=True), groups


@every_kind
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_on_its_own_sample_it_is_the_projection(kind, dtype):
    z, groups, feature, _ = make(1, n=60)
    constraints = [MeanParity(0.02), ConditionalParity(0.05, over=0, regions={"x": [(None, 0.5)]})]
    layer, raw = FairLayer(constraints, discrepancy=kind, simplex=True), torch.tensor(z, dtype=dtype)
    frozen = freeze(layer, raw, groups, confidence=None, features={"x": feature})
    exact = project(raw, groups, constraints, discrepancy=kind, simplex=True, features={"x": feature}).value
    y = frozen.predict(raw, groups, {"x": feature})
    assert y.dtype == dtype
    torch.testing.assert_close(y, exact, atol=1e-8 if dtype == torch.float64 else 1e-6, rtol=0.0)
    alone = frozen.predict(z[7:8], groups[7:8], {"x": feature[7:8]})  # of one sample, whoever else is there
    assert alone.shape == (1, 4)
    np.testing.assert_allclose(alone, y[7:8], atol=1e-6)
    assert alone.sum() == pytest.approx(1.0)


@every_kind
def test_the_statement_is_about_every_class(kind):
    z, groups = population(0, 4000)
    layer = FairLayer([MeanParity(0.02)], discrepancy=kind, simplex=True)
    certificate = freeze(layer, z, {"g": groups}).certificate
    assert [row.row for row in certificate.rows] == [f"mean parity, g: 0 - 1, class {j}" for j in range(3)]
    assert all(np.isfinite(row.bound) and row.bound > 0.02 for row in certificate.rows)
    assert certificate.excess > 0
    alone = freeze(FairLayer([MeanParity(0.02)], (0.0, 1.0)), z[:, 0], {"g": groups}).certificate
    assert certificate.rows[0].bound > alone.rows[0].bound  # three classes are stated together
    held = 0
    for seed in range(1, 6):
        frozen = freeze(layer, *population(seed, 3000))
        y, members = population(seed + 100, 60_000)
        served = frozen.predict(y, members)
        gaps = np.abs(served[members == 0].mean(axis=0) - served[members == 1].mean(axis=0))
        held += all(gap <= row.bound for gap, row in zip(gaps, frozen.certificate.rows, strict=True))
    assert held == 5


def test_tightened_so_that_the_tolerances_hold():
    z, groups = population(3, 6000)
    layer = FairLayer([MeanParity(0.12)], discrepancy="entropy", simplex=True)
    frozen = freeze(layer, z, groups, tighten=True)
    assert frozen.certificate.satisfied
    assert frozen.certificate.aimed_at < 1.0
    with pytest.raises(InputError, match="too small for the tolerances"):
        freeze(layer, z[:80], groups[:80], tighten=True)


@every_kind
def test_exports_to_onnx(kind, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    backbone = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Softmax(dim=1))
    model = FairModel(backbone, FairLayer([MeanParity(0.01)], discrepancy=kind, simplex=True))
    x, groups = torch.randn(200, 3), {"g": torch.randint(0, 2, (200,)).numpy()}
    frozen = freeze(model, x + torch.tensor(groups["g"])[:, None], groups, confidence=None)
    path = tmp_path / "classes.onnx"
    frozen.to_onnx(path, x[:2])
    session = onnxruntime.InferenceSession(path)
    codes = frozen.encode(groups)
    for n in (1, 5):
        (y,) = session.run(None, {"x": x[:n].numpy(), "groups": codes[:n].numpy()})
        np.testing.assert_allclose(y, frozen(x[:n], codes[:n]).detach().numpy(), atol=1e-6)
        np.testing.assert_allclose(y.sum(axis=1), 1.0, atol=1e-6)


def test_soft_groups_and_refusals():
    z, groups = population(0, 300)
    layer = FairLayer([MeanParity(0.02)], discrepancy="entropy", simplex=True)
    share = np.stack([0.9 - 0.8 * groups, 0.1 + 0.8 * groups], axis=1)
    soft = {"g": SoftGroup(share, (0, 1))}
    frozen = freeze(layer, z, soft, confidence=None)
    exact = project(z, soft, [MeanParity(0.02)], discrepancy="entropy", simplex=True).value
    np.testing.assert_allclose(frozen.predict(z, soft), exact, atol=1e-8)
    with pytest.raises(InputError, match="one output per sample"):
        freeze(layer, z[:, 0], groups)
    with pytest.raises(InputError, match="one output per sample"):
        freeze(FairLayer([MeanParity(0.02)], (0.0, 1.0)), z, groups)
    with pytest.raises(InputError, match="proxies are for one output"):
        freeze(layer, z, {"g": groups}, proxies=soft)
    hard = freeze(layer, z, {"g": groups}, confidence=None)
    with pytest.raises(InputError, match="3 probabilities per sample"):
        hard.predict(z[:, :2], {"g": groups})
    with pytest.raises(InputError, match="did not have"):
        hard.predict(z[:1], {"g": [7]})
