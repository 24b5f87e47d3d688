"""`Stream`: decisions one batch after another, under constraints on all of them together."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

from fairlayer.constraints import Constraint
from fairlayer.constraints.plain_data import Label, Name
from fairlayer.errors import FairlayerError, InputError, StoreError
from fairlayer.solution import Solution
from fairlayer.stream.batch import Batch, read_batch, read_ids, read_past, read_targets
from fairlayer.stream.certificate import Certificate, Timeline, certify, trace
from fairlayer.stream.group_commit import GroupCommit, Work
from fairlayer.stream.ledger import Ledger
from fairlayer.stream.log import Entry, Head, Verification, make_entry, readable, replay, verify_log
from fairlayer.stream.policies import decide
from fairlayer.stream.settings import Settings, read_positive, read_text
from fairlayer.stream.store import MemoryStore, SqlStore, Store, open_database, stored_streams

Policy = Literal["ledger", "primal-dual"]


class Stream:
    """A stream of decisions whose group means agree over all of them, not only within a batch.

    With RateParity, where a score at or above the threshold is a yes, the rates of yes agree after every single
    decision, up to half a decision per group (per cell, where attributes overlap).

    policy: "ledger" keeps the pooled gap within the tolerance after every batch (for mean parity always; otherwise as
    nearly as can be, and the status says so). "primal-dual" is the paper's Algorithm 1, which bounds the average gap
    of batches in the long run: batches of at least b_tau are projected, smaller ones pay a price, whose step is
    eta / sqrt(t + 1).
    store: None for memory, a path for SQLite, a postgresql:// URL. Streams are told apart by name; several processes
    may share one, and the threads of each: they take turns. Durable before `update` returns.
    bounds: (lo, hi), numbers or None.
    warm_start: (raw, groups) or (raw, groups, features) of past data, from which the leader learns; they do not enter
    the ledger. Ledger only.
    levels: all labels that attributes can have, by attribute: others are refused. Without it, a new label is a new
    group.
    each_batch: keep the constraints within every batch as well, at the cost of larger changes; ledger only.
    discrepancy: "squared", "entropy" for probabilities, or "kl" for amounts; the last two with the ledger only.
    simplex: outputs are the probabilities of d classes, shape (n, d): the pooled gap of every class is within the
    tolerance after every batch, and rows stay on the simplex. MeanParity, with "squared" or "entropy". Without it the
    columns of outputs of shape (n, d) are independent; each is kept by itself.
    classes: what the classes are called in certificates and gaps, column by column; their numbers by default.
    timeout: seconds to wait for a stream that another process is writing to.
    """

    def __init__(
        self,
        constraints: Sequence[Constraint] | Constraint,
        bounds: Any = None,
        policy: Policy = "ledger",
        store: Any = None,
        name: str = "default",
        *,
        b_tau: int = 64,
        eta: float = 0.5,
        warm_start: tuple[Any, ...] | None = None,
        each_batch: bool = False,
        discrepancy: str = "squared",
        simplex: bool = False,
        classes: Sequence[str] | None = None,
        timeout: float = 10.0,
        levels: Mapping[Name, Sequence[Label]] | None = None,
    ):
        settings = Settings(constraints, bounds, policy, b_tau, eta, each_batch, discrepancy, simplex, classes)
        if warm_start is not None and policy != "ledger":
            raise InputError(f"warm_start needs policy='ledger'; got {policy!r}, which learns nothing from past data.")
        if not isinstance(name, str):
            raise InputError(f"name must be a string; got {name!r}.")
        past = None if warm_start is None else read_past(warm_start, settings)
        location, seconds = _read_location(store), read_positive(timeout, "timeout")
        self._open(settings, location, read_text(name, "name"), seconds, levels, read_only=False)
        if past is not None:
            with self._in_transaction():
                totals = self.ledger.state.totals
                if not totals.samples and not totals.taught:  # otherwise it has been warmed up already
                    self.ledger.warm_up(*past)
                    self._commit({"kind": "warm start", "samples": len(past[0]), "cells": {}})

    @classmethod
    def open(
        cls,
        store: Any,
        name: str = "default",
        *,
        read_only: bool = False,
        timeout: float = 10.0,
        levels: Mapping[Name, Sequence[Label]] | None = None,
    ) -> Stream:
        """A stream that is stored, with the settings it was made with.

        read_only: for looking only; the store is not written to, and no writer has to wait.
        """
        location = _read_location(store)
        if location is None:
            raise InputError("store is None: a stream in memory ends with its process, so there is none to open.")
        seconds = read_positive(timeout, "timeout")
        place, found = stored_streams(location, seconds)
        if name not in found:
            there = ", ".join(map(repr, found)) or "none"
            raise StoreError(f"store {place!r} has no stream {name!r}; it has {there}.")
        what = f"the settings of stream {name!r} in {place!r}"
        with readable(what, StoreError, "they were damaged; restore a copy."):
            settings = Settings.from_text(found[name])
        stream = cls.__new__(cls)
        stream._open(settings, location, name, seconds, levels, read_only)
        return stream

    def _open(
        self, settings: Settings, location: str | None, name: str, timeout: float, levels: Any, read_only: bool
    ) -> None:
        self.location, self.name, self.timeout = location, name, timeout
        self.levels, self.read_only = levels, read_only
        self._turn = threading.RLock()  # held by the thread whose turn it is
        self._owner: int | None = None  # the thread that has a transaction open
        self._closed = False
        self._at: Head | None = None  # the entry that left the ledger as it is in memory; None if it may be half done
        configuration = settings.to_text()
        self._store: Store = (
            MemoryStore(name, configuration)
            if location is None
            else SqlStore(open_database(location, timeout, read_only), name, configuration)
        )
        self.place = self._store.place  # without user and password
        self.configuration = self._store.configuration  # as it is kept: what the log begins with, besides the name
        # Classes are called as they were when the stream was made.
        self.settings = settings if self.configuration == configuration else Settings.from_text(self.configuration)
        self.ledger = Ledger(self.settings, levels)
        self._group = GroupCommit(self._store, self._in_transaction)

    # Deciding

    def update(
        self,
        z: Any,  # (n,), or (n, d)
        groups: Any,
        batch_id: Any = None,
        *,
        targets: Any = None,  # (n,), or (n, d)
        features: Any = None,
        ids: Sequence[Any] | None = None,
    ) -> Solution:
        """Decide one batch. `gaps` of the solution are the pooled ones, after it.

        batch_id: sent again, a batch returns what was emitted the first time, and counts once; another batch under
        the same id is refused.
        targets: where constraints need them and they are known; otherwise pass `ids`, one per sample, and the targets
        later to `observe`.
        """
        batch = {"z": z, "groups": groups, "batch_id": batch_id, "targets": targets, "features": features, "ids": ids}
        (outcome,) = self.update_many([batch])
        if isinstance(outcome, FairlayerError):
            raise outcome
        return outcome

    def update_many(self, batches: Sequence[Mapping[str, Any]]) -> list[Solution | FairlayerError]:
        """Decide batches of several callers, in order, in one transaction of the store.

        batches: the arguments of `update`, by name, of each. Each batch counts by itself, as if `update` had been
        called with it: where one is refused, its error stands in place of its solution, and the others are decided.
        """
        self._refuse_reader()
        works: list[Work | FairlayerError] = []
        for arguments in batches:
            try:
                batch = read_batch(self.settings, **arguments)
                works.append(Work(batch.batch_id, partial(self._decide, batch)))
            except FairlayerError as error:
                works.append(error)
        todo = [work for work in works if isinstance(work, Work)]
        if todo and self._store.keeps_state and self._owner != threading.get_ident():
            self._group.submit(todo)  # together with those of other threads
        else:
            self._group.one_by_one(todo)
        return [work.result() if isinstance(work, Work) else work for work in works]

    def _decide(self, batch: Batch) -> Solution:
        """Decide a batch, as part of a transaction."""
        entry = None if batch.batch_id is None else self._store.find(batch.batch_id)
        if entry is None and batch.ids:
            waiting = list(self._store.pending(batch.ids))  # an id is free again when its target has been observed
            if waiting:
                raise InputError(f"ids {waiting[:5]} are already waiting for a target: give every decision its own id.")
        cell = self.ledger.locate(batch, new=entry is None)
        if entry is not None:
            return replay(entry, batch, cell)
        if batch.n == 0:
            return self.ledger.unchanged(batch)
        solution, value, payload = decide(self.ledger, batch, cell)
        self._commit(payload, batch.batch_id, None if batch.batch_id is None else value.tobytes())
        return solution

    def observe(self, ids: Sequence[Any], targets: Any) -> dict[str, float]:
        """Enter the targets of decisions made earlier, by the ids given to `update`; `gaps()` after that."""
        self._refuse_reader()
        if not self.settings.rules.needs_targets:
            raise InputError("no constraint of this stream needs targets: there is nothing to observe.")
        values = read_targets(targets)
        keys = read_ids(ids, len(values))
        if not keys:
            return self.gaps()
        with self._in_transaction():
            taken = self._store.pending(keys)
            unknown = [key for key in keys if key not in taken]
            if unknown:
                raise InputError(f"ids {unknown[:5]} are not waiting for a target: never decided, or observed before.")
            changes = self.ledger.enter_targets([taken[key] for key in keys], values)
            self.ledger.measure()
            self._commit({"kind": "targets", "samples": len(keys), "cells": changes, "observed": taken})
            return self.gaps()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Several updates that become durable together: faster, and all or nothing."""
        with self._turn:
            before = self._snapshot()
            try:
                with self._in_transaction():
                    yield
            except BaseException:
                self._restore(before)
                raise

    # Asking

    def gaps(self) -> dict[str, float]:
        """Value of each pooled row now, by its name."""
        with self._in_transaction():
            view = self.ledger.view()
            return dict(zip(view.names, view.values(self.ledger.statistics()).tolist(), strict=True))

    def certificate(self) -> Certificate:
        """What can be said of the stream so far, as plain data; `str` makes it readable."""
        with self._in_transaction():
            return certify(self.name, self.ledger, self._store.head())

    def timeline(self) -> Timeline:
        """How the stream came to be what it is: gaps, groups and changes over time, computed again from the log."""
        with self._in_transaction():
            return trace(Ledger(self.settings, self.levels, self.ledger.to_bytes()), self._store.entries())

    def entries(self) -> Iterator[Entry]:
        """The log, entry by entry, as it is stored."""
        with self._in_transaction():
            yield from self._store.entries()

    def verify(self, hash: str | None = None) -> Verification:  # noqa: A002
        """Compute the ledger again from the log, and find any change.

        hash: of an earlier certificate, kept elsewhere. It must be in the chain, which then was not written anew since.
        """
        with self._turn:
            if self._owner is None:
                self._at = None  # what counts is what is stored, not what is in memory
            with self._in_transaction(as_found=True):
                kept = [one for one in (hash, self._store.seen and self._store.seen[1]) if one is not None]
                return verify_log(self._store, self.ledger.recorded(), kept)

    def close(self) -> None:
        """Let go of files and connections. A closed stream is of no more use: make another to go on."""
        with self._turn:
            if self._owner is not None:
                raise StoreError("a transaction is open: close the stream after it.")
            self._closed = True
            self._store.close()

    def __repr__(self) -> str:
        return f"<Stream {self.name!r} ({self.settings.policy}) in {self.place}>"

    # Keeping

    def _snapshot(self) -> Any:
        """Everything that a stream in memory holds; None for one in a store, which has it all."""
        if not isinstance(self._store, MemoryStore):
            return None
        with self._in_transaction():
            return self._store.snapshot(), self.ledger.to_bytes()

    def _restore(self, snapshot: Any) -> None:
        if isinstance(self._store, MemoryStore):
            held, block = snapshot
            self._store.restore(held)
            self.ledger = Ledger(self.settings, self.levels, block)

    def __getstate__(self) -> dict[str, Any]:
        opened = ("settings", "location", "name", "timeout", "levels", "read_only")
        return {"opened": {key: getattr(self, key) for key in opened}, "snapshot": self._snapshot()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._open(**state["opened"])
        self._restore(state["snapshot"])

    def _refuse_reader(self) -> None:
        if self.read_only:
            raise StoreError(f"stream {self.name!r} was opened to be read only: open it without read_only=True.")

    @contextmanager
    def _in_transaction(self, batch_ids: Sequence[str] = (), as_found: bool = False) -> Iterator[None]:
        """A transaction with the state of the last one, whichever process wrote it; joined if this thread has one open.

        batch_ids, as_found: see `SqlStore.transaction`.
        """
        with self._turn:
            if self._closed:
                raise StoreError(f"stream {self.name!r} is closed: create another with the same store and name.")
            if self._owner is not None:
                yield
                return
            try:
                current = self._at[1] if self._at is not None else None
                with self._store.transaction(current, batch_ids, as_found):
                    self._catch_up()
                    self._owner = threading.get_ident()
                    yield
            except BaseException:
                self._at = None  # what is in memory may be half done: read it again
                raise
            finally:
                self._owner = None

    def _catch_up(self) -> None:
        """Read the state if another process has written since."""
        if not self._store.keeps_state or self._at == self._store.head():
            return
        stored = self._store.load()
        what = f"the state of stream {self.name!r} in {self.place!r}"
        with readable(what, StoreError, "it was damaged; go back to a copy."):
            if self._at is None or stored.block is None:
                self.ledger = Ledger(self.settings, self.levels, stored.block)
            else:
                self.ledger.load_bytes(stored.block)
        # What was written only in part may be looked at; it is read, and found out, again each time.
        self._at = (stored.number, stored.hash) if stored.whole else None

    def _commit(self, payload: dict[str, Any], batch_id: str | None = None, emitted: bytes | None = None) -> None:
        """Write what was done to the log, and the state that it left."""
        block = self.ledger.to_bytes() if self._store.keeps_state else None
        entry = make_entry(self._store.head(), batch_id, payload, emitted, block)
        self._store.commit(block, entry, payload.get("waiting", {}), payload.get("observed", {}))
        self._at = entry.number, entry.hash


def _read_location(store: Any) -> str | None:
    if store is not None and not isinstance(store, str | os.PathLike):
        raise InputError(f"store must be None, a path, or a postgresql:// URL; got {store!r}.")
    return None if store is None else str(store)
