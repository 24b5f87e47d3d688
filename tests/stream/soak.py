"""The killing test: writers of one stream are killed at random moments, and nothing may be lost or counted twice.

    python tests/stream/soak.py [--kills 200] [--databases sqlite postgresql] [--decisions] [--seed 0] [--seconds 600]

Several processes write to one stream. What a writer's `update` returns, it reports; that is what the world has seen.
Again and again one of them gets SIGKILL, at a moment drawn at random, and a successor takes over at the first batch
that was not reported, after sending its predecessor's last batches again, as a client would that knows no better. At
the end, from the reports and the order in the log alone: every batch entered once, with the outputs reported; the
pooled gap within the tolerance after every batch, in rational arithmetic; and the log proves the ledger. With
--decisions it is a ledger of yes and no, whose rates must be kept after every single decision.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

if __package__ in (None, "") and __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from counted import RatePool
from pooled import Pool

from fairlayer import MeanParity, RateParity, Stream
from postgres import NoServerError, running_server

TOLERANCE = 0.03
BOUNDS = (-1.0, 2.0)
LONGEST = 0.08  # seconds a writer may live
KINDS = ("sqlite", "postgresql")
AGAIN = 3  # batches that a successor sends again
# Forked, so that a successor is at work within milliseconds: the time is for kills, not for imports.
FORK = multiprocessing.get_context("fork")


@dataclass
class Report:
    """What one database went through."""

    kills: int = 0
    while_writing: int = 0  # kills whose victim had begun to write
    lost_replies: int = 0  # kills after which a batch had entered that was never reported
    batches: int = 0
    samples: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


@dataclass
class Writer:
    """One of the writers, whoever does its work at the moment."""

    number: int
    reported: list[bytes] = field(default_factory=list)
    process: Any = None
    replies: Connection | None = None

    def start(self, location: str) -> None:
        """Begin, or take over, at the first batch not reported."""
        self.replies, theirs = FORK.Pipe(duplex=False)
        first = max(0, len(self.reported) - AGAIN)
        self.process = FORK.Process(target=_write, args=(location, self.number, first, theirs))
        self.process.start()
        theirs.close()

    def listen(self, problems: list[str]) -> None:
        """Take in what was reported; a batch sent again must give what it gave at first."""
        with contextlib.suppress(EOFError, OSError):  # a reply cut off in the middle was never received
            while self.replies is not None and self.replies.poll():
                index, emitted = self.replies.recv()
                if index == len(self.reported):
                    self.reported.append(emitted)
                elif self.reported[index] != emitted:
                    problems.append(f"batch {self.number}-{index} sent again gave other outputs")

    def kill(self) -> None:
        """SIGKILL: no handler, no farewell."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()
        if self.process.exitcode != -signal.SIGKILL:
            raise RuntimeError(f"a writer ended by itself, with code {self.process.exitcode}")


def batch(writer: int, index: int) -> tuple[np.ndarray, np.ndarray]:
    """The numbered batch of a writer: 1 to 8 samples, two attributes."""
    rng = np.random.default_rng([writer, index])
    n = int(rng.integers(1, 9))
    groups = (rng.random((n, 2)) < (0.2 + 0.3 * writer, 0.5)).astype(np.int64)
    return rng.normal(0.5, 0.4, n) + 0.4 * groups[:, 0] - 0.2 * groups[:, 1], groups


PROMISED = {"means": (MeanParity, Pool), "decisions": (RateParity, lambda: RatePool(TOLERANCE))}
promised = "means"  # or "decisions": what this process and those it forks are about


def open_stream(location: str) -> Stream:
    constraint = PROMISED[promised][0](TOLERANCE)
    return Stream([constraint], bounds=BOUNDS, store=location, name="soak", timeout=60.0)


def _write(location: str, writer: int, first: int, replies: Connection) -> None:
    stream = open_stream(location)
    index = first
    while True:
        z, groups = batch(writer, index)
        replies.send((index, stream.update(z, groups, batch_id=f"{writer}-{index}").value.tobytes()))
        index += 1


def soak(location: str, args: argparse.Namespace, progress: int = 50) -> Report:
    """Kill writers of the stream at `location`, then look for anything lost, counted twice or unfair."""
    began, deadline = time.monotonic(), time.monotonic() + args.seconds
    rng = np.random.default_rng(args.seed)
    report = Report()
    open_stream(location).close()
    writers = [Writer(number) for number in range(args.writers)]
    try:
        for writer in writers:
            writer.start(location)
        while report.kills < args.kills and time.monotonic() < deadline:
            time.sleep(rng.uniform(0.0, LONGEST))
            victim = writers[rng.integers(len(writers))]
            before = len(victim.reported)
            victim.kill()
            victim.listen(report.problems)
            report.kills += 1
            report.while_writing += len(victim.reported) > before
            report.lost_replies += _entered(location, victim.number, len(victim.reported))
            victim.start(location)
            for writer in writers:
                writer.listen(report.problems)
            if report.kills % progress == 0:
                done = sum(len(writer.reported) for writer in writers)
                print(f"   {report.kills} kills, {done} batches reported", flush=True)
        while min(len(writer.reported) for writer in writers) < args.batches and time.monotonic() < deadline:
            time.sleep(0.01)
            for writer in writers:
                writer.listen(report.problems)
    finally:
        for writer in writers:
            if writer.process is not None and writer.process.is_alive():
                writer.kill()
            writer.listen(report.problems)
    if report.kills < args.kills or min(len(writer.reported) for writer in writers) < args.batches:
        report.problems.append("the time given was too short")
    _judge(location, writers, report)
    report.seconds = time.monotonic() - began
    return report


def _entered(location: str, writer: int, index: int) -> bool:
    """Whether a batch is in the log."""
    return f"{writer}-{index}" in _batch_ids(location)


def _batch_ids(location: str) -> list[str]:
    """Ids of all batches in the log, in its order, read without fairlayer."""
    query = "SELECT batch_id FROM fairlayer_log ORDER BY number"
    with contextlib.closing(_connect(location)) as connection:
        return [row[0] for row in connection.execute(query).fetchall()]


def _connect(location: str) -> Any:
    if location.startswith("postgresql://"):
        import psycopg

        return psycopg.connect(location)
    import sqlite3

    return sqlite3.connect(location, timeout=60.0)


def _judge(location: str, writers: list[Writer], report: Report) -> None:
    """The verdict, from the reports and the order of the log."""
    stream = open_stream(location)
    order = _batch_ids(location)
    if len(set(order)) != len(order):
        report.problems.append("a batch is in the log twice")
    missing = {f"{w.number}-{i}" for w in writers for i in range(len(w.reported))} - set(order)
    if missing:
        report.problems.append(f"{len(missing)} batches were reported and are not in the log: {sorted(missing)[:3]}")
    pool = PROMISED[promised][1]()
    for label in order:
        number, index = map(int, label.split("-"))
        z, groups = batch(number, index)
        kept = stream.update(z, groups, batch_id=label).value  # must be a replay
        reported = writers[number].reported
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
def database(kind: str) -> Iterator[str]:
    """A fresh database, by its location; anything but the name of a kind is a location already."""
    if kind not in KINDS:
        yield kind
    elif kind == "postgresql":
        with running_server() as url:
            yield url
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield str(Path(folder) / "soak.db")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200, help="per database")
    parser.add_argument("--databases", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--at", help="a path or URL, in place of fresh databases")
    parser.add_argument("--writers", type=int, default=2)
    parser.add_argument("--batches", type=int, default=0, help="that each writer must have reported at the end")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600.0, help="at most, per database")
    parser.add_argument("--decisions", action="store_true", help="a ledger of decisions rather than of means")
    args = parser.parse_args(argv)
    global promised
    promised = "decisions" if args.decisions else "means"
    with tempfile.TemporaryDirectory() as folder:  # compiled once here, so that successors find it done
        warm = open_stream(str(Path(folder) / "warm.db"))
        for index in range(60):
            warm.update(*batch(index % 2, index), batch_id=index)
        warm.close()
    failed = False
    for kind in [args.at] if args.at else args.databases:
        print(f"== {kind}", flush=True)
        try:
            with database(kind) as location:
                report = soak(location, args)
        except NoServerError as error:
            print(f"{kind}: not run: {error}")
            failed = True
            continue
        for problem in report.problems[:10]:
            print(f"   {problem}")
        failed |= bool(report.problems)
        print(
            f"{kind}: {report.kills} kills, {report.while_writing} of writers at work, {report.lost_replies} between "
            f"commit and reply; {report.batches} batches, {report.samples} samples, {len(report.problems)} problems, "
            f"{report.seconds:.0f} s"
        )
    print("soak: " + ("FAILED" if failed else "nothing lost, nothing twice, the promise kept after every batch"))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
