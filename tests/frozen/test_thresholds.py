"""Frozen thresholds decide one sample at a time, and the population's rates keep what the certificate says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fairlayer import FairLayer, FairModel, InputError, RateParity, SoftGroup, freeze, project


def people(n, seed=0):
    rng = np.random.default_rng(seed)
    groups = {"sex": rng.choice(["f", "m"], n), "race": rng.choice(["a", "b"], n, p=[0.7, 0.3])}
    z = rng.normal(0.4 + 0.15 * (groups["sex"] == "m") - 0.1 * (groups["race"] == "b"), 0.2)
    targets = (rng.random(n) < z.clip(0.05, 0.95)).astype(int)
    return np.clip(z, 0, 1), groups, targets


def gap(yes, column):
    each = [yes[column == label].mean() for label in np.unique(column)]
    return max(each) - min(each)


def test_without_a_statement_they_decide_the_sample_as_the_projection_does():
    z, groups, _ = people(3000)
    layer = FairLayer([RateParity(0.02)], bounds=(0, 1))
    frozen = freeze(layer, z, groups, confidence=None)
    assert frozen.certificate is None
    expected = project(z, groups, RateParity(0.02), (0, 1))
    served = frozen.predict(z, groups)
    assert ((served >= 0.5) == (expected.value >= 0.5)).mean() > 0.999  # scores on a bound are tied
    one = frozen.predict(z[:1], {name: column[:1] for name, column in groups.items()})
    assert one[0] == served[0]
    moved = served != z
    assert 0 < moved.mean() < 0.3
    assert set(served[moved].tolist()) <= {0.5, np.nextafter(0.5, 0)}


@pytest.mark.parametrize("constraint", [RateParity(0.04, over="sex"), RateParity(ratio=0.85, over="sex")])
def test_tightened_thresholds_keep_fresh_samples(constraint):
    z, groups, _ = people(40_000)
    frozen = freeze(FairLayer([constraint]), z, groups, tighten=True)
    assert frozen.certificate.satisfied
    assert 0.0 <= frozen.certificate.aimed_at < 1.0
    fresh, fresh_groups, _ = people(40_000, seed=9)
    yes = frozen.predict(fresh, fresh_groups) >= 0.5
    rates = [yes[fresh_groups["sex"] == label].mean() for label in "fm"]
    if constraint.ratio is None:
        assert max(rates) - min(rates) <= 0.04
    else:
        assert min(rates) >= 0.85 * max(rates)
    assert gap(fresh >= 0.5, fresh_groups["sex"]) > 0.2


def test_the_certificate_covers_the_population():
    """With confidence 0.8 the stated bounds are wrong in at most a fifth of all samples."""
    layer, wrong = FairLayer([RateParity(0.05, over="sex")]), 0
    big, big_groups, _ = people(120_000, seed=77)
    for seed in range(40):
        z, groups, _ = people(600, seed)
        frozen = freeze(layer, z, {"sex": groups["sex"]}, confidence=0.8, seed=seed)
        true = gap(frozen.predict(big, {"sex": big_groups["sex"]}) >= 0.5, big_groups["sex"])
        wrong += true > frozen.certificate.gap
    assert wrong / 40 <= 0.2


def test_equal_opportunity_is_kept_among_those_with_the_target():
    z, groups, targets = people(20_000)
    frozen = freeze(FairLayer([RateParity(0.03, given=1, over="sex")]), z, groups, targets=targets, confidence=None)
    fresh, fresh_groups, fresh_targets = people(60_000, seed=3)
    yes, good = frozen.predict(fresh, fresh_groups) >= 0.5, fresh_targets == 1
    assert gap(yes[good], fresh_groups["sex"][good]) < 0.05 < gap((fresh >= 0.5)[good], fresh_groups["sex"][good])
    with pytest.raises(InputError, match="targets is missing"):
        freeze(FairLayer([RateParity(0.03, given=1)]), z, groups)
    with pytest.raises(InputError, match="not within several"):
        freeze(FairLayer([RateParity(0.03, given="each")]), z, groups, targets=targets)


def test_what_is_refused():
    z, groups, _ = people(200)
    layer = FairLayer([RateParity(0.001)])
    with pytest.raises(InputError, match=r"sample of 200 is too small"):
        freeze(layer, z, groups, tighten=True)
    with pytest.raises(InputError, match="No confidence can be stated"):
        freeze(layer, z, groups, weights=np.ones(200))
    with pytest.raises(InputError, match="confidence must lie between"):
        freeze(layer, z, groups, confidence=2.0)
    with pytest.raises(InputError, match="holds probabilities"):
        freeze(layer, z, SoftGroup(np.full((200, 2), 0.5)))
    frozen = freeze(layer, z, groups, confidence=None)
    with pytest.raises(InputError, match="which the calibration sample did not have"):
        frozen.predict(z[:1], {"sex": ["other"], "race": ["a"]})
    left = frozen.predict(z[:1], {"sex": ["other"], "race": ["a"]}, unseen="unshifted")
    assert left[0] == z[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("threshold", [0.1, 0.3, 0.5, 0.6, 0.7, 0.9])
def test_scores_are_decided_alike_by_projection_module_and_onnx(tmp_path, threshold, dtype):
    """Of float32, 0.7 is a little less than the float64 of that name, and 0.3 a little more."""
    rng = np.random.default_rng(0)
    z, sex = rng.integers(1, 10, 900).astype(dtype) / dtype(10), np.arange(900) % 2
    tolerance = 0.5
    if threshold == 0.5:  # the others have nothing to turn
        z, tolerance = np.clip(z + dtype(0.2) * sex.astype(dtype), dtype(0), dtype(1)), 0.05
    frozen = freeze(FairLayer([RateParity(tolerance, threshold=threshold)]), z, sex, confidence=None)
    expected = frozen.predict(z, sex)
    assert expected.dtype == dtype
    assert np.array_equal(expected, z) == (threshold != 0.5)
    if (threshold, dtype) not in ((0.3, np.float32), (0.7, np.float32), (0.5, np.float64)):
        return  # three files are enough
    onnxruntime = pytest.importorskip("onnxruntime")
    frozen.to_onnx(tmp_path / "decide.onnx", torch.from_numpy(z[:2]))
    session = onnxruntime.InferenceSession(tmp_path / "decide.onnx")
    (served,) = session.run(None, {"x": z, "groups": frozen.encode(sex).numpy()})
    np.testing.assert_array_equal(served, expected)


class Halved(torch.nn.Module):
    """A backbone that outputs cannot be sent through twice without a difference."""

    def forward(self, x):
        return x / 2


def test_a_model_is_frozen_with_its_backbone():
    torch.manual_seed(0)
    x, sex = torch.randn(800, 3), np.random.default_rng(0).integers(0, 2, 800)
    network = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Sigmoid(), torch.nn.Flatten(0))
    frozen = freeze(FairModel(network, FairLayer([RateParity(0.1)])), x, sex)
    y = frozen(x, frozen.encode(sex))
    assert y.shape == (800,)
    assert gap(y.detach().numpy() >= 0.5, sex) <= frozen.certificate.gap
    z, groups, _ = people(2000)
    plain = freeze(FairLayer([RateParity(0.1)]), z, groups)
    doubled = freeze(FairModel(Halved(), FairLayer([RateParity(0.1)])), torch.from_numpy(2 * z), groups)
    assert doubled.certificate == plain.certificate
