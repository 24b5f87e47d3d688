"""`Stream`: decisions one batch after another, under constraints on all of them together."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch

from fairlayer.bounds import Box, read_bounds
from fairlayer.constraints import Batch, Constraint
from fairlayer.errors import InputError
from fairlayer.groups import Column
from fairlayer.rules import Rules
from fairlayer.solution import RecordedFacts, Solution, Status
from fairlayer.stream.account import Account
from fairlayer.stream.book import Book
from fairlayer.stream.certificate import Certificate, certify, note_shares
from fairlayer.stream.leader import Leader
from fairlayer.stream.ledger import learn, settle
from fairlayer.stream.log import RECORDED, Entry, Verification, make_entry, verify_log
from fairlayer.stream.policies import POLICIES, Outcome
from fairlayer.stream.sql import open_store
from fairlayer.stream.store import MemoryStore, Pending, Store, Transaction

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
    timeout: seconds to wait for a stream that another process is writing to.
    """

    def __init__(
        self,
        constraints: Sequence[Constraint] | Constraint,
        bounds: Any = None,
        policy: Policy = "ledger",
        store: str | None = None,
        name: str = "default",
        *,
        b_tau: int = 64,
        eta: float = 0.5,
        warm_start: tuple[Any, Any] | None = None,
        timeout: float = 10.0,
    ):
        self.rules = Rules(constraints)
        if not self.rules.constraints or self.rules.affine:
            raise InputError("constraints of a stream must be fairness constraints, at least one; Affine rows are not.")
        if policy not in POLICIES:
            raise InputError(f"policy must be one of {sorted(POLICIES)}; got {policy!r}.")
        if b_tau < 0 or not eta > 0:
            raise InputError(f"b_tau must be at least 0 and eta positive; got {b_tau!r} and {eta!r}.")
        if any(isinstance(tolerance, torch.Tensor) for tolerance in self.rules.tolerances()):
            raise InputError("a stream's tolerances must be numbers: gradients do not flow through it.")
        self.tolerances: tuple[float, ...] = self.rules.tolerances()
        self.bounds = bounds
        if read_bounds(bounds, 2, np.float64).per_sample:
            raise InputError("bounds of a stream must be numbers: what was emitted before must lie within them.")
        self.policy = policy
        self.name = name
        self.b_tau = b_tau
        self.eta = eta
        self.timeout = timeout
        self.location = store
        self._reset()
        self._store = self._open()
        if warm_start is not None:
            self._teach(*warm_start)

    def _reset(self) -> None:
        self.book = Book(self.rules)
        self.account = Account()
        self.leader = Leader(self.book, self.account)
        self._at: tuple[int, str] | None = None
        self._transaction: Transaction | None = None
        self._cell_names: list[str] = []

    def _open(self) -> Store:
        if self.location is None:
            return MemoryStore()
        return open_store(str(self.location), self.name, self.configuration, self.timeout)

    @property
    def configuration(self) -> str:
        """What a stored stream must agree with to be continued."""
        settings: dict[str, Any] = {
            "constraints": [constraint.key for constraint in self.rules.constraints],
            "tolerances": self.tolerances,
            "bounds": [None if side is None else float(side) for side in self.bounds or (None, None)],
            "policy": self.policy,
        }
        if self.policy == "primal-dual":
            settings |= {"b_tau": self.b_tau, "eta": self.eta}
        return json.dumps(settings)

    # Deciding

    def update(
        self,
        z: Any,  # (n,)
        groups: Any,
        batch_id: str | None = None,
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
        raw, like = _read_outputs(z)
        n = len(raw)
        if targets is not None:
            targets = np.asarray(targets, dtype=np.float64).reshape(-1)
            if len(targets) != n or not np.isfinite(targets).all():
                raise InputError(f"targets must be {n} finite numbers, one per output.")
        waiting = bool(self.rules.needs_targets) and targets is None
        if waiting and self.policy == "primal-dual":
            raise InputError(f"targets is missing: Algorithm 1 measures {self.rules.needs_targets} in every batch.")
        keys = _read_ids(ids, n) if waiting else None
        with self._whole() as transaction:
            if batch_id is not None:
                entry = transaction.find(str(batch_id))
                if entry is not None:
                    return _replay(entry, raw, like)
            columns = self.book.columns(n, groups, features, targets)
            if n == 0:
                nothing = np.zeros(0)
                return Solution(like(raw), RecordedFacts((), nothing, nothing, Status.VACUOUS))
            cell = self.book.locate(columns, n)
            self._grow()
            touched = np.unique(cell)
            before = self._record(touched)
            box = read_bounds(self.bounds, n, raw.dtype)
            outcome = POLICIES[self.policy](self, raw, cell, box, targets, groups, features)
            self._settle(raw, outcome, cell, targets, box)
            if keys is not None:
                outputs, raws = outcome.value.tolist(), raw.tolist()
                decisions = zip(cell.tolist(), outputs, raws, strict=True)
                transaction.add_pending({key: Pending(*one) for key, one in zip(keys, decisions, strict=True)})
            facts = self._facts(outcome, waiting)
            payload = {
                "kind": "batch",
                "samples": n,
                "cells": self._changes(touched, before),
                "rows": facts.rows,
                "gaps": facts.gaps.tolist(),
                "multipliers": facts.multipliers.tolist(),
                "status": facts.status.name,
                "vacuous": facts.vacuous,
                "excess": facts.excess,
            }
            self._commit(transaction, batch_id, payload, outcome.value.tobytes() if batch_id is not None else None)
        return Solution(like(outcome.value), facts)

    def observe(self, ids: Sequence[Any], targets: Any) -> None:
        """Enter the targets of decisions made earlier, by the ids given to `update`."""
        if not self.rules.needs_targets:
            raise InputError("no constraint of this stream needs targets: there is nothing to observe.")
        values = np.asarray(targets, dtype=np.float64).reshape(-1)
        keys = _read_ids(ids, len(values))
        if not np.isfinite(values).all():
            raise InputError("targets must be finite.")
        with self._whole() as transaction:
            taken = transaction.take_pending(keys)
            unknown = [key for key in keys if key not in taken]
            if unknown:
                transaction.add_pending(taken)
                raise InputError(f"ids {unknown[:5]} are not waiting for a target: never decided, or observed before.")
            cells = self._with_targets([taken[key].cell for key in keys], values)
            self._grow()
            touched = np.unique([*(taken[key].cell for key in keys), *cells])
            before = self._record(touched)
            for key, cell, target in zip(keys, cells, values.tolist(), strict=True):
                self._move(taken[key], cell, target)
            self.leader.solve(read_bounds(self.bounds, 1, np.float64), self.tolerances)
            payload = {"kind": "targets", "samples": len(keys), "cells": self._changes(touched, before)}
            self._commit(transaction, None, payload, None)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Several updates that become durable together: faster, and all or nothing."""
        with self._whole():
            yield

    # Asking

    def gaps(self) -> dict[str, float]:
        """Value of each pooled row now, by its name."""
        with self._whole():
            return dict(zip(*self._pooled(), strict=True))

    def certificate(self) -> Certificate:
        """What can be said of the stream so far, as plain data; `str` makes it readable."""
        with self._whole() as transaction:
            return certify(self, transaction.head()[1])

    def verify(self) -> Verification:
        """Compute the ledger again from the log, and find any change."""
        with self._whole() as transaction:
            recorded = self._record(np.arange(len(self.account)))
            ledger = {self._cell_name(c): recorded[c].tolist() for c in range(len(recorded))}
            return verify_log(self._store.entries(), ledger, transaction.head()[1])

    def close(self) -> None:
        """Let go of files and connections."""
        self._store.close()

    # Keeping

    def state_dict(self) -> dict[str, Any]:
        """Everything, as plain data. For a stream in memory; one in a store is there already."""
        with self._whole() as transaction:
            state: dict[str, Any] = {
                "configuration": self.configuration,
                "state": self.account.to_bytes(self.book.to_data()),
                "head": transaction.head(),
            }
            if isinstance(self._store, MemoryStore):
                state |= self._store.to_data()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another stream of the same settings stood."""
        if not isinstance(self._store, MemoryStore):
            raise InputError("a stream with a store continues from the store: open it by its name instead.")
        if state["configuration"] != self.configuration:
            raise InputError(f"state is of a stream with other settings: {state['configuration']}.")
        self._reset()
        self._store.load_data(state)
        self._load(state["state"])

    def __getstate__(self) -> dict[str, Any]:
        settings = ("rules", "tolerances", "bounds", "policy", "name", "b_tau", "eta", "timeout", "location")
        kept = {key: getattr(self, key) for key in settings}
        return {"settings": kept, "state": self.state_dict() if self.location is None else None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state["settings"])
        self._reset()
        self._store = self._open()
        if state["state"] is not None:
            self.load_state_dict(state["state"])

    # Inside a transaction

    @contextmanager
    def _whole(self) -> Iterator[Transaction]:
        """A transaction with the state of the last one, whoever wrote it; joined if one is open already."""
        if self._transaction is not None:
            yield self._transaction
            return
        with self._store.transaction() as transaction:
            if self._store.keeps_state and self._at != transaction.head():
                stored = transaction.load()
                self._reset()
                if stored.block is not None:
                    self._load(stored.block)
                self._at = (stored.number, stored.hash)
            self._transaction = transaction
            try:
                yield transaction
            except BaseException:
                self._at = None  # what is in memory may be half done: read it again
                raise
            finally:
                self._transaction = None

    def _load(self, block: bytes) -> None:
        self.account, data = Account.from_bytes(block)
        self.book.load_data(data)
        self.leader = Leader(self.book, self.account)

    def _commit(
        self, transaction: Transaction, batch_id: str | None, payload: dict[str, Any], emitted: bytes | None
    ) -> None:
        number, previous = transaction.head()
        entry = make_entry(number + 1, previous, None if batch_id is None else str(batch_id), payload, emitted)
        block = self.account.to_bytes(self.book.to_data()) if self._store.keeps_state else None
        transaction.commit(block, entry)
        self._at = (entry.number, entry.hash)

    def _grow(self) -> None:
        self.account.grow(len(self.book))

    def _settle(self, raw: np.ndarray, outcome: Outcome, cell: np.ndarray, targets: Any, box: Box) -> None:
        """Enter what was emitted, and let the leader learn."""
        cells, numbers = self.account.cells, self.account.numbers
        changed, change, square, largest = settle(
            raw,
            outcome.value,
            cell,
            cells["count"],
            cells["total"],
            cells["total_low"],
            cells["square"],
            cells["ring"],
            cells["ring_count"],
            cells["past"],
        )
        if targets is not None:
            for c, target in zip(cell.tolist(), targets.tolist(), strict=True):
                _add(cells, "target", c, target)
        numbers["batches"] += 1
        numbers["samples"] += len(raw)
        numbers["changed"] += changed
        numbers["change"] += change
        numbers["square_change"] += square
        numbers["largest_change"] = max(numbers["largest_change"], largest)
        numbers["excess"] = max(numbers["excess"], outcome.excess)
        note_shares(self, outcome.value, cell)
        if self.policy == "ledger":
            self.leader.follow(box, self.tolerances)

    def _facts(self, outcome: Outcome, waiting: bool) -> RecordedFacts:
        names, gaps = self._pooled()
        view = self._view()
        largest = self.account.largest or [0.0] * len(self.tolerances)
        for position in range(len(largest)):
            here = np.abs(gaps[view.owner == position])
            largest[position] = max(largest[position], float(here.max(initial=0.0)))
        self.account.largest = largest
        status = outcome.status
        if waiting and status in (Status.OPTIMAL, Status.VACUOUS):
            status = Status.UNCERTIFIED
        elif status is Status.OPTIMAL and view.vacuous:
            status = Status.VACUOUS
        return RecordedFacts(names, gaps, outcome.multipliers, status, view.vacuous, outcome.excess)

    def _view(self) -> Any:
        plan = self.book.plan
        return plan.view(self.account.cells["count"] @ plan.membership > 0)

    def _pooled(self) -> tuple[tuple[str, ...], np.ndarray]:
        view = self._view()
        return view.names, self.leader.pooled(view)

    def _record(self, touched: np.ndarray) -> np.ndarray:
        return np.stack([self.account.cells[name][touched] for name in RECORDED], axis=-1)

    def _changes(self, touched: np.ndarray, before: np.ndarray) -> dict[str, Any]:
        after = self._record(touched).tolist()
        return {self._cell_name(c): [b, a] for c, b, a in zip(touched.tolist(), before.tolist(), after, strict=True)}

    def _cell_name(self, cell: int) -> str:
        while len(self._cell_names) <= cell:
            labels = self.book.to_data()["labels"]
            digits = self.book.digits[len(self._cell_names)]
            self._cell_names.append(json.dumps([labels[j][digit] for j, digit in enumerate(digits)]))
        return self._cell_names[cell]

    def _with_targets(self, cells: list[int], targets: np.ndarray) -> list[int]:
        """The cells these samples belong to now that their targets are known."""
        columns: dict[Any, Column] = {}
        for constraint in self.rules.constraints:
            if constraint.needs_targets:
                columns.update(constraint.columns(Batch(None, targets)))
        numbers = []
        for i, cell in enumerate(cells):
            labels = list(self.book.cell_labels(cell))
            for j, key in enumerate(self.book.keys):
                if key in columns:
                    column = columns[key]
                    labels[j] = column.labels[column.values[i]]  # type: ignore[index]
                elif key == ("labelled",):
                    labels[j] = True
            numbers.append(self.book.number(labels))
        return numbers

    def _move(self, decision: Pending, cell: int, target: float) -> None:
        """Take a decision out of the cell without a target, into the one with it."""
        cells = self.account.cells
        for c, sign in ((decision.cell, -1.0), (cell, 1.0)):
            cells["count"][c] += sign
            cells["square"][c] += sign * decision.output**2
            _add(cells, "total", c, sign * decision.output)
        _add(cells, "target", cell, target)
        learn(cells["ring"], cells["ring_count"], cells["past"], cells["ring"].shape[1], cell, decision.raw)

    def _teach(self, raw: Any, groups: Any) -> None:
        """Let the leader learn from past data, unless the stream has begun already."""
        values, _ = _read_outputs(raw)
        with self._whole():
            if self.account.numbers["samples"]:
                return
            columns = self.book.columns(len(values), groups, None, None)
            cell = self.book.locate(columns, len(values))
            self._grow()
            self.leader.teach(values, cell)
            self.account.numbers["taught"] += len(values)
            self.leader.solve(read_bounds(self.bounds, 1, np.float64), self.tolerances)


def _add(cells: dict[str, np.ndarray], name: str, cell: int, value: float) -> None:
    """Add to a sum kept in two parts."""
    high, low = cells[name], cells[name + "_low"]
    total = high[cell] + value
    part = total - high[cell]
    low[cell] += (high[cell] - (total - part)) + (value - part)
    high[cell] = total


def _read_outputs(z: Any) -> tuple[np.ndarray, Any]:
    """Outputs as an array, and how to give them back."""
    if isinstance(z, torch.Tensor):
        shape, device = z.shape, z.device
        array = z.detach().cpu().numpy() if z.dtype in (torch.float32, torch.float64) else None
        like = lambda value: torch.from_numpy(value).reshape(shape).to(device)  # noqa: E731
    else:
        array = np.asarray(z)
        shape = array.shape
        array = array if array.dtype in (np.float32, np.float64) else None
        like = lambda value: value.reshape(shape)  # noqa: E731
    if array is None:
        raise InputError(f"z must hold float32 or float64; got {z.dtype if hasattr(z, 'dtype') else type(z).__name__}.")
    if array.ndim > 2 or (array.ndim == 2 and array.shape[1] != 1) or array.ndim == 0:
        raise InputError(f"z has shape {tuple(shape)}: pass one output per sample, shape (n,) or (n, 1).")
    flat = np.ascontiguousarray(array.reshape(-1))
    if not np.isfinite(flat).all():
        position = int(np.flatnonzero(~np.isfinite(flat))[0])
        raise InputError(f"z[{position}] is {flat[position]}: outputs must be finite.")
    return flat, like


def _read_ids(ids: Sequence[Any] | None, n: int) -> list[str]:
    if ids is None:
        raise InputError("ids is missing: targets come later, so name the samples, and pass the names to observe.")
    keys = [str(one) for one in (ids.tolist() if hasattr(ids, "tolist") else ids)]
    if len(keys) != n or len(set(keys)) != n:
        raise InputError(
            f"ids must be {n} different names, one per sample; got {len(keys)}, {len(set(keys))} different."
        )
    return keys


def _replay(entry: Entry, raw: np.ndarray, like: Any) -> Solution:
    """What was emitted when this batch came first."""
    payload = json.loads(entry.payload)
    if payload["samples"] != len(raw) or entry.emitted is None:
        raise InputError(
            f"batch_id {entry.batch_id!r} was used for a batch of {payload['samples']} samples, this one has "
            f"{len(raw)}: give every batch an id of its own."
        )
    value = np.frombuffer(entry.emitted, dtype=raw.dtype).copy()
    facts = RecordedFacts(
        tuple(payload["rows"]),
        np.array(payload["gaps"]),
        np.array(payload["multipliers"]),
        Status[payload["status"]],
        tuple(payload["vacuous"]),
        payload["excess"],
    )
    return Solution(like(value), facts)
