"""Threads that share a stream take turns: what they emit together keeps the promise, and nothing is lost."""

import sys
import threading
from contextlib import suppress

import numpy as np
import pytest
from pooled import Pool

from fairlayer import EqualizedOdds, MeanParity, Stream


def run(*tasks):
    """All at once, each in its own thread, which change as often as can be; the first error is raised."""
    errors = []

    def guarded(task):
        try:
            task()
        except BaseException as error:
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=guarded, args=(task,)) for task in tasks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    if errors:
        raise errors[0]


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    return None if request.param == "memory" else tmp_path / "stream.db"


def test_updates_of_several_threads(store):
    stream, emitted = Stream([MeanParity(0.01)], store=store), []

    def decide(seed):
        rng = np.random.default_rng(seed)
        for _ in range(20):
            groups = rng.integers(0, 2, 4)
            emitted.append((stream.update(rng.normal(2.0 * groups, 1.0), {"g": groups}).value, {"g": groups}))

    def ask():
        for _ in range(20):
            stream.gaps()
            assert stream.certificate().batches <= 60
            assert stream.verify()

    run(*(lambda seed=seed: decide(seed) for seed in range(3)), ask)
    pool = Pool()
    for batch in emitted:
        pool.add(*batch)
    assert pool.keeps(0.01)
    assert stream.certificate().samples == 3 * 20 * 4
    assert stream.verify().entries == 3 * 20
    assert stream.verify()


def test_a_transaction_is_one_thread_s_own(store):
    """What another thread does meanwhile is not part of it: it waits, and is not undone with it."""
    stream, begun = Stream([MeanParity(0.1)], store=store), threading.Event()
    batch = np.array([0.0, 1.0]), {"g": [0, 1]}

    def fails():
        with suppress(RuntimeError), stream.transaction():
            stream.update(*batch)
            begun.set()
            stream.update(*batch)
            raise RuntimeError("undo")

    def waits():
        begun.wait(30)
        stream.update(*batch, batch_id="kept")

    run(fails, waits)
    assert stream.verify().entries == 1
    assert stream.certificate().samples == 2


def test_targets_of_several_threads(store):
    stream = Stream([EqualizedOdds(0.1)], store=store)

    def decide(name):
        rng = np.random.default_rng(len(name))
        for number in range(10):
            ids = [f"{name} {number} {i}" for i in range(3)]
            stream.update(rng.random(3), {"g": rng.integers(0, 2, 3)}, ids=ids)
            stream.observe(ids, rng.integers(0, 2, 3))

    run(*(lambda name=name: decide(name) for name in ("a", "bb", "ccc")))
    assert stream.certificate().waiting == 0
    assert stream.verify().entries == 3 * 10 * 2
    assert stream.verify()
