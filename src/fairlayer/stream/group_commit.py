"""Group commit: batches of callers that wait at the same time are decided in one transaction.

The first caller leads: it takes all that wait, decides them one after another, and commits once. Meanwhile others
queue up, and one of them leads next. So the longer a transaction takes, the more batches share it. Each caller gets its
own outcome; a batch that is refused is taken out, and the others begin again without it.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from fairlayer.errors import FairlayerError, StoreError, UncertainError
from fairlayer.solution import Solution
from fairlayer.stream.store import Store, unknown_outcome

MOST = 64  # batches that a group takes in, so that other processes get their turn; one caller's stay together

Begin = Callable[[list[str]], AbstractContextManager[None]]  # a transaction in which these batch_ids are looked for


@dataclass(eq=False)
class Work:
    """One batch: how to decide it, and what came of it."""

    batch_id: str | None
    decide: Callable[[], Solution]
    outcome: Solution | Exception | None = None
    hash: str | None = None  # of its entry in the log, once it is decided; None if it made none
    served: bool = False

    def carry_out(self, store: Store) -> None:
        """Decide it, within a transaction of the store."""
        before = store.head()
        self.outcome = self.decide()
        after = store.head()
        self.hash = None if after == before else after[1]

    def result(self) -> Solution | FairlayerError:
        """What came of it; what is no mistake of its caller is raised."""
        if isinstance(self.outcome, Solution | FairlayerError):
            return self.outcome
        raise self.outcome or RuntimeError("the batch was not decided")


class GroupCommit:
    """The queue before a stream in a store."""

    def __init__(self, store: Store, begin: Begin):
        self._store = store
        self._begin = begin
        self._changed = threading.Condition()
        self._queue: list[Sequence[Work]] = []  # of every caller that waits, its batches
        self._led = False

    def submit(self, works: Sequence[Work]) -> None:
        """Return when all batches of a caller, at least one, have their outcome."""
        with self._changed:
            self._queue.append(works)
            try:
                self._changed.wait_for(lambda: works[0].served or not self._led)
            finally:  # after an interrupt, what has not been taken up yet is not decided
                if works in self._queue:
                    self._queue.remove(works)
            if works[0].served:
                return
            self._led = True
            group = list(works)
            while self._queue and len(group) + len(self._queue[0]) <= MOST:
                group += self._queue.pop(0)
        try:
            self._decide(group)
        finally:
            with self._changed:
                self._led = False
                for work in group:
                    work.served = True
                self._changed.notify_all()

    def _decide(self, works: list[Work]) -> None:
        """Decide batches in one transaction, as often as one of them is refused."""
        while works:
            now: Work | None = None
            decided = False
            try:
                with self._begin([work.batch_id for work in works if work.batch_id is not None]):
                    for now in works:
                        now.carry_out(self._store)
                    decided = True
                return
            except StoreError as error:
                for work in works:
                    work.outcome = self._told(work, error)
                return
            except Exception as error:
                if now is None or decided:  # no batch in particular is to blame
                    for work in works:
                        work.outcome = copy.copy(error)
                    return
                now.outcome = error
                works = [work for work in works if work is not now]
            except BaseException:
                reason = "the thread that decided the batch was interrupted"
                for work in works:
                    work.outcome = self._told(work, UncertainError("", reason) if decided else StoreError(reason))
                raise

    def _told(self, work: Work, error: StoreError) -> Exception:
        """An error of the whole transaction, as the caller of one batch is told of it."""
        told: StoreError
        if not isinstance(error, UncertainError):
            told = copy.copy(error)
        elif work.hash is None:  # it was counted before, or has no samples
            told = StoreError(f"store {self._store.place!r}: {error.reason}; the batch changed nothing: send it again.")
        else:
            told = unknown_outcome(self._store.place, error.reason, work.batch_id, work.hash)
        told.__cause__ = error.__cause__
        return told

    def one_by_one(self, works: Sequence[Work]) -> None:
        """Decide batches each by itself: in memory, where a group gains nothing, or in the caller's transaction."""
        for work in works:
            try:
                with self._begin([] if work.batch_id is None else [work.batch_id]):
                    work.carry_out(self._store)
            except FairlayerError as error:
                work.outcome = error
