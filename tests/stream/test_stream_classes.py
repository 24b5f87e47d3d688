"""Streams of class probabilities: after every batch the pooled gap of every class is within the tolerance."""

import json

import numpy as np
import pytest
import torch
from arrivals import adversaries, everything, probabilities, some
from hypothesis import given
from hypothesis import strategies as st
from pooled import ClassPool

from fairlayer import (
    ConditionalParity,
    EqualizedOdds,
    InputError,
    MeanParity,
    RatioParity,
    ResidualMean,
    Stream,
    project,
)
from fairlayer.errors import StoreError
from fairlayer.solution import Status

every_kind = pytest.mark.parametrize("kind", ["entropy", "squared"])


@some
@given(
    adversaries(), st.sampled_from([1e-4, 0.01, 0.05, 0.5]), st.integers(2, 6),
    st.sampled_from([np.float64, np.float32]), st.sampled_from(["entropy", "squared"]),
)  # fmt: skip
def test_the_pooled_gap_of_every_class_is_within_tolerance_after_every_batch(batches, tolerance, d, dtype, kind):
    """Those far away are near a corner, or in it where the distance allows that."""
    stream, pool = Stream([MeanParity(tolerance)], simplex=True, discrepancy=kind), ClassPool()
    for z, groups in batches:
        logits = np.clip(np.outer(z, np.linspace(1.0, -1.0, d)), -20.0, 20.0)
        p = np.where(
            np.abs(logits) < 20.0, np.exp(logits), np.where(logits > 0.0, 1.0, 1e-6 if kind == "entropy" else 0.0)
        )
        solution = stream.update((p / p.sum(axis=1, keepdims=True)).astype(dtype), groups)
        y = solution.value
        pool.add(y, groups)
        assert y.dtype == dtype
        assert y.min() >= {"entropy": np.finfo(dtype).tiny, "squared": 0.0}[kind]
        assert np.abs(y.sum(axis=1, dtype=np.float64) - 1.0).max() <= {"float32": 2e-6, "float64": 1e-14}[y.dtype.name]
        assert solution.status in (Status.OPTIMAL, Status.VACUOUS)
        assert pool.keeps(tolerance)
    np.testing.assert_allclose(max(np.abs(solution.gaps), default=0.0), float(pool.largest_gap()), atol=1e-12)


@every_kind
def test_an_adversary_who_sees_the_gaps(kind):
    """Each sample pulls the class in which its group is ahead further away."""
    rng, d = np.random.default_rng(5), 4
    stream, pool = Stream([MeanParity(0.01)], simplex=True, discrepancy=kind), ClassPool()
    for row in (rng.random((300, 1, 2)) < 0.4).astype(np.int64):
        gaps = [gap for name, gap in stream.gaps().items() if name.startswith("mean parity, 0:")] or [0.0] * d
        raw = np.full((1, d), 1e-5)
        raw[0, int((np.array(gaps) * (1 if row[0, 0] == 0 else -1)).argmax())] = 1.0 - (d - 1) * 1e-5
        pool.add(stream.update(raw, row).value, row)
        assert pool.keeps(0.01)


@every_kind
def test_in_the_long_run_it_costs_little_more_than_hindsight(kind):
    """Over several streams: which half of one is easier, hindsight alone knows."""
    spent = least = 0.0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        groups = {"g": (rng.random(4000) < 0.3).astype(int)}
        z = probabilities(rng, 4000, 3, groups["g"][:, None] * [1.0, 0.0, -0.5])
        stream, parts = Stream([MeanParity(0.02)], simplex=True, discrepancy=kind), []
        for start in range(0, 4000, 20):
            part = slice(start, start + 20)
            parts.append(stream.update(z[part], {"g": groups["g"][part]}).value)
        best = project(z, groups, [MeanParity(0.02)], simplex=True, discrepancy=kind).value

        def cost(y, z=z):
            own = y * np.log(y / z) if kind == "entropy" else (y - z) ** 2
            return own[2000:].sum()

        spent, least = spent + cost(np.concatenate(parts)), least + cost(best)
    assert spent < 1.1 * least


def test_past_data_teach_the_leader():
    change = {False: 0.0, True: 0.0}
    for seed in range(1, 5):
        rng = np.random.default_rng(seed)
        groups = {"g": (rng.random(2000) < 0.4).astype(int)}
        z = probabilities(rng, 2000, 3, groups["g"][:, None] * [1.0, 0.0, -0.5])
        past, now = slice(0, 1500), slice(1500, 2000)
        for warm in (None, (z[past], {"g": groups["g"][past]})):
            stream = Stream([MeanParity(0.02)], simplex=True, discrepancy="entropy", warm_start=warm)
            y = np.concatenate(
                [stream.update(z[i : i + 5], {"g": groups["g"][i : i + 5]}).value for i in range(1500, 2000, 5)]
            )
            change[warm is not None] += (y * np.log(y / z[now])).sum()
            assert stream.certificate().samples == 500
    assert change[True] < 0.98 * change[False]


def test_every_group_may_come_late_and_a_batch_may_keep_the_rows_too():
    rng = np.random.default_rng(2)
    stream, pool = Stream([MeanParity(0.02)], simplex=True, each_batch=True), ClassPool()
    for number in range(30):
        groups = {
            "city": np.array([f"city {number}", "city 0", "city 1"]),
            "late": np.array([number > 20, False, True]),
        }
        y = stream.update(probabilities(rng, 3, 3), groups).value
        pool.add(y, groups)
        assert pool.keeps(0.02)
        own = ClassPool()
        own.add(y, groups)
        assert own.keeps(0.02)
    assert len(stream.certificate().groups) == 3 * (30 + 2)


@pytest.mark.parametrize(
    ("constraint", "options", "message"),
    [
        (RatioParity(0.8), {}, "does not go with simplex"),
        (ConditionalParity(0.1, regions={"x": [(None, 0.5)]}), {}, "a stream takes MeanParity"),
        (EqualizedOdds(0.1), {}, "a stream takes MeanParity"),
        (MeanParity(0.1), {"discrepancy": "kl"}, "use 'entropy' or 'squared'"),
        (MeanParity(0.1), {"bounds": (0.0, 1.0)}, "neither bounds"),
        (MeanParity(0.1), {"policy": "primal-dual"}, "neither bounds nor another policy"),
        (MeanParity(0.1), {"warm_start": ([[0.5, 0.4]], {"g": [0]})}, "adds up to 0.9"),
    ],
)
def test_what_is_refused_at_the_start(constraint, options, message):
    with pytest.raises(InputError, match=message):
        Stream([constraint], simplex=True, **options)


def test_what_is_refused_of_a_batch():
    stream = Stream([MeanParity(0.1)], simplex=True, discrepancy="entropy")
    z, groups = np.array([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]]), {"g": [0, 1]}
    stream.update(z, groups)
    before = everything(stream)
    for bad, message in [
        (z[:, 0].copy(), r"shape \(n, d\)"),
        (z[:, :2] / z[:, :2].sum(axis=1, keepdims=True), "z has 2 columns, this stream 3"),
        (z * 1.1, "adds up to 1.1"),
        (np.array([[1.0, 0.0, 0.0], [0.2, 0.3, 0.5]]), "must be positive"),
        (np.array([[np.nan, 0.5, 0.5], [0.2, 0.3, 0.5]]), r"z\[0, 0\] is nan"),
    ]:
        with pytest.raises(InputError, match=message):
            stream.update(bad, groups)
    assert everything(stream) == before


@pytest.mark.parametrize("kind", ["squared", "kl"])
def test_independent_columns_are_kept_each_by_itself(kind):
    """As if every column had a stream of its own: each is kept, and the outputs are those of such streams."""
    rng = np.random.default_rng(6)
    both, pool = Stream([MeanParity(0.05)], discrepancy=kind), ClassPool()
    alone = [Stream([MeanParity(0.05)], discrepancy=kind) for _ in range(2)]
    for _ in range(40):
        groups = rng.integers(0, 2, (int(rng.integers(1, 6)), 2))
        z = np.exp(rng.normal(size=(len(groups), 2)) + groups[:, :1])
        solution = both.update(z, groups)
        pool.add(solution.value, groups)
        assert pool.keeps(0.05)
        each = np.stack([one.update(z[:, j].copy(), groups).value for j, one in enumerate(alone)], axis=1)
        np.testing.assert_allclose(solution.value, each, atol=1e-6)
    assert set(solution.rows) == {f"{row}, output {j}" for j, one in enumerate(alone) for row in one.gaps()}


def test_groups_and_cells_are_named_by_class_and_tensors_stay_tensors():
    rng = np.random.default_rng(4)
    stream = Stream([MeanParity(0.05)], simplex=True)
    z = torch.tensor(probabilities(rng, 8, 3), dtype=torch.float32)
    value = stream.update(z, {"g": rng.integers(0, 2, 8)}).value
    assert (type(value), value.shape, value.dtype) == (torch.Tensor, (8, 3), torch.float32)
    groups = stream.certificate().groups
    assert {group.group for group in groups} >= {"mean parity, g: 0, class 0", "mean parity, g: 1, class 2"}
    assert sum(group.mean for group in groups if ": 0," in group.group) == pytest.approx(1.0)
    assert '[0, "class 2"]' in json.loads(next(stream.entries()).payload)["cells"]
    before = everything(stream)
    assert stream.update(np.zeros((0, 3)), {"g": []}).value.shape == (0, 3)
    assert everything(stream) == before


def test_targets_of_several_outputs():
    rng = np.random.default_rng(7)
    stream = Stream([ResidualMean(0.1)])
    for _ in range(10):
        z, groups = rng.normal(size=(6, 2)), {"g": rng.integers(0, 2, 6)}
        solution = stream.update(z, groups, targets=rng.normal(size=(6, 2)))
    assert np.abs(solution.gaps).max() <= 0.1
    with pytest.raises(InputError, match="cannot come later"):
        stream.update(z, groups, ids=range(6))
    odds = Stream([EqualizedOdds(0.1)])
    with pytest.raises(InputError, match=r"one target per sample"):
        odds.update(z, groups, targets=rng.integers(0, 2, (6, 2)))
    odds.update(z, groups, targets=rng.integers(0, 2, 6))
    with pytest.raises(InputError, match="one output per sample"):
        Stream([MeanParity(0.1)], policy="primal-dual").update(z, groups)


def test_classes_have_names(tmp_path):
    rng = np.random.default_rng(0)
    asked = {"simplex": True, "store": tmp_path / "s.db"}
    batch = probabilities(rng, 20, 3), np.arange(20) % 2
    named = Stream([MeanParity(0.05)], classes=["a", "b", "c"], **asked)
    assert any(row.endswith("class b") for row in named.update(*batch).rows)
    assert "class c" in str(named.certificate())
    named.close()
    again = Stream([MeanParity(0.05)], **asked)  # by whoever does not know the names
    again.update(*batch)
    assert "class c" in str(again.certificate())
    assert again.verify()
    again.close()
    with pytest.raises(StoreError, match="classes"):
        Stream([MeanParity(0.05)], classes=["a", "c", "b"], **asked)
    nameless = asked | {"name": "nameless"}  # goes on without names, whoever brings some later
    Stream([MeanParity(0.05)], **nameless).update(*batch)
    later = Stream([MeanParity(0.05)], classes=["a", "b", "c"], **nameless)
    later.update(*batch)
    assert "class 2" in str(later.certificate())
    assert later.verify()
    with pytest.raises(InputError, match="names 2"):
        Stream([MeanParity(0.05)], simplex=True, classes=["a", "b"]).update(*batch)
    with pytest.raises(InputError, match="simplex=True"):
        Stream([MeanParity(0.05)], classes=["a", "b"])
