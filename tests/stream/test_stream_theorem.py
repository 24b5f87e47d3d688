"""The ledger's promise: for mean parity the pooled gap is within the tolerance after every batch, whatever arrives."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pooled import Pool

from fairlayer import MeanParity, ResidualMean, Stream
from fairlayer.solution import Status


@st.composite
def adversaries(draw):
    """A stream by someone who means ill: one-sided, drifting, with groups that come late or alone, in any sizes."""
    attributes = draw(st.integers(1, 4))
    levels = [draw(st.integers(2, 4)) for _ in range(attributes)]
    box = draw(st.sampled_from([None, (0.0, 1.0), (-2.0, 0.5), (None, 3.0)]))
    dtype = draw(st.sampled_from([np.float64, np.float32]))
    tolerance = draw(st.one_of(st.floats(1e-4, 0.5), st.sampled_from([1e-4, 0.05, 0.5])))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    batches = []
    for number in range(draw(st.integers(1, 14))):
        n = draw(st.one_of(st.just(1), st.integers(1, 20)))
        arrival = draw(st.sampled_from(["mixed", "one group", "two camps", "alternating", "constant", "far away"]))
        groups = np.stack([rng.integers(0, count, n) for count in levels], axis=1)
        if arrival == "one group":  # all alike, perhaps never seen before
            groups[:] = [draw(st.integers(0, count)) for count in levels]
        z = rng.normal(0.0, 1.0, n)
        if arrival == "two camps":
            z = np.where(groups[:, 0] == 0, 1.0, -1.0)
        elif arrival == "alternating":
            z = z + (1.0 if number % 2 else -1.0) * groups.sum(axis=1)
        elif arrival == "constant":
            z[:] = draw(st.sampled_from([0.0, 1.0, -1.0, 0.3]))
        elif arrival == "far away":
            z = z + draw(st.sampled_from([100.0, -100.0, 1e4]))
            if dtype is np.float32:  # which knows numbers around 10,000 to the thousandth
                tolerance = max(tolerance, 0.01)
        batches.append((z.astype(dtype), groups))
    return batches, tolerance, box


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(adversaries())
def test_pooled_gaps_are_within_tolerance_after_every_batch(adversary):
    batches, tolerance, box = adversary
    stream = Stream([MeanParity(tolerance)], bounds=box)
    low, high = (-np.inf, np.inf) if box is None else (-np.inf if box[0] is None else box[0], box[1])
    pool = Pool()
    for z, groups in batches:
        solution = stream.update(z, groups)
        pool.add(solution.value, groups)
        assert solution.value.dtype == z.dtype
        assert ((solution.value >= low) & (solution.value <= high)).all()
        assert solution.status in (Status.OPTIMAL, Status.VACUOUS)
        assert pool.keeps(tolerance)
        np.testing.assert_allclose(max(np.abs(solution.gaps), default=0.0), float(pool.largest_gap()), atol=1e-12)


def test_a_tolerance_finer_than_the_dtype_is_kept_or_said_to_be_rounded():
    """Around 10,000 float32 knows numbers to the thousandth: a ten-thousandth cannot always be promised."""
    batches = [
        ([-1.4988183, -4.6837287, -4.118956, -2.5741053, -6.0105124, -3.4843876], "002 111 221 020 301 102"),
        ([4.69911, 0.27280957, -1.1292726], "311 100 001"),
        ([-1.0, -1.0, -1.0], "110 121 201"),
        ([0.0], "201"),
        (
            [
                *(9999.238, 9999.885, 10000.878, 10001.765, 9998.285, 10000.821, 9999.391),
                *(10001.236, 9998.827, 10000.088, 10001.392, 9998.233, 10001.41),
            ],
            "120 021 310 021 110 110 312 121 200 302 222 102 002",
        ),
        ([-0.19254355, -1.546691, 0.14165041, 0.11790203, 0.07583082, 0.26168197], "211 301 210 321 001 321"),
        *(([value], labels) for value, labels in [(-2.401488, "210"), (-0.53014493, "000"), (1.3163304, "002")]),
        ([1.1144933], "110"),
    ]
    stream, pool = Stream([MeanParity(1e-4)]), Pool()
    for outputs, labels in batches:
        groups = np.array([[int(label) for label in row] for row in labels.split()])
        solution = stream.update(np.array(outputs, dtype=np.float32), groups)
        pool.add(solution.value, groups)
        assert solution.status in (Status.OPTIMAL, Status.VACUOUS, Status.ROUNDED)
        assert solution.status is Status.ROUNDED or pool.keeps(1e-4)


@pytest.mark.parametrize("policy", ["one group first", "sorted", "worst case"])
@pytest.mark.parametrize("box", [None, (0.0, 1.0)])
def test_long_one_sided_streams(policy, box):
    rng = np.random.default_rng(5)
    n, tolerance = 1500, 0.01
    groups = (rng.random((n, 3)) < 0.4).astype(np.int64)
    z = rng.normal(0.5, 0.3, n) + 0.5 * groups[:, 0]
    if policy == "one group first":
        order = np.argsort(groups[:, 0], kind="stable")
        z, groups = z[order], groups[order]
    elif policy == "sorted":
        order = np.argsort(z)
        z, groups = z[order], groups[order]
    stream, pool = Stream([MeanParity(tolerance)], bounds=box), Pool()
    for i in range(n):
        raw = z[i : i + 1]
        if policy == "worst case":  # each raw output pulls its group further from the others
            gap = next(iter(stream.gaps().values()), 0.0)
            raw = np.array([5.0 if (gap >= 0) == (groups[i, 0] == 0) else -5.0])
        pool.add(stream.update(raw, groups[i : i + 1]).value, groups[i : i + 1])
        assert pool.keeps(tolerance)


def test_groups_may_appear_at_any_time():
    stream, pool = Stream([MeanParity(0.02)]), Pool()
    for number in range(40):
        groups = {"city": np.array([f"city {number}", "city 0"]), "late": np.array([number > 20, False])}
        pool.add(stream.update(np.array([float(number), -1.0]), groups).value, groups)
        assert pool.keeps(0.02)
    assert len(stream.certificate().groups) == 40 + 2


def test_a_tolerance_per_constraint_and_intersections():
    rng = np.random.default_rng(2)
    stream = Stream([MeanParity(0.01, over="a"), MeanParity(0.2, over="b"), MeanParity(0.3, over=("a", "b"))])
    pools = [Pool(), Pool(), Pool()]
    for _ in range(200):
        n = int(rng.integers(1, 6))
        a, b = rng.integers(0, 2, n), rng.integers(0, 3, n)
        value = stream.update(rng.normal(a - b, 1.0), {"a": a, "b": b}).value
        for pool, column in zip(pools, (a, b, 3 * a + b), strict=True):
            pool.add(value, {"one": column})
        # An intersection is one more attribute, with many values: the theorem covers it.
        assert all(pool.keeps(tolerance) for pool, tolerance in zip(pools, (0.01, 0.2, 0.3), strict=True))


def test_tensors_come_back_as_tensors_of_their_shape():
    stream = Stream([MeanParity(0.1)])
    z = torch.tensor([[1.0], [2.0], [3.0]])
    value = stream.update(z, torch.tensor([0, 1, 1])).value
    assert isinstance(value, torch.Tensor)
    assert value.shape == (3, 1)
    assert value.dtype == torch.float32
    assert abs(value[0, 0] - value[1:, 0].mean()) <= 0.1


def test_an_empty_batch_changes_nothing():
    stream = Stream([MeanParity(0.1)])
    stream.update(np.array([1.0, 2.0]), np.array([0, 1]))
    before = stream.state_dict()
    solution = stream.update(np.zeros(0), np.zeros(0, dtype=np.int64))
    assert solution.value.shape == (0,)
    assert solution.status is Status.OPTIMAL
    assert solution.gaps.tolist() == list(stream.gaps().values())
    assert stream.state_dict() == before


def test_an_empty_batch_tells_of_the_pool():
    stream, nobody = Stream([ResidualMean(0.1)], bounds=(0, 1)), {"targets": [], "groups": {"s": []}}
    assert stream.update(np.zeros(0), **nobody).status is Status.VACUOUS
    stream.update(np.array([0.5, 0.5]), {"s": ["f", "m"]}, targets=[3.0, 3.0])
    solution = stream.update(np.zeros(0), **nobody)
    assert solution.status is Status.EXCEEDED
    assert not solution.satisfied
    assert solution.gaps.tolist() == pytest.approx([-2.0, -2.0])


def test_outputs_that_are_all_alike_have_no_gap():
    """Sums over 3 and over 4 samples, each rounded, would have means that differ in the last digit."""
    stream = Stream([MeanParity(0.0)], bounds=(0, 1))
    solution = stream.update(np.array([1.0, 0.5, 1.0, 0.5, 0.25, 0.0, 0.0]), {"a": list("xxxyyxy")})
    assert len(set(solution.value.tolist())) == 1
    assert solution.status is Status.OPTIMAL
    assert solution.gaps.tolist() == [0.0]


def test_the_repair_is_the_nearest_that_keeps_the_promise():
    """The step from a known ledger, by hand: group means 0 and 0, tolerance 0.1, four more samples."""
    stream = Stream([MeanParity(0.1)], bounds=None)
    for _ in range(10):
        stream.update(np.array([0.0, 0.0]), np.array([0, 1]))
    assert list(stream.ledger.leader.shift()) == [0.0, 0.0]
    value = stream.update(np.array([6.0, 2.0]), np.array([0, 0])).value
    # 12 samples of group 0 may sum to 1.2: both move down by the same.
    np.testing.assert_allclose(value, [2.6, -1.4], atol=1e-12)
