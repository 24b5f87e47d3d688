"""The leader: what it saves, how past data teach it, and how it follows a stream that drifts."""

import numpy as np
import pytest
from pooled import Pool

from fairlayer import InputError, MeanParity, Stream, project
from fairlayer.stream.leader import BLOCK, DRIFT, find_drift
from fairlayer.stream.state import State

TOLERANCE = 0.05


def draw(n, seed, gap=1.0, share=0.2):
    rng = np.random.default_rng(seed)
    groups = (rng.random((n, 1)) < share).astype(np.int64)
    return rng.normal(gap * groups[:, 0], 1.0), groups


def decide(stream, z, groups, size):
    pool, emitted = Pool(), []
    for start in range(0, len(z), size):
        part = slice(start, start + size)
        emitted.append(stream.update(z[part], groups[part]).value)
        pool.add(emitted[-1], groups[part])
    assert pool.keeps(TOLERANCE)
    return np.concatenate(emitted)


def over_optimum(z, groups, emitted, bounds, part):
    best = project(z, groups, [MeanParity(TOLERANCE)], bounds=bounds).value
    return ((emitted - z)[part] ** 2).mean() / ((best - z)[part] ** 2).mean()


def test_long_streams_come_close_to_the_optimum_in_hindsight():
    """On average over streams; a single one differs by what its halves differ by chance."""
    ratios = []
    for seed in range(6):
        z, groups = draw(20_000, seed)
        bounds = None if seed % 2 else (-1.0, 1.5)
        emitted = decide(Stream([MeanParity(TOLERANCE)], bounds=bounds), z, groups, 50)
        ratios.append(over_optimum(z, groups, emitted, bounds, slice(10_000, None)))
    assert np.mean(ratios) < 1.05


def test_it_costs_less_than_algorithm_1():
    z, groups = draw(2000, 1)
    ledger = decide(Stream([MeanParity(TOLERANCE)]), z, groups, 4)
    algorithm = Stream([MeanParity(TOLERANCE)], policy="primal-dual")
    soft = np.concatenate([algorithm.update(z[i : i + 4], groups[i : i + 4]).value for i in range(0, 2000, 4)])
    assert ((ledger - z) ** 2).mean() < 0.8 * ((soft - z) ** 2).mean()


def test_past_data_teach_without_entering_the_ledger():
    past = draw(4000, 100)
    z, groups = draw(400, 7)
    cold, warm = Stream([MeanParity(TOLERANCE)]), Stream([MeanParity(TOLERANCE)], warm_start=past)
    assert warm.certificate().samples == 0
    assert warm.gaps() == {}
    np.testing.assert_allclose(np.ptp(warm.ledger.leader.shift()), 1.0 - TOLERANCE, atol=0.15)
    assert not cold.ledger.leader.shift().size
    first = warm.update(np.array([1.0]), np.array([[1]])).value  # shifted before anything was emitted
    assert first[0] < 0.6
    # The first one is free: nothing to compare with. From then on both keep the promise, at less change when taught.
    cold.update(np.array([1.0]), np.array([[1]]))
    changes = [((decide(stream, z, groups, 20) - z) ** 2).mean() for stream in (cold, warm)]
    assert changes[1] < changes[0]


def test_a_warm_start_survives_a_refused_batch_and_reopening(location):
    past = draw(2000, 100)
    stream = Stream([MeanParity(TOLERANCE)], store=location, warm_start=past)
    shift = stream.ledger.leader.shift().copy()
    with pytest.raises(InputError, match="columns"):
        stream.update(np.array([1.0]), {"other": np.array([1])})
    for again in (stream, Stream([MeanParity(TOLERANCE)], store=location)):
        assert again.certificate().samples == 0
        np.testing.assert_array_equal(again.ledger.leader.shift(), shift)
    other = Stream([MeanParity(TOLERANCE)], store=location, warm_start=draw(2000, 101, gap=5.0))
    other.gaps()
    np.testing.assert_array_equal(other.ledger.leader.shift(), shift)  # taught once, whoever came first
    assert stream.verify()


def test_drift_is_found_by_blocks():
    """Blocks of 64 samples around 0 join the past while they are an eighth of it or more; one around 3 replaces it."""
    rng = np.random.default_rng(0)
    state = State()
    state.grow(1)
    (past,) = state.past

    def block(mean, count):
        values = rng.normal(mean, 1.0, count)
        past["latest"] = count, values.mean(), ((values - values.mean()) ** 2).sum()
        return find_drift(state.past_rows, BLOCK, DRIFT)

    assert not block(0.0, 64)
    for _ in range(8):
        assert not block(0.0, 64)
    assert past["before"]["count"] == 9 * 64
    assert not block(0.0, 64)
    assert past["before"]["count"] == 9 * 64  # too short to be merged, and waits for more
    assert block(3.0, 128)  # the next look is when it has doubled
    assert past["before"]["count"] + past["latest"]["count"] == 128
    assert abs(max(past["before"]["mean"], past["latest"]["mean"]) - 3.0) < 0.6


@pytest.mark.parametrize("size", [2, 16])
def test_the_leader_follows_a_jump(size):
    """Group means jump from 1 to 3 apart after 3000 samples; 1500 later the shift fits the new stream.

    What is cheapest for the rest is the projection of the rest alone. The mean of old and new means is 2 apart.
    """
    before, after = draw(3000, 11, gap=1.0), draw(3000, 12, gap=3.0)
    z, groups = (np.concatenate(parts) for parts in zip(before, after, strict=True))
    stream = Stream([MeanParity(TOLERANCE)])
    emitted = decide(stream, z, groups, size)
    tail = slice(4500, None)
    best = project(z[tail], groups[tail], [MeanParity(TOLERANCE)]).value
    assert ((emitted - z)[tail] ** 2).mean() < 1.15 * ((best - z[tail]) ** 2).mean()
    learned = np.ptp(stream.ledger.leader.shift())
    assert 2.6 < learned < 3.4


def test_a_stream_without_drift_forgets_nothing():
    z, groups = draw(20_000, 3)
    stream = Stream([MeanParity(TOLERANCE)])
    decide(stream, z, groups, 100)
    past = stream.ledger.state.past
    assert past["before"]["count"].sum() + past["latest"]["count"].sum() == 20_000
