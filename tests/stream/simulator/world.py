"""Processes with threads that write to one stream, the faults that befall them, and what must hold after each step."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np

from fairlayer import MeanParity, Stream
from fairlayer.errors import StoreError, UncertainError
from fairlayer.stream import group_commit, log, store, stream
from simulator.judge import TOLERANCE, BrokenError, Row, judge, read
from simulator.scheduler import Scheduler
from simulator.server import Server, SimulatedPostgres

MOST_STEPS = 20_000
MOST_FAULTS = 6  # of a seed, so that it comes to an end
TIMEOUT = 0.4  # of a stream, in simulated seconds; an outage may last longer


@dataclass
class Batch:
    """What a caller wants decided."""

    name: str
    z: np.ndarray
    groups: np.ndarray
    emitted: bytes | None = None  # what the world has seen
    unsure: str | None = None  # hash of its entry, if it is unknown whether it was counted


@dataclass
class Caller:
    """A thread's batches, one after another."""

    batches: list[Batch]
    next: int = 0


@dataclass(eq=False)
class Process:
    """A process, whose threads share a stream."""

    name: str
    callers: list[Caller]
    stream: Stream | None = None
    alive: bool = False
    faults: int = 0  # that befell it
    overcome: int = 0  # those before its last call that succeeded
    told: int = 0  # the number of the last entry that it was told of


@dataclass
class Bad:
    """A database that is not what it should be, until the right one is brought back."""

    good: list[bytes]
    log: list[Row]
    kind: str


@dataclass
class Result:
    """What a seed did."""

    seed: int
    broken: str | None
    steps: int
    faults: int
    entries: int
    digest: str  # of everything that happened
    trace: list[str] = field(repr=False)


class World:
    """Everything that a seed decides."""

    def __init__(self, seed: int):
        self.seed = seed
        self.scheduler = Scheduler(seed)
        rng = self.rng = self.scheduler.rng
        self.named = rng.random() < 0.7  # whether batches have ids; without, nobody can ask again after a death
        self.rates = {
            "crash": rng.choice([0.0, 0.003, 0.01]),
            "bad": rng.choice([0.0, 0.0, 0.005]),
            "loss": rng.choice([0.0, 0.03, 0.1]),
            "death": rng.choice([0.0, 0.02, 0.05]) if self.named else 0.0,
        }
        self.faults = 0
        self.bad: Bad | None = None
        self.server = Server(self.scheduler, self.fault)
        self.known: set[str] = set()
        self.groups: dict[str, np.ndarray] = {}
        self.sent: set[str] = set()  # batches that were sent at least once
        self.checked: bytes | None = None
        data = np.random.default_rng(seed)
        self.processes = [
            Process(f"process {p}", [self._caller(data, f"{p}.{t}") for t in range(rng.randint(1, 2))])
            for p in range(rng.randint(1, 3))
        ]

    def _caller(self, data: np.random.Generator, name: str) -> Caller:
        batches = []
        for i in range(self.rng.randint(1, 3)):
            n = int(data.integers(1, 4))
            groups = data.integers(0, 2, n)
            batch = Batch(f"{name}.{i}", np.clip(data.normal(0.3 + 0.4 * groups, 0.2), 0, 1), groups)
            self.groups[batch.name] = groups
            batches.append(batch)
        return Caller(batches)

    # Faults

    def fault(self, where: str) -> bool:
        """Whether a message is lost here. What is worse befalls everybody before the next step."""
        if self.faults >= MOST_FAULTS:
            return False
        scheduler, rng = self.scheduler, self.rng
        task = scheduler._current
        assert task is not None
        if where in ("statement", "disk"):
            if rng.random() < self.rates["crash"]:
                scheduler.between(self.crash)
            if rng.random() < self.rates["bad"] and self.bad is None:
                scheduler.between(self.go_bad)
            return False
        if rng.random() < self.rates["death"]:
            scheduler.between(lambda: self.die(task.owner))
        lost = rng.random() < self.rates["loss"]
        if lost:
            self.faults += 1
            task.owner.faults += 1
        return lost

    def _befall_all(self) -> None:
        self.faults += 1
        for process in self.processes:
            process.faults += 1

    def crash(self) -> None:
        """The server dies, and comes back with what the disk has."""
        self._befall_all()
        self.server.crash(self.rng.uniform(0.0, 1.5 * TIMEOUT))
        self.scheduler.note(f"the server dies; version {self.server.flushed} is left")

    def die(self, process: Process) -> None:
        """A process dies, and another takes over later."""
        self.faults += 1
        process.faults += 1
        process.alive = False
        self.scheduler.note(f"{process.name} dies")
        self.scheduler.end(lambda task: task.owner is process)
        for backend in self.server.backends:
            if backend.owner is process:
                backend.connected, backend.gone = False, True
        self.scheduler.start(f"{process.name}, again", lambda: self.live(process, self.rng.uniform(0.0, 0.2)), process)

    def go_bad(self) -> None:
        """The server comes back with a copy that lacks what everybody has seen, or that was written only in part."""
        durable = self.server.versions[: self.server.flushed + 1]
        logs = [(image, read(image)[0]) for image in durable]
        oldest = min((process.told if process.alive else 0) for process in self.processes)
        stale = [image for image, rows in logs if 0 < len(rows) < oldest]
        kind = self.rng.choice(["a stale copy", "half a write"])
        image = None
        if kind == "a stale copy" and stale:
            image = self.rng.choice(stale)
        elif kind == "half a write" and len(logs[-1][1]) > 1:
            image = _torn(durable[-1], [image for image, rows in logs if 0 < len(rows) < len(logs[-1][1])], self.rng)
        if image is None:
            return
        self._befall_all()
        self.bad = Bad(durable, read(image)[0], kind)
        self.server.crash(0.0, image)
        self.checked = image
        self.scheduler.note(f"the server dies, and comes back with {kind}")
        self.scheduler.start("operator", self._bring_back)

    def _bring_back(self) -> None:
        self.scheduler.sleep(self.rng.uniform(0.05, 0.5))

        def restore() -> None:
            if self.bad is None:  # mended
                return
            good, self.bad = self.bad.good, None
            self._befall_all()
            self.server.crash(0.0, good[-1])
            self.server.versions, self.server.flushed = good, len(good) - 1
            self.scheduler.note("the right database is back")

        self.scheduler.between(restore)

    # Work

    def live(self, process: Process, after: float = 0.0) -> None:
        """Open the stream, as often as it takes, and let the threads begin."""
        self.scheduler.sleep(after)
        while self.bad is not None and self.bad.kind == "a stale copy":
            self.scheduler.sleep(0.1)  # who has seen nothing cannot know better
        while True:
            try:
                process.stream = self.open()
                break
            except StoreError as error:
                self.excuse(process, error)
                self.scheduler.sleep(0.05)
        process.alive, process.told = True, 0
        for number, caller in enumerate(process.callers):
            if caller.next and self.named and self.rng.random() < 0.5:
                caller.next -= 1  # as a client does who knows no better
            self.scheduler.start(f"{process.name}, thread {number}", lambda c=caller: self.work(process, c), process)

    def open(self) -> Stream:
        """The stream, in the process of this task."""
        return Stream([MeanParity(TOLERANCE)], bounds=(0, 1), store="postgresql://simulated", timeout=TIMEOUT)

    def _connection(self, location: str, timeout: float, read_only: bool) -> SimulatedPostgres:
        """In place of `open_database`."""
        return SimulatedPostgres(self.server, self.scheduler.owner, timeout, read_only)

    def work(self, process: Process, caller: Caller) -> None:
        """One batch after another; what was not counted is sent again."""
        assert process.stream is not None
        while caller.next < len(caller.batches):
            batch = caller.batches[caller.next]
            faults = process.faults
            try:
                if batch.unsure is not None:
                    counted = self.ask(process, batch)
                    if counted is None:
                        self.scheduler.sleep(0.05)
                        continue
                    batch.unsure = None
                    if counted:
                        caller.next += 1
                        continue
                self.sent.add(batch.name)
                name = batch.name if self.named else None
                decided = process.stream.update(batch.z, {"g": batch.groups}, batch_id=name)
            except UncertainError as error:
                self.excuse(process, error)
                if not self.named:
                    batch.unsure = str(error).split("hash='")[1].split("'")[0]
            except StoreError as error:
                self.excuse(process, error)
                self.scheduler.sleep(self.rng.uniform(0.0, 0.1))
            else:
                process.overcome = max(process.overcome, faults)
                self.told(process, batch, decided.value.tobytes())
                caller.next += 1

    def ask(self, process: Process, batch: Batch) -> bool | None:
        """As the message says: whether an entry is in the log; None where that cannot be said now."""
        assert process.stream is not None
        faults, bad = process.faults, self.bad is not None
        found = process.stream.verify(hash=batch.unsure)
        if found:
            return True
        if len(found.problems) == 1 and f"the hash {batch.unsure} is of no entry" in found.problems[0]:
            return False
        if not bad and process.faults == faults:
            raise BrokenError(str(found))
        return None

    def excuse(self, process: Process, error: StoreError) -> None:
        """An error needs a reason."""
        self.scheduler.note(f"error: {str(error)[:100]}")
        if process.faults == process.overcome and self.bad is None and self.server.up:
            raise BrokenError(f"an error without a reason: {error}")

    def told(self, process: Process, batch: Batch, emitted: bytes) -> None:
        """A decision goes out: it must be durable, in the right database, and the same each time."""
        self.scheduler.note(f"{batch.name} is told")
        if batch.emitted not in (None, emitted):
            raise BrokenError(f"batch {batch.name} was told twice, with different outputs")
        batch.emitted = emitted
        rows = read(self._durable())[0]
        if self.named and not any(row.batch_id == batch.name and row.emitted == emitted for row in rows):
            raise BrokenError(f"batch {batch.name} was told, and is not durable")
        heads = [row.number for row in rows if not self.named or row.batch_id == batch.name]
        process.told = max([process.told, *heads[-1:]])

    def _durable(self) -> bytes:
        return self.bad.good[-1] if self.bad is not None else self.server.versions[self.server.flushed]

    # Looking

    def look(self) -> None:
        """After every step: what is committed keeps the promise, and what was told is durable."""
        image = self.server.versions[-1]
        if image is self.checked:
            return
        self.checked = image
        if self.bad is not None:
            if read(image)[0] == self.bad.log:
                return
            if self.bad.kind == "a stale copy":
                raise BrokenError("a stale copy was written to")
            judge(image, self.groups, self.known)  # who has the whole state in memory may mend what is stored
            self.bad = None
            self.scheduler.note("mended")
        rows = judge(image, self.groups, self.known)
        if self.named:
            there = {row.batch_id for row in rows[: len(read(self._durable())[0])]}
            batches = [batch for process in self.processes for caller in process.callers for batch in caller.batches]
            lost = [batch.name for batch in batches if batch.emitted is not None and batch.name not in there]
            if lost:
                raise BrokenError(f"batches {lost} were told, and are lost")
        elif len(rows) > len(self.sent):
            raise BrokenError(f"{len(rows)} entries of {len(self.sent)} batches: one counted twice")

    def done(self) -> bool:
        """Whether every batch was decided."""
        all_done = all(caller.next == len(caller.batches) for p in self.processes for caller in p.callers)
        return all_done and self.bad is None

    def finish(self) -> None:
        """What a newcomer finds."""
        self.rates = dict.fromkeys(self.rates, 0.0)
        while not self.server.up:
            self.scheduler.sleep(0.1)
        opened = self.open()
        verified = opened.verify()
        if not verified:
            raise BrokenError(str(verified))
        batches = [batch for process in self.processes for caller in process.callers for batch in caller.batches]
        certificate = opened.certificate()
        expected = (len(batches), sum(len(batch.z) for batch in batches))
        if (certificate.batches, certificate.samples) != expected:
            raise BrokenError(f"{certificate.batches} batches, {certificate.samples} samples; expected {expected}")
        for batch in batches if self.named else []:
            again = opened.update(batch.z, {"g": batch.groups}, batch_id=batch.name).value.tobytes()
            if batch.emitted is not None and again != batch.emitted:
                raise BrokenError(f"batch {batch.name} gives other outputs now")
        self.finished = True

    def run(self) -> Result:
        """From the beginning to the end."""
        scheduler, broken = self.scheduler, None
        self.finished = False
        with ExitStack() as patched:
            threading = scheduler.threading()
            for module, name, made in (
                (stream, "open_database", self._connection),
                (stream, "threading", threading),
                (group_commit, "threading", threading),
                (store, "time", scheduler.time()),
                (log, "datetime", scheduler.datetime()),
            ):
                patched.enter_context(patch.object(module, name, made))
            try:
                for process in self.processes:
                    scheduler.start(process.name, lambda p=process: self.live(p), process)
                scheduler.run(self.done, self.look, MOST_STEPS)
                scheduler.start("auditor", self.finish, Process("auditor", []))
                scheduler.run(lambda: self.finished, self.look, MOST_STEPS)
            except Exception as error:  # whatever it is, it should not have come to this
                broken = f"{type(error).__name__}: {error}"
            finally:
                scheduler.end(lambda task: True)
        image = self.server.versions[-1]
        digest = hashlib.sha256("\n".join(scheduler.trace).encode() + repr(read(image)).encode()).hexdigest()
        entries = len(read(image)[0])
        return Result(self.seed, broken, scheduler.steps, self.faults, entries, digest[:16], scheduler.trace)


def _torn(image: bytes, older: list[bytes], rng: Any) -> bytes | None:
    """A copy of which only a part is new: the state is from before, or the end of the log is missing."""
    if not older:
        return None
    database = sqlite3.connect(":memory:")
    database.deserialize(image)
    state = read(rng.choice(older))[1][0]
    if rng.random() < 0.5:
        database.execute("UPDATE fairlayer_streams SET state = ?", (state,))
    else:
        database.execute("DELETE FROM fairlayer_log WHERE number = (SELECT max(number) FROM fairlayer_log)")
    database.commit()
    torn = database.serialize()
    database.close()
    return torn
