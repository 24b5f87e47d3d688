"""`each_batch`: the constraints hold within every batch as well as over all of them."""

import pickle

import numpy as np
import pytest
from arrivals import arrivals
from hypothesis import HealthCheck, given, settings
from pooled import Pool
from test_stream_theorem import adversaries

from fairlayer import EqualizedResiduals, MeanParity, Stream
from fairlayer.errors import FairlayerError, InputError
from fairlayer.solution import Status


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(adversaries())
def test_gaps_of_every_batch_and_of_all_are_within_tolerance(adversary):
    batches, tolerance, box = adversary
    stream, pool = Stream([MeanParity(tolerance)], bounds=box, each_batch=True), Pool()
    for z, groups in batches:
        solution = stream.update(z, groups)
        own = Pool()
        for gaps in (own, pool):
            gaps.add(solution.value, groups)
            assert gaps.keeps(tolerance)
        assert solution.status in (Status.OPTIMAL, Status.VACUOUS)


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


def test_it_is_kept_by_pickling_and_by_the_store(tmp_path):
    stream = Stream([MeanParity(0.02)], each_batch=True)
    parts = list(arrivals(6, 30))
    for z, groups in parts[:3]:
        stream.update(z, groups)
    again = pickle.loads(pickle.dumps(stream))
    for z, groups in parts[3:]:
        np.testing.assert_array_equal(stream.update(z, groups).value, again.update(z, groups).value)
    path = tmp_path / "decisions.db"
    Stream([MeanParity(0.02)], store=path, each_batch=True).close()
    with pytest.raises(FairlayerError, match="other settings"):
        Stream([MeanParity(0.02)], store=path)


def test_algorithm_1_has_its_own_rule_for_batches():
    with pytest.raises(InputError, match="each_batch needs policy='ledger'"):
        Stream([MeanParity(0.02)], policy="primal-dual", each_batch=True)
