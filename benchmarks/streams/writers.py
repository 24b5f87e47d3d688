"""Processes that write to one stream in PostgreSQL: how many batches per second they decide together."""

import multiprocessing
import threading
import time
from typing import Any
from unittest.mock import patch

import numpy as np

from fairlayer import MeanParity, Stream
from fairlayer.stream import stream as streams
from fairlayer.stream.database import Database
from fairlayer.stream.postgresql import PostgresDatabase

TOLERANCE = 0.0125
TIMEOUT = 120.0
FORK = multiprocessing.get_context("fork")


class OneByOne(PostgresDatabase):
    """A round trip for every statement, and the lock held until the disk has the commit."""

    _run = Database._run
    commit = Database.commit
    begin_writing = ("BEGIN",)


def throughput(url: str, name: str, writers: int, callers: int, batch: int, grouped: bool, seconds: float) -> float:
    """Batches per second of so many processes with so many threads each.

    grouped: as streams do it. Otherwise each batch is a transaction by itself, statement by statement.
    """
    barrier, counts = FORK.Barrier(writers), FORK.Queue()
    arguments = (url, name, callers, batch, grouped, seconds, barrier, counts)
    processes = [FORK.Process(target=_write, args=(number, *arguments)) for number in range(writers)]
    for process in processes:
        process.start()
    total = sum(counts.get() for _ in processes)
    for process in processes:
        process.join()
    return total / seconds


def _write(
    number: int, url: str, name: str, callers: int, batch: int, grouped: bool, seconds: float, barrier: Any, counts: Any
) -> None:
    kind = PostgresDatabase if grouped else OneByOne
    with patch.object(streams, "open_database", kind):
        stream = Stream([MeanParity(TOLERANCE)], bounds=(0, 1), store=url, name=name, timeout=TIMEOUT)
    _decide(stream, np.random.default_rng(number), batch, f"first {number}", grouped)
    barrier.wait()
    end, done = time.monotonic() + seconds, [0] * callers

    def call(caller: int) -> None:
        rng = np.random.default_rng([number, caller])
        while time.monotonic() < end:
            _decide(stream, rng, batch, f"{number} {caller} {done[caller]}", grouped)
            done[caller] += time.monotonic() < end

    threads = [threading.Thread(target=call, args=(caller,)) for caller in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stream.close()
    counts.put(sum(done))


def _decide(stream: Stream, rng: np.random.Generator, batch: int, label: str, grouped: bool) -> None:
    groups = rng.integers(0, 2, (batch, 2))
    z = np.clip(rng.normal(0.4 + 0.2 * groups[:, 0], 0.25), 0, 1)
    if grouped:
        stream.update(z, groups, batch_id=label)
    else:
        with stream.transaction():
            stream.update(z, groups, batch_id=label)
