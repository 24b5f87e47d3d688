"""Equal results to the bit, however a stream is cut into transactions, stores, processes and restarts."""

import json
import pickle

import numpy as np
import pytest
from arrivals import arrivals

from fairlayer import EqualizedOdds, InputError, MeanParity, RateParity, Stream


def with_classes(z):
    """Outputs as probabilities of three classes."""
    weights = np.exp(np.stack([z, np.zeros_like(z), -z], axis=1))
    return weights / weights.sum(axis=1, keepdims=True)


OUTPUTS = list(arrivals(40, seed=1))
KINDS = {
    "means": ({"constraints": [MeanParity(0.03)], "bounds": (0.0, 1.0)}, OUTPUTS),
    "Algorithm 1": ({"constraints": [MeanParity(0.03)], "bounds": (0.0, 1.0), "policy": "primal-dual"}, OUTPUTS),
    "rates": ({"constraints": [RateParity(0.03)], "bounds": (-1.0, 2.0)}, OUTPUTS),
    "ratios of rates": ({"constraints": [RateParity(ratio=0.85)], "bounds": (-1.0, 2.0)}, OUTPUTS),
    "classes": ({"constraints": [MeanParity(0.03)], "simplex": True}, [(with_classes(z), g) for z, g in OUTPUTS]),
}
BATCHES = OUTPUTS


def make(kind="means", **options):
    return Stream(**KINDS[kind][0], **options)


@pytest.fixture(scope="module")
def expected():
    """Of each kind of stream: what it emits in memory, and where it ends."""
    streams = {kind: make(kind) for kind in KINDS}
    return {k: ([one.update(*batch).value.tobytes() for batch in KINDS[k][1]], one) for k, one in streams.items()}


def both_batches(stream, good, bad):
    stream.update(*good, batch_id="lost")
    stream.update(*bad)


@pytest.mark.parametrize(
    ("kind", "size", "place"),
    [
        ("means", 1, "sqlite"), ("means", 7, "postgresql"), ("Algorithm 1", 7, "sqlite"), ("rates", 40, "postgresql"),
        ("ratios of rates", 7, "sqlite"), ("classes", 7, "sqlite"), ("classes", 40, "postgresql"),
    ],
)  # fmt: skip
def test_stores_reopening_and_transactions_change_nothing(request, tmp_path, expected, kind, size, place):
    """Some batches by themselves, then some in one transaction, then the stream is closed and opened again."""
    location = str(tmp_path / "stream.db") if place == "sqlite" else request.getfixturevalue("postgres")
    (emitted, memory), batches, found = expected[kind], KINDS[kind][1], []
    for start in range(0, len(batches), size):
        stream, several = make(kind, store=location), batches[start : start + size]
        found += [stream.update(*batch).value.tobytes() for batch in several[: size // 2]]
        with stream.transaction():
            found += [stream.update(*batch).value.tobytes() for batch in several[size // 2 :]]
        stream.close()
    assert found == emitted
    again = Stream.open(location)
    assert again.gaps() == memory.gaps()
    assert again.ledger.to_bytes() == memory.ledger.to_bytes()
    assert again.certificate().groups == memory.certificate().groups
    assert again.verify()
    assert again.verify().entries == len(again.timeline().steps) == len(batches)


def test_two_openings_take_turns(location, expected):
    """Each sees what the other has committed."""
    streams = [make(store=location), make(store=location)]
    found = [streams[i % 2].update(*batch).value.tobytes() for i, batch in enumerate(BATCHES)]
    assert found == expected["means"][0]


def test_a_transaction_that_fails_leaves_no_trace(location):
    for options in ({}, {"store": location}):
        stream = make(**options)
        stream.update(*BATCHES[0], batch_id="kept")
        before = stream.gaps(), stream.certificate()
        with pytest.raises(InputError, match="finite"), stream.transaction():
            both_batches(stream, BATCHES[1], (np.array([np.nan]), BATCHES[0][1]))
        assert (stream.gaps(), stream.certificate()) == before
        assert stream.verify().entries == 1
        stream.update(*BATCHES[1], batch_id="lost")  # not a replay: it was never counted
        assert stream.verify().entries == 2


def test_an_update_that_fails_leaves_no_trace(location):
    for options in ({}, {"store": location}):
        stream, untouched = make(**options), make()
        emitted = [stream.update(*BATCHES[0]).value.tobytes()]
        for z, groups in BATCHES[1:20]:
            with pytest.raises(InputError, match="finite"):
                stream.update(np.full_like(z, np.nan), groups)
            with pytest.raises(InputError, match="columns"):
                stream.update(z, {"sex": groups["sex"], "other": groups["age"]})
            emitted.append(stream.update(z, groups).value.tobytes())
        assert emitted == [untouched.update(*batch).value.tobytes() for batch in BATCHES[:20]]
        assert stream.verify()


@pytest.mark.parametrize("kind", ["means", "Algorithm 1", "rates", "classes"])
def test_a_pickled_stream_continues_to_the_bit(kind):
    stream, batches = make(kind), KINDS[kind][1]
    for number, batch in enumerate(batches[:30]):
        stream.update(*batch, batch_id=number)
    copy = pickle.loads(pickle.dumps(stream))
    assert copy.certificate() == stream.certificate()
    copy.update(*batches[0])
    assert copy.certificate() != stream.certificate()  # a copy goes its own way
    stream.update(*batches[0])
    for batch in batches[30:]:
        a, b = stream.update(*batch), copy.update(*batch)
        assert (a.value.tobytes(), a.status, a.gaps.tobytes()) == (b.value.tobytes(), b.status, b.gaps.tobytes())
    assert copy.ledger.to_bytes() == stream.ledger.to_bytes()
    assert copy.verify()
    again = [one.update(*batches[3], batch_id=3).value.tobytes() for one in (copy, stream)]
    assert again[0] == again[1]
    assert copy.certificate().batches == len(batches) + 1


def test_pickling_a_stored_stream_takes_its_place_not_its_content(location):
    stream = make(store=location)
    stream.update(*BATCHES[0])
    copy = pickle.loads(pickle.dumps(stream))
    stream.update(*BATCHES[1])
    assert copy.certificate() == stream.certificate()


@pytest.mark.parametrize("kind", ["means", "rates", "classes"])
def test_a_replayed_batch_returns_what_it_gave_and_counts_once(tmp_path, kind):
    batches = KINDS[kind][1][:10]
    for options in ({}, {"store": tmp_path / "a.db"}):
        stream = make(kind, **options)
        first = [stream.update(*batch, batch_id=f"id {number}") for number, batch in enumerate(batches)]
        before = stream.certificate()
        if options:
            stream = make(kind, **options)
        for number, (batch, given) in enumerate(zip(batches, first, strict=True)):
            again = stream.update(*batch, batch_id=f"id {number}")
            assert (again.value.tobytes(), again.value.dtype) == (given.value.tobytes(), given.value.dtype)
            assert (again.status, again.rows, again.vacuous) == (given.status, given.rows, given.vacuous)
            np.testing.assert_array_equal(again.gaps, given.gaps)
            np.testing.assert_array_equal(again.multipliers, given.multipliers)
        assert stream.certificate() == before
        with pytest.raises(InputError, match="another batch"):
            stream.update(*batches[1], batch_id="id 0")


def test_streams_in_one_store_are_apart(location):
    streams = [make(store=location, name=name) for name in "ab"]
    for stream, batch in zip(streams, BATCHES, strict=False):
        stream.update(*batch, batch_id=1)
    for stream, (z, _) in zip(streams, BATCHES, strict=False):
        assert stream.certificate().samples == len(z)
        assert stream.verify()


def test_the_log_tells_what_happened(location):
    stream = make(store=location)
    stream.update(*BATCHES[0], batch_id="a")
    stream.update(*BATCHES[1])
    entries = list(stream._store.entries())
    assert [entry.number for entry in entries] == [1, 2]
    assert [entry.batch_id for entry in entries] == ["a", None]
    payload = json.loads(entries[1].payload)
    assert payload["samples"] == len(BATCHES[1][0])
    assert payload["status"] in ("OPTIMAL", "VACUOUS")
    assert {"time", "cells", "multipliers"} <= payload.keys()
    for before, after in payload["cells"].values():
        assert after[0] > before[0]


def test_a_copy_goes_on_to_the_bit_while_targets_are_awaited():
    """What a sample without a target is moved by depends on the counts of now, in a copy as in the original."""
    rng = np.random.default_rng(1)
    stream = Stream([EqualizedOdds(0.02)])
    compared = 0
    for t in range(60):
        groups, targets = rng.integers(0, 2, 4), rng.integers(0, 2, 4).astype(float)
        z = rng.normal(groups + targets * (1 + groups), 1.0)
        known = {"targets": targets} if rng.random() < 0.5 else {"ids": [f"{t}-{i}" for i in range(4)]}
        copy = pickle.loads(pickle.dumps(stream))
        decided = stream.update(z, {"g": groups}, **known).value
        compared += "ids" in known
        assert np.array_equal(copy.update(z, {"g": groups}, **known).value, decided)
    assert compared > 20
    waiting = list(stream._store.pending())
    for one in (stream, copy := pickle.loads(pickle.dumps(stream))):
        one.observe(waiting, np.arange(len(waiting)) % 2)
    assert copy.ledger.to_bytes() == stream.ledger.to_bytes()


def test_another_batch_under_a_used_id_is_refused(location):
    z, groups = np.array([0.1, 0.9, 0.4]), {"sex": [0, 1, 1], "age": ["a", "b", "b"]}
    others = [
        (z[::-1].copy(), groups),
        (z, {**groups, "sex": [1, 1, 1]}),
        (z, {**groups, "age": ["a", "b", "c"]}),  # a label never met, which must not become a group
    ]
    for options in ({}, {"store": location}):
        stream = make(**options)
        first = stream.update(z, groups, batch_id=1)
        if options:
            stream.close()
            stream = make(**options)
        before = stream.ledger.to_bytes(), stream.certificate()
        for other in others:
            with pytest.raises(InputError, match="used for another batch: give"):
                stream.update(*other, batch_id=1)
        with pytest.raises(InputError, match="another batch of 3 samples, not 1"):
            stream.update(z[:1], {name: column[:1] for name, column in groups.items()}, batch_id=1)
        same = {"age": np.array(["a", "b", "b"], dtype=object), "sex": np.array([0, 1, 1])}  # in another form
        assert stream.update(z, same, batch_id=1).value.tobytes() == first.value.tobytes()
        assert stream.certificate() == before[1]
        assert len(stream.certificate().groups) == 4
        assert stream.verify()


def test_other_targets_and_ids_are_another_batch():
    stream, z, groups = Stream([EqualizedOdds(0.1)]), np.array([0.1, 0.9]), {"g": [0, 1]}
    stream.update(z, groups, batch_id="with", targets=[0, 1])
    stream.update(z, groups, batch_id="without", ids="ab")
    stream.update(z, groups, batch_id="without", ids="ab")
    for other in ({"batch_id": "with", "targets": [1, 1]}, {"batch_id": "without", "ids": "ac"}):
        with pytest.raises(InputError, match="another batch"):
            stream.update(z, groups, **other)


@pytest.mark.parametrize("dtypes", [(np.float32, np.float64), (np.float64, np.float32)])
def test_a_batch_that_comes_again_in_another_dtype_returns_what_was_emitted(dtypes):
    z, groups = np.random.default_rng(0).random(4), np.arange(4) % 2
    stream = Stream([MeanParity(0.1)])
    first = stream.update(z.astype(dtypes[0]), groups, batch_id=1).value
    again = stream.update(z.astype(dtypes[1]), groups, batch_id=1).value
    assert (again.dtype, again.tobytes()) == (first.dtype, first.tobytes())
