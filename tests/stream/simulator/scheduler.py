"""Tasks that take turns: who is next, and what time it is, depends on the seed alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import greenlet

_STEP = 0.001  # seconds that a step takes
_FOREVER = float("inf")


class Stuck(Exception):  # noqa: N818
    """Tasks wait for each other, or never come to an end."""


class Task:
    """Something that runs until it pauses."""

    def __init__(self, name: str, run: Callable[[], None], owner: Any = None):
        self.name = name
        self.owner = owner  # the process it belongs to
        self.ready: Callable[[], bool] = lambda: True
        self.until = _FOREVER  # when it goes on even if it is not ready
        self.ended = False
        self.green = greenlet.greenlet(run)


class Scheduler:
    """One task runs at a time; each step of it ends in `pause` or `wait`."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.now = 0.0
        self.trace: list[str] = []
        self.steps = 0
        self._tasks: list[Task] = []
        self._current: Task | None = None
        self._between: list[Callable[[], None]] = []
        self._hub = greenlet.getcurrent()

    @property
    def owner(self) -> Any:
        """The process whose task has its turn."""
        return self._current.owner if self._current else None

    def start(self, name: str, run: Callable[[], None], owner: Any = None) -> Task:
        """A new task, whose turn comes some time."""
        task = Task(name, run, owner)
        task.green.parent = self._hub
        self._tasks.append(task)
        return task

    def note(self, what: str) -> None:
        """A line of the trace."""
        name = self._current.name if self._current else "world"
        self.trace.append(f"{self.now:.3f} {name}: {what}")

    def pause(self) -> None:
        """Let others have their turn."""
        self.wait(lambda: True)

    def sleep(self, seconds: float) -> None:
        """Let time go by."""
        self.wait(lambda: False, seconds)

    def wait(self, ready: Callable[[], bool], timeout: float = _FOREVER) -> bool:
        """Until it is ready, or the time is over: which of the two."""
        task = self._current
        assert task is not None
        if task.ended:
            raise greenlet.GreenletExit  # no farewell: the dead do nothing more
        task.ready, task.until = ready, self.now + timeout
        self._hub.switch()
        return ready()

    def between(self, action: Callable[[], None]) -> None:
        """Something that befalls the tasks between this step and the next; the current one goes no further."""
        self._between.append(action)
        self.pause()

    def end(self, chosen: Callable[[Task], bool]) -> None:
        """Some tasks end where they stand; only between two steps."""
        for task in [task for task in self._tasks if chosen(task)]:
            self._tasks.remove(task)
            task.ended = True
            self._current = task
            task.green.throw(greenlet.GreenletExit)
            self._current = None

    def run(self, done: Callable[[], bool], after: Callable[[], None], most: int) -> None:
        """Step by step, until it is done. after: called between two steps."""
        while not done():
            self.steps += 1
            if self.steps > most:
                raise Stuck(f"not done after {most} steps: {[task.name for task in self._tasks]}")
            able = [task for task in self._tasks if task.until <= self.now or task.ready()]
            if not able:
                self.now = min((task.until for task in self._tasks), default=_FOREVER)
                if self.now == _FOREVER:
                    raise Stuck(f"everybody waits: {[task.name for task in self._tasks]}")
                continue
            self.now += _STEP
            self._current = task = self.rng.choice(able)
            task.green.switch()
            self._current = None
            if task.green.dead and task in self._tasks:
                self._tasks.remove(task)
            while self._between:
                self._between.pop(0)()
            after()

    # What the code under test takes for modules of Python.

    def threading(self) -> Any:
        """In place of `threading`."""
        scheduler = self

        class Lock:
            """Held by one task, once or more often."""

            def __init__(self) -> None:
                self.holder: Any = None
                self.depth = 0

            def __enter__(self) -> None:
                me = scheduler._current
                if self.holder is not me:
                    if self.holder is not None:
                        scheduler.wait(lambda: self.holder is None)
                    self.holder = me
                self.depth += 1

            def __exit__(self, *_: Any) -> None:
                self.depth -= 1
                if self.depth == 0:
                    self.holder = None

        class Condition(Lock):
            """Something to wait for."""

            def wait_for(self, predicate: Callable[[], bool]) -> None:
                while not predicate():
                    self.__exit__()
                    scheduler.wait(predicate)
                    self.__enter__()

            def notify_all(self) -> None:
                """Whoever waits looks by itself."""

        class Threading:
            """The names that are used."""

        Threading.Lock = Threading.RLock = Lock  # type: ignore[attr-defined]
        Threading.Condition = Condition  # type: ignore[attr-defined]
        Threading.get_ident = staticmethod(lambda: id(scheduler._current))  # type: ignore[attr-defined]
        return Threading

    def time(self) -> Any:
        """In place of `time`."""

        class Time:
            """The names that are used."""

            monotonic = staticmethod(lambda: self.now)
            sleep = staticmethod(self.sleep)

        return Time

    def datetime(self) -> Any:
        """In place of `datetime`: clocks that agree with nothing, not even with themselves."""
        clock = random.Random(self.rng.random())

        class Clock:
            """The name that is used."""

            @staticmethod
            def now(_: Any) -> datetime:
                return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=clock.uniform(-1e6, 1e6))

        return Clock
