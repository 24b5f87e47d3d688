"""What a solution of a stream says of the pooled rows, also of those that its batch did not move."""

import numpy as np
import pytest

from fairlayer import EqualizedOdds, InputError, MeanParity, Status, Stream
from fairlayer.solution import Solution

Z = np.array([0.0, 0.0, 5.0, 5.0])
GROUPS = np.array([[0], [0], [1], [1]])


def test_algorithm_1_says_when_the_pooled_gap_is_beyond_its_tolerance():
    """A small batch pays nothing at first."""
    stream = Stream([MeanParity(0.05)], policy="primal-dual")
    solution = stream.update(Z, GROUPS)
    assert "ABOVE" in str(stream.certificate())
    assert abs(solution.gaps[0]) == 5.0
    assert solution.status is Status.EXCEEDED
    assert not solution.satisfied


def test_a_row_that_a_batch_cannot_move_is_looked_at_too():
    stream = Stream([EqualizedOdds(0.1)])
    stream.update(Z / 5, GROUPS, ids=range(4))
    stream.observe(range(4), np.ones(4))
    solution = stream.update(np.full(4, 0.5), GROUPS, targets=np.zeros(4))
    assert sorted(np.abs(solution.gaps)) == [0.0, 1.0]
    assert solution.status is Status.EXCEEDED
    assert not stream.certificate().satisfied


def test_multipliers_of_algorithm_1_stand_at_their_rows():
    """Batches hold some of the groups, and name them in the order of the stream, which met 1 and 2 first."""
    stream = Stream([MeanParity(0.05)], policy="primal-dual", b_tau=4)
    stream.update(Z, GROUPS + 1)
    last = stream.update(np.array([0.0, 0.0, 9.0, 9.0]), np.array([[0], [0], [2], [2]]))
    found = dict(zip(last.rows, last.multipliers.tolist(), strict=True))
    assert [name for name, multiplier in found.items() if multiplier] == ["mean parity, 0: 2 - 0"]
    assert found["mean parity, 0: 2 - 0"] == pytest.approx(9.0 - 0.05)


def test_what_is_no_number_is_not_known_to_hold():
    found = Solution(None, None, np.array([np.nan]), np.zeros(1), np.array([np.nan]))
    assert found.status is Status.ROUNDED


@pytest.mark.parametrize("bad", [1e200, -np.inf, np.nan, np.float32(np.inf)])
def test_outputs_whose_sums_would_overflow_change_nothing(bad):
    stream = Stream([MeanParity(0.05)])
    stream.update(Z, GROUPS)
    before = stream.certificate()
    with pytest.raises(InputError, match=r"z\[1\] is .*at most 1e\+140"):
        stream.update(np.array([0.0, bad, 1.0, 1.0], dtype=np.asarray(bad).dtype), GROUPS)
    assert stream.certificate() == before
