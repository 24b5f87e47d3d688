"""The killing test: writers of one stream are killed at random moments, and nothing may be lost or counted twice.

    python tests/stream/soak.py [--kills 200] [--restarts 100] [--databases sqlite postgresql] [--of decisions]

Several processes, each with several threads, write to one stream. What a thread's `update` returns, it reports; that is
what the world has seen. Again and again one of the processes gets SIGKILL, at a moment drawn at random, and a successor
takes over at the first batches that were not reported, after sending its predecessor's last batches again, as a client
would that knows no better. PostgreSQL itself is ended as well, again and again, as in a crash or in good order, and
started anew; then writers do what the errors say, and send again. At the end, from the reports and the order in the log
alone: every batch entered once, with the outputs reported; the pooled gap within the tolerance after every batch, in
rational arithmetic; and the log proves the ledger. With `--of decisions` it is a ledger of yes and no, whose rates must
be kept after every single decision; with `--of classes` one of probabilities of three classes, kept in each.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

if __package__ in (None, "") and __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from pooled import ClassPool, Pool, RatePool

from fairlayer import MeanParity, RateParity, Stream
from fairlayer.errors import StoreError
from postgres import NoServerError, Server, controlled_server

TOLERANCE = 0.03
BOUNDS = (-1.0, 2.0)
KINDS = ("sqlite", "postgresql")
AGAIN = 3  # batches that a successor sends again
# Forked, so that a successor is at work within milliseconds: the time is for kills, not for imports.
FORK = multiprocessing.get_context("fork")


@dataclass
class Report:
    """What one database went through."""

    kills: int = 0
    restarts: int = 0  # of the server
    lost_replies: int = 0  # kills after which a batch had entered that was never reported
    batches: int = 0
    samples: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


@dataclass
class Writer:
    """A process that writes, whoever does its work at the moment; reported: what each of its threads was told."""

    number: int
    threads: int
    reported: list[list[bytes]] = field(default_factory=list)
    process: Any = None
    replies: Connection | None = None

    def __post_init__(self) -> None:
        self.reported = [[] for _ in range(self.threads)]

    @property
    def count(self) -> int:
        """Batches reported by all threads."""
        return sum(map(len, self.reported))

    def start(self, location: str) -> None:
        """Begin, or take over, at the first batches not reported."""
        self.replies, theirs = FORK.Pipe(duplex=False)
        first = [max(0, len(reported) - AGAIN) for reported in self.reported]
        self.process = FORK.Process(target=_write, args=(location, self.number, first, theirs))
        self.process.start()
        theirs.close()

    def listen(self, problems: list[str]) -> None:
        """Take in what was reported; a batch sent again must give what it gave at first."""
        with contextlib.suppress(EOFError, OSError):  # a reply cut off in the middle was never received
            while self.replies is not None and self.replies.poll():
                thread, index, emitted = self.replies.recv()
                reported = self.reported[thread]
                if index == len(reported):
                    reported.append(emitted)
                elif reported[index] != emitted:
                    problems.append(f"batch {self.number}-{thread}-{index} sent again gave other outputs")

    def kill(self) -> None:
        """SIGKILL: no handler, no farewell."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()
        if self.process.exitcode != -signal.SIGKILL:
            raise RuntimeError(f"a writer ended by itself, with code {self.process.exitcode}")


def batch(writer: int, thread: int, index: int) -> tuple[np.ndarray, np.ndarray]:
    """The numbered batch of a writer's thread: 1 to 8 samples, two attributes."""
    rng = np.random.default_rng([writer, thread, index])
    n = int(rng.integers(1, 9))
    groups = (rng.random((n, 2)) < (0.2 + 0.3 * (writer % 3), 0.5)).astype(np.int64)
    z = rng.normal(0.5, 0.4, n) + 0.4 * groups[:, 0] - 0.2 * groups[:, 1]
    if promised == "classes":
        weights = np.exp(np.stack([z, rng.normal(size=n), -z], axis=1))
        z = weights / weights.sum(axis=1, keepdims=True)
    return z, groups


PROMISED: dict[str, tuple[Any, Callable[[], Any], dict[str, Any]]] = {
    "means": (MeanParity, Pool, {"bounds": BOUNDS}),
    "decisions": (RateParity, lambda: RatePool(TOLERANCE), {"bounds": BOUNDS}),
    "classes": (MeanParity, ClassPool, {"simplex": True, "discrepancy": "entropy"}),
}
promised = "means"  # what this process and those it forks are about


def open_stream(location: str) -> Stream:
    constraint, _, options = PROMISED[promised]
    return Stream([constraint(TOLERANCE)], store=location, name="soak", timeout=60.0, **options)


def _write(location: str, writer: int, first: list[int], replies: Connection) -> None:
    stream = _patiently(lambda: open_stream(location))
    turn = threading.Lock()

    def work(thread: int) -> None:
        index = first[thread]
        while True:
            z, groups = batch(writer, thread, index)
            label = f"{writer}-{thread}-{index}"
            emitted = _patiently(lambda: stream.update(z, groups, batch_id=label)).value.tobytes()  # noqa: B023
            with turn:
                replies.send((thread, index, emitted))
            index += 1

    threads = [threading.Thread(target=work, args=(thread,), daemon=True) for thread in range(1, len(first))]
    for thread in threads:
        thread.start()
    work(0)


def _patiently(attempt: Callable[[], Any]) -> Any:
    """Until it succeeds, as the errors say: what was not counted, or may not have been, is sent again."""
    while True:
        try:
            return attempt()
        except StoreError:
            time.sleep(0.02)


def soak(location: str, args: argparse.Namespace, server: Server | None = None) -> Report:
    """Kill writers of the stream at `location`, and the server; then look for anything lost, twice or unfair."""
    began, deadline = time.monotonic(), time.monotonic() + args.seconds
    rng = np.random.default_rng(args.seed)
    report = Report()
    open_stream(location).close()
    writers = [Writer(number, args.threads) for number in range(args.writers)]
    restarts = args.restarts if server is not None else 0
    try:
        for writer in writers:
            writer.start(location)
        while report.kills + report.restarts < args.kills + restarts and time.monotonic() < deadline:
            time.sleep(rng.uniform(0.0, args.longest))
            left = args.kills - report.kills, restarts - report.restarts
            if rng.random() * sum(left) < left[1]:
                assert server is not None
                server.stop(signal.SIGQUIT if rng.random() < 0.7 else signal.SIGINT)
                server.start()
                report.restarts += 1
            else:
                victim = writers[rng.integers(len(writers))]
                victim.kill()
                victim.listen(report.problems)
                report.kills += 1
                report.lost_replies += _entered(location, victim)
                victim.start(location)
            for writer in writers:
                writer.listen(report.problems)
        while min(writer.count for writer in writers) < args.batches and time.monotonic() < deadline:
            time.sleep(0.01)
            for writer in writers:
                writer.listen(report.problems)
    finally:
        for writer in writers:
            if writer.process is not None and writer.process.is_alive():
                writer.kill()
            writer.listen(report.problems)
    few = report.kills + report.restarts < args.kills + restarts
    if few or min(writer.count for writer in writers) < args.batches:
        report.problems.append("the time given was too short")
    _judge(location, writers, report)
    report.seconds = time.monotonic() - began
    return report


def _entered(location: str, writer: Writer) -> bool:
    """Whether a batch is in the log that nobody was told of."""
    there = set(_batch_ids(location))
    return any(f"{writer.number}-{thread}-{len(one)}" in there for thread, one in enumerate(writer.reported))


def _batch_ids(location: str) -> list[str]:
    """Ids of all batches in the log, in its order, read without fairlayer."""
    query = "SELECT batch_id FROM fairlayer_log ORDER BY number"
    if location.startswith("postgresql://"):
        import psycopg

        connection: Any = psycopg.connect(location)
    else:
        connection = sqlite3.connect(location, timeout=60.0)
    with contextlib.closing(connection):
        return [row[0] for row in connection.execute(query).fetchall()]


def _judge(location: str, writers: list[Writer], report: Report) -> None:
    """The verdict, from the reports and the order of the log."""
    stream = open_stream(location)
    order = _batch_ids(location)
    if len(set(order)) != len(order):
        report.problems.append("a batch is in the log twice")
    told = {f"{w.number}-{t}-{i}" for w in writers for t, one in enumerate(w.reported) for i in range(len(one))}
    missing = told - set(order)
    if missing:
        report.problems.append(f"{len(missing)} batches were reported and are not in the log: {sorted(missing)[:3]}")
    pool = PROMISED[promised][1]()
    for label in order:
        number, thread, index = map(int, label.split("-"))
        z, groups = batch(number, thread, index)
        kept = stream.update(z, groups, batch_id=label).value  # must be a replay
        reported = writers[number].reported[thread]
        if index < len(reported) and reported[index] != kept.tobytes():
            report.problems.append(f"batch {label} was reported with other outputs than the log has")
        if index > len(reported):
            report.problems.append(f"batch {label} entered before its predecessor was reported")
        pool.add(kept, groups)
        if not pool.keeps(TOLERANCE):
            report.problems.append(f"pooled gap {float(pool.largest_gap())} after batch {label}")
    verification = stream.verify()
    if not verification:
        report.problems.append(str(verification))
    certificate = stream.certificate()
    if (certificate.batches, certificate.samples, verification.entries) != (len(order), pool.samples, len(order)):
        report.problems.append(f"the ledger counts {certificate.batches} batches, {certificate.samples} samples")
    report.batches, report.samples = len(order), pool.samples
    stream.close()


@contextlib.contextmanager
def database(kind: str) -> Iterator[tuple[str, Server | None]]:
    """A fresh database, by its location, and its server; anything but the name of a kind is a location already."""
    if kind not in KINDS:
        yield kind, None
    elif kind == "postgresql":
        with controlled_server() as server:
            yield server.url, server
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield str(Path(folder) / "soak.db"), None


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200, help="per database")
    parser.add_argument("--databases", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--at", help="a path or URL, in place of fresh databases")
    parser.add_argument("--restarts", type=int, default=100, help="of a PostgreSQL server that is our own")
    parser.add_argument("--writers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2, help="of each writer")
    parser.add_argument("--batches", type=int, default=0, help="that each writer must have reported at the end")
    parser.add_argument("--longest", type=float, default=0.1, help="seconds from one death to the next, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=900.0, help="at most, per database")
    parser.add_argument("--of", default="means", choices=list(PROMISED), help="what the ledger is of")
    args = parser.parse_args(argv)
    global promised
    promised = args.of
    failed = False
    for kind in [args.at] if args.at else args.databases:
        print(f"== {kind}", flush=True)
        try:
            with database(kind) as (location, server):
                report = soak(location, args, server)
        except NoServerError as error:
            print(f"{kind}: not run: {error}")
            failed = True
            continue
        for problem in report.problems[:10]:
            print(f"   {problem}")
        failed |= bool(report.problems)
        print(
            f"{kind}: {report.kills} kills, {report.lost_replies} between commit and reply; {report.restarts} restarts "
            f"of the server; {report.batches} batches, {report.samples} samples, {len(report.problems)} problems, "
            f"{report.seconds:.0f} s"
        )
    print("soak: " + ("FAILED" if failed else "nothing lost, nothing twice, the promise kept after every batch"))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
