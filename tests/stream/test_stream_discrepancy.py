"""Streams of probabilities and amounts: the same promise, and outputs that stay inside their interval."""

import numpy as np
import pytest
import torch
from pooled import Pool

from fairlayer import FairLayer, InputError, MeanParity, ResidualMean, Stream
from fairlayer.errors import StoreError
from fairlayer.solution import Status

KINDS = ("entropy", "kl")


def made(kind, rng, groups, arrival, dtype):
    """Outputs as a discrepancy takes them, by someone who may mean ill."""
    logit = rng.normal(0.0, 1.0, len(groups)) + groups[:, 0]
    if arrival == "far out":
        logit = logit + rng.choice([-12.0, 12.0])
    elif arrival == "two camps":
        logit = np.where(groups[:, 0] == 0, 9.0, -9.0)
    z = np.exp(logit) if kind == "kl" else 1.0 / (1.0 + np.exp(-logit))
    return np.clip(z, 1e-7, np.inf if kind == "kl" else 1 - 1e-7).astype(dtype)


@pytest.mark.parametrize(("kind", "dtype"), [("entropy", np.float32), ("entropy", np.float64), ("kl", np.float64)])
@pytest.mark.parametrize("each_batch", [False, True])
def test_pooled_gaps_are_within_tolerance_after_every_batch(kind, dtype, each_batch):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        tolerance, attributes = float(rng.choice([0.01, 0.05, 0.2])), int(rng.integers(1, 4))
        stream, pool = Stream([MeanParity(tolerance)], discrepancy=kind, each_batch=each_batch), Pool()
        for _ in range(25):
            groups = rng.integers(0, 3, (int(rng.integers(1, 12)), attributes))
            z = made(kind, rng, groups, rng.choice(["mixed", "mixed", "far out", "two camps"]), dtype)
            solution = stream.update(z, groups)
            pool.add(solution.value, groups)
            assert solution.value.dtype == dtype
            assert (solution.value > 0).all()
            assert kind == "kl" or (solution.value < 1).all()
            assert solution.status in (Status.OPTIMAL, Status.VACUOUS)
            assert pool.keeps(tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_in_the_long_run_it_costs_little_more_than_hindsight(kind):
    """With the leader the stream is near the projection of the whole, in the discrepancy's own measure."""
    rng = np.random.default_rng(0)
    groups = {"g": (rng.random(6000) < 0.3).astype(int)}
    logit = rng.normal(-0.5, 1.0, 6000) + groups["g"]
    z = np.exp(0.5 * logit) if kind == "kl" else 1.0 / (1.0 + np.exp(-logit))
    stream, parts = Stream([MeanParity(0.02)], discrepancy=kind), []
    for start in range(0, 6000, 20):
        part = slice(start, start + 20)
        parts.append(stream.update(z[part], {"g": groups["g"][part]}).value)
    layer = FairLayer([MeanParity(0.02)], discrepancy=kind)
    best = layer(torch.tensor(z), groups).numpy()

    def cost(y):
        last = slice(3000, 6000)
        own = y * np.log(y / z) - y + z if kind == "kl" else y * np.log(y / z) + (1 - y) * np.log((1 - y) / (1 - z))
        return own[last].sum()

    assert cost(np.concatenate(parts)) < 1.15 * cost(best)


def test_settings_are_kept_with_the_store(tmp_path):
    store = tmp_path / "decisions.db"
    with pytest.raises(InputError, match=r"z\[0\] is 1.0.*strictly between 0 and 1"):
        Stream([MeanParity(0.1)], store=store, discrepancy="entropy").update([1.0], {"g": [0]})
    first = Stream([MeanParity(0.1)], store=store, discrepancy="entropy")
    first.update(np.array([0.2, 0.9, 0.4]), {"g": [0, 1, 1]})
    first.close()
    again = Stream.open(store)
    assert again.settings.discrepancy == "entropy"
    assert again.settings.describe()["discrepancy"] == "entropy"
    again.update(np.array([0.99]), {"g": [1]})
    assert again.verify()
    again.close()
    with pytest.raises(StoreError, match="discrepancy"):
        Stream([MeanParity(0.1)], store=store)
    assert "discrepancy" not in Stream([MeanParity(0.1)]).configuration  # which is the default


def test_targets_too():
    stream = Stream([ResidualMean(0.05)], discrepancy="entropy")
    rng = np.random.default_rng(0)
    for _ in range(20):
        z, groups = rng.uniform(0.1, 0.9, 6), {"g": rng.integers(0, 2, 6)}
        solution = stream.update(z, groups, targets=rng.uniform(0.3, 0.7, 6))
    assert np.abs(solution.gaps).max() <= 0.05 + 1e-12


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"discrepancy": "logits"}, "Pass probabilities"),
        ({"discrepancy": "cubed"}, "must be one of"),
        ({"discrepancy": "entropy", "policy": "primal-dual"}, "needs policy='ledger'"),
        ({"discrepancy": "entropy", "bounds": (1.0, 2.0)}, "cannot be met"),
        ({"discrepancy": "entropy", "warm_start": ([0.5, 1.0], {"g": [0, 1]})}, r"z\[1\] is 1.0"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        Stream([MeanParity(0.1)], **options)
