"""`Stream`: decisions one batch after another, under constraints on all of them together."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch

from fairlayer.bounds import read_bounds
from fairlayer.constraints import Constraint
from fairlayer.errors import InputError
from fairlayer.rules import Rules
from fairlayer.solution import RecordedFacts, Solution, Status
from fairlayer.stream.certificate import Certificate, certify
from fairlayer.stream.ledger import Ledger
from fairlayer.stream.log import Entry, Verification, make_entry, verify_log
from fairlayer.stream.policies import POLICIES, Incoming
from fairlayer.stream.reading import read_ids, read_outputs, read_targets
from fairlayer.stream.sql import open_store
from fairlayer.stream.store import MemoryStore, Pending, Store, Transaction, differences

Policy = Literal["ledger", "primal-dual"]


class Stream:
    """A stream of decisions whose group means agree over all of them, not only within a batch.

    policy: "ledger" keeps the pooled gap within the tolerance after every batch (for mean parity always; otherwise as
    nearly as can be, and the status says so). "primal-dual" is the paper's Algorithm 1, which bounds the average gap
    of batches in the long run: batches of at least b_tau are projected, smaller ones pay a price, whose step is
    eta / sqrt(t + 1).
    store: None for memory, a path for SQLite, a postgresql:// URL. Streams are told apart by name; several processes
    may share one. Durable before `update` returns.
    bounds: (lo, hi), numbers or None.
    warm_start: (raw, groups) of past data, from which the leader learns; they do not enter the ledger.
    each_batch: keep the constraints within every batch as well, at the cost of larger changes; ledger only.
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
        warm_start: tuple[Any, Any] | None = None,
        each_batch: bool = False,
        timeout: float = 10.0,
    ):
        self.rules = Rules(constraints)
        if not self.rules.constraints or self.rules.affine:
            raise InputError("constraints of a stream must be fairness constraints, at least one; Affine is not.")
        if policy not in POLICIES:
            raise InputError(f"policy must be one of {sorted(POLICIES)}; got {policy!r}.")
        if b_tau < 0 or not eta > 0:
            raise InputError(f"b_tau must be at least 0 and eta positive; got {b_tau!r} and {eta!r}.")
        if each_batch and policy != "ledger":
            raise InputError(f"each_batch needs policy='ledger'; got {policy!r}, which has its own rule for batches.")
        if any(isinstance(tolerance, torch.Tensor) for tolerance in self.rules.tolerances()):
            raise InputError("a stream's tolerances must be numbers: gradients do not flow through it.")
        box = read_bounds(bounds, 2, np.float64)
        if box.per_sample:
            raise InputError("bounds of a stream must be numbers: what was emitted before must lie within them.")
        self.tolerances: tuple[float, ...] = self.rules.tolerances()
        self.bounds = (box.lowest, box.highest)
        self.policy = policy
        self.name = name
        self.b_tau = b_tau
        self.eta = eta
        self.each_batch = each_batch
        self.timeout = timeout
        self.location = None if store is None else str(store)
        self._begin()
        if warm_start is not None:
            raw, _ = read_outputs(warm_start[0])
            with self._whole() as transaction:
                numbers = self.ledger.account.numbers
                if not numbers["samples"] and not numbers["taught"]:  # otherwise it has been taught already
                    self.ledger.teach(raw, warm_start[1])
                    self._commit(transaction, None, {"kind": "warm start", "samples": len(raw), "cells": {}}, None)

    def _begin(self) -> None:
        self.ledger = Ledger(self.rules, self.tolerances, self.bounds)
        self._at: tuple[int, str] | None = None
        self._transaction: Transaction | None = None
        self._store: Store = (
            MemoryStore()
            if self.location is None
            else open_store(self.location, self.name, self.configuration, self.timeout)
        )

    @property
    def configuration(self) -> str:
        """What a stored stream must agree with to be continued."""
        settings: dict[str, Any] = {
            "constraints": [constraint.key for constraint in self.rules.constraints],
            "tolerances": self.tolerances,
            "bounds": [side if np.isfinite(side) else None for side in self.bounds],
            "policy": self.policy,
        }
        if self.policy == "primal-dual":
            settings |= {"b_tau": self.b_tau, "eta": self.eta}
        if self.each_batch:
            settings["each_batch"] = True
        return json.dumps(settings)

    # Deciding

    def update(
        self,
        z: Any,  # (n,)
        groups: Any,
        batch_id: Any = None,
        *,
        targets: Any = None,  # (n,)
        features: Any = None,
        ids: Sequence[Any] | None = None,
    ) -> Solution:
        """Decide one batch. `gaps` of the solution are the pooled ones, after it.

        batch_id: sent again, a batch returns what was emitted the first time, and counts once.
        targets: where constraints need them and they are known; otherwise pass `ids`, one per sample, and the targets
        later to `observe`.
        """
        raw, like = read_outputs(z)
        n = len(raw)
        known = None if targets is None else read_targets(targets, n)
        waiting = bool(self.rules.needs_targets) and known is None
        if waiting and self.policy == "primal-dual":
            raise InputError(f"targets is missing: Algorithm 1 measures {self.rules.needs_targets} in every batch.")
        keys = read_ids(ids, n) if waiting else []
        label = None if batch_id is None else str(batch_id)
        with self._whole() as transaction:
            entry = None if label is None else transaction.find(label)
            if entry is not None:
                return _replay(entry, raw, like)
            if waiting:
                _refuse_waiting(transaction, keys)
            cell = self.ledger.locate(n, groups, features, known)
            if n == 0:
                nothing = np.zeros(0)
                return Solution(like(raw), RecordedFacts((), nothing, nothing, Status.VACUOUS))
            touched = np.flatnonzero(np.bincount(cell))
            before = self.ledger.record(touched)
            batch = Incoming(raw, cell, read_bounds(self.bounds, n, raw.dtype), groups, features, known)
            outcome = POLICIES[self.policy](self, batch)
            self.ledger.enter(raw, outcome, cell, known)
            if keys:
                decisions = zip(cell.tolist(), outcome.value.tolist(), raw.tolist(), strict=True)
                transaction.add_pending({key: Pending(*one) for key, one in zip(keys, decisions, strict=True)})
            facts = self.ledger.facts(outcome, waiting)
            if self.policy == "ledger":
                self.ledger.follow(batch.box)
            binding = np.flatnonzero(facts.multipliers).tolist()
            payload = {
                "kind": "batch",
                "samples": n,
                "cells": self.ledger.changes(touched, before),
                "multipliers": {facts.rows[j]: facts.multipliers[j] for j in binding},
                "status": facts.status.name,
                "excess": facts.excess,
            }
            if label is not None:  # what a replay returns besides the outputs
                payload |= {"rows": facts.rows, "gaps": facts.gaps.tolist(), "vacuous": facts.vacuous}
            self._commit(transaction, label, payload, outcome.value.tobytes() if label is not None else None)
        return Solution(like(outcome.value), facts)

    def observe(self, ids: Sequence[Any], targets: Any) -> None:
        """Enter the targets of decisions made earlier, by the ids given to `update`."""
        if not self.rules.needs_targets:
            raise InputError("no constraint of this stream needs targets: there is nothing to observe.")
        values = read_targets(targets)
        keys = read_ids(ids, len(values))
        with self._whole() as transaction:
            taken = transaction.take_pending(keys)
            unknown = [key for key in keys if key not in taken]
            if unknown:
                transaction.add_pending(taken)
                raise InputError(f"ids {unknown[:5]} are not waiting for a target: never decided, or observed before.")
            try:
                changes = self.ledger.enter_targets([taken[key] for key in keys], values)
            except InputError:
                transaction.add_pending(taken)
                raise
            self._commit(transaction, None, {"kind": "targets", "samples": len(keys), "cells": changes}, None)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Several updates that become durable together: faster, and all or nothing."""
        before = self.state_dict() if isinstance(self._store, MemoryStore) else None
        try:
            with self._whole():
                yield
        except BaseException:
            if before is not None:
                self.load_state_dict(before)
            raise

    # Asking

    def gaps(self) -> dict[str, float]:
        """Value of each pooled row now, by its name."""
        with self._whole():
            view = self.ledger.view()
            return dict(zip(view.names, self.ledger.gaps(view).tolist(), strict=True))

    def certificate(self) -> Certificate:
        """What can be said of the stream so far, as plain data; `str` makes it readable."""
        with self._whole() as transaction:
            return certify(self, transaction.head()[1])

    def verify(self) -> Verification:
        """Compute the ledger again from the log, and find any change."""
        if self._transaction is None:
            self._at = None  # what counts is what is stored, not what is in memory
        with self._whole() as transaction:
            stored = transaction.load()
            return verify_log(self._store.entries(), self.ledger.recorded(), stored.hash, stored.block)

    def close(self) -> None:
        """Let go of files and connections. Using the stream again opens them again."""
        self._store.close()

    # Keeping

    def state_dict(self) -> dict[str, Any]:
        """Everything, as plain data. For a stream in memory; one in a store is there already."""
        with self._whole():
            state: dict[str, Any] = {"configuration": self.configuration, "ledger": self.ledger.to_bytes()}
            if isinstance(self._store, MemoryStore):
                state |= self._store.to_data()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another stream of the same settings stood."""
        if not isinstance(self._store, MemoryStore):
            raise InputError("a stream with a store continues from the store: open it by its name instead.")
        if state["configuration"] != self.configuration:
            different = differences(state["configuration"], self.configuration)
            raise InputError(f"state is of a stream with other settings: {different}. Use the same.")
        self._store.load_data(state)
        self.ledger.load_bytes(state["ledger"])

    def __getstate__(self) -> dict[str, Any]:
        settings = (
            "rules",
            "tolerances",
            "bounds",
            "policy",
            "name",
            "b_tau",
            "eta",
            "each_batch",
            "timeout",
            "location",
        )
        kept = {key: getattr(self, key) for key in settings}
        return {"settings": kept, "state": self.state_dict() if self.location is None else None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state["settings"])
        self._begin()
        if state["state"] is not None:
            self.load_state_dict(state["state"])

    @contextmanager
    def _whole(self) -> Iterator[Transaction]:
        """A transaction with the state of the last one, whoever wrote it; joined if one is open already."""
        if self._transaction is not None:
            yield self._transaction
            return
        with self._store.transaction() as transaction:
            if self._store.keeps_state and self._at != transaction.head():
                stored = transaction.load()
                self.ledger = Ledger(self.rules, self.tolerances, self.bounds)
                if stored.block is not None:
                    self.ledger.load_bytes(stored.block)
                self._at = (stored.number, stored.hash)
            self._transaction = transaction
            try:
                yield transaction
            except BaseException:
                self._at = None  # what is in memory may be half done: read it again
                raise
            finally:
                self._transaction = None

    def _commit(self, transaction: Transaction, batch_id: str | None, payload: dict[str, Any], emitted: Any) -> None:
        number, previous = transaction.head()
        block = self.ledger.to_bytes() if self._store.keeps_state else None
        entry = make_entry(number + 1, previous, batch_id, payload, emitted, block)
        transaction.commit(block, entry)
        self._at = (entry.number, entry.hash)


def _refuse_waiting(transaction: Transaction, keys: list[str]) -> None:
    """An id names one decision: it is free again when its target has been observed."""
    waiting = transaction.take_pending(keys)
    transaction.add_pending(waiting)
    if waiting:
        raise InputError(f"ids {list(waiting)[:5]} are waiting for a target already: give every decision its own.")


def _replay(entry: Entry, raw: np.ndarray, like: Any) -> Solution:
    """What was emitted when this batch came first."""
    payload = json.loads(entry.payload)
    if payload["samples"] != len(raw) or entry.emitted is None:
        raise InputError(
            f"batch_id {entry.batch_id!r} was used for a batch of {payload['samples']} samples, this one has "
            f"{len(raw)}: give every batch an id of its own."
        )
    multipliers = [payload["multipliers"].get(row, 0.0) for row in payload["rows"]]
    facts = RecordedFacts(
        tuple(payload["rows"]),
        np.array(payload["gaps"]),
        np.array(multipliers),
        Status[payload["status"]],
        tuple(payload["vacuous"]),
        payload["excess"],
    )
    return Solution(like(np.frombuffer(entry.emitted, dtype=raw.dtype).copy()), facts)
