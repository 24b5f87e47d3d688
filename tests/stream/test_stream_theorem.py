"""The ledger's promise: for mean parity the pooled gap is within the tolerance after every batch, whatever arrives."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from arrivals import adversaries, arrivals, everything, some
from hypothesis import given
from hypothesis import strategies as st
from pooled import Pool

from fairlayer import EqualizedOdds, EqualizedResiduals, InputError, MeanParity, ResidualMean, Stream
from fairlayer.solution import Status

some_tolerance = st.one_of(st.floats(1e-4, 0.5), st.sampled_from([1e-4, 0.05, 0.5]))
some_box = st.sampled_from([None, (0.0, 1.0), (-2.0, 0.5), (None, 3.0)])


@some
@given(adversaries(), some_tolerance, some_box, st.sampled_from([np.float64, np.float32]), st.booleans())
def test_gaps_are_within_tolerance_after_every_batch(batches, tolerance, box, dtype, each_batch):
    if dtype is np.float32:  # which knows numbers around 10,000 to the thousandth
        tolerance = max(tolerance, 0.01)
    stream, pool = Stream([MeanParity(tolerance)], bounds=box, each_batch=each_batch), Pool()
    low, high = (-np.inf, np.inf) if box is None else (-np.inf if box[0] is None else box[0], box[1])
    for z, groups in batches:
        solution = stream.update(z.astype(dtype), groups)
        own = Pool()
        for gaps in (own, pool) if each_batch else (pool,):
            gaps.add(solution.value, groups)
            assert gaps.keeps(tolerance)
        assert solution.value.dtype == dtype
        assert ((solution.value >= low) & (solution.value <= high)).all()
        assert solution.status in (Status.OPTIMAL, Status.VACUOUS)
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


@pytest.mark.parametrize(
    ("policy", "box"),
    [("one group first", None), ("sorted", (0.0, 1.0)), ("worst case", None), ("worst case", (0.0, 1.0))],
)
def test_long_one_sided_streams(policy, box):
    rng = np.random.default_rng(5)
    n, tolerance = 800, 0.01
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


def test_a_tolerance_per_constraint_and_intersections():
    rng = np.random.default_rng(2)
    stream = Stream([MeanParity(0.01, over="a"), MeanParity(0.2, over="b"), MeanParity(0.3, over=("a", "b"))])
    pools = [Pool(), Pool(), Pool()]
    for _ in range(120):
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


def test_an_empty_batch_changes_nothing_and_tells_of_the_pool():
    stream, nobody = Stream([ResidualMean(0.1)], bounds=(0, 1)), {"targets": [], "groups": {"s": []}}
    assert stream.update(np.zeros(0), **nobody).status is Status.VACUOUS
    stream.update(np.array([0.5, 0.5]), {"s": ["f", "m"]}, targets=[3.0, 3.0])
    before = everything(stream)
    solution = stream.update(np.zeros(0), **nobody)
    assert solution.value.shape == (0,)
    assert (solution.status, solution.satisfied) == (Status.EXCEEDED, False)
    assert solution.gaps.tolist() == list(stream.gaps().values()) == pytest.approx([-2.0, -2.0])
    assert everything(stream) == before


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


def test_mean_parity_is_kept_beside_constraints_that_a_stream_cannot_promise():
    rng = np.random.default_rng(0)
    stream = Stream([MeanParity(0.05), ResidualMean(0.01), EqualizedOdds(0.02)], bounds=(0.0, 1.0))
    pool = Pool()
    for _ in range(40):
        n = int(rng.integers(1, 6))
        groups, targets = {"sex": rng.integers(0, 2, n)}, rng.integers(0, 2, n)
        pool.add(stream.update(rng.random(n), groups, targets=targets).value, groups)
        assert pool.keeps(0.05)


def test_rounding_of_the_history_does_not_break_the_promise():
    """Sums of 32 cells cancel: rounding them one after the other would leave an error far larger than the hair."""
    rng, tolerance = np.random.default_rng(0), 1e-3
    for _ in range(10):
        stream = Stream([MeanParity(tolerance, over="a"), MeanParity(1e12, over="b")])
        a, b = rng.integers(0, 2, 200), rng.integers(0, 16, 200)
        z = np.where(b % 2 == 0, 1e8, -1e8) * rng.uniform(0.5, 1.5, 200)
        count, total = [0, 0], [Fraction(0), Fraction(0)]

        def decide(z, a, b, stream=stream, count=count, total=total):
            solution = stream.update(z, {"a": a, "b": b})
            for group, value in zip(a.tolist(), solution.value.tolist(), strict=True):
                count[group] += 1
                total[group] += Fraction(value)
            gap = total[0] / count[0] - total[1] / count[1]
            assert not solution.satisfied or abs(gap) <= Fraction(tolerance)

        decide(z, a, b)
        for _ in range(30):
            group, a, b = int(rng.integers(0, 2)), rng.integers(0, 2, 1), rng.integers(0, 16, 1)
            a[:] = group
            hair = Fraction(10 ** rng.uniform(-13.0, -8.0))
            other = total[1 - group] / count[1 - group]
            wanted = (other + Fraction(tolerance) + hair) * (count[group] + 1) - total[group]
            cell = stream.ledger.index.locate(1, {"a": a, "b": b}, None, None)
            stream.ledger.state.grow(len(stream.ledger.index))
            decide(float(wanted) + stream.ledger.leader.shift()[cell], a, b)


# Within every batch as well


def test_without_it_batches_may_differ_by_more():
    """The promise of a stream alone is about all decisions; that of a layer alone is about one batch."""
    worst, pooled = {}, {}
    for each_batch in (False, True):
        stream, pool = Stream([MeanParity(0.02)], each_batch=each_batch), Pool()
        worst[each_batch] = 0.0
        for z, groups in arrivals(60, 40):
            own, solution = Pool(), stream.update(z, groups)
            own.add(solution.value, groups)
            pool.add(solution.value, groups)
            worst[each_batch] = max(worst[each_batch], float(own.largest_gap()))
        pooled[each_batch] = float(pool.largest_gap())
    assert worst[False] > 0.1
    assert worst[True] <= 0.02
    assert max(pooled.values()) <= 0.02


def test_with_targets_the_residuals_of_every_batch_agree():
    rng = np.random.default_rng(0)
    stream = Stream([EqualizedResiduals(0.05)], each_batch=True)
    for _ in range(20):
        groups, targets = rng.integers(0, 2, 30), rng.normal(0.0, 1.0, 30)
        residual = (
            stream.update(targets + 0.5 * groups + rng.normal(0, 0.3, 30), groups, targets=targets).value - targets
        )
        assert abs(residual[groups == 0].mean() - residual[groups == 1].mean()) <= 0.05 + 1e-12


def test_algorithm_1_has_its_own_rule_for_batches():
    with pytest.raises(InputError, match="each_batch needs policy='ledger'"):
        Stream([MeanParity(0.02)], policy="primal-dual", each_batch=True)
