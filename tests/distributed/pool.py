"""Real processes that form process groups, started once and given many jobs."""

from __future__ import annotations

import datetime
import importlib
import multiprocessing
import os
import sys
import tempfile
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

MOST = 4  # processes
_SECONDS = 120.0  # that a job may take


class Failure(Exception):  # noqa: N818, a result that can also be raised
    """What a job raised: the name of its type, and its message."""

    def __init__(self, kind: str, message: str, where: str):
        super().__init__(f"{kind}: {message}\n{where}")
        self.kind, self.message = kind, message

    def __reduce__(self) -> Any:
        return type(self), (self.kind, self.message, "")


class Pool:
    """Processes of one process group, and for every smaller number of them a group of the first so many."""

    def __init__(self, size: int = MOST, timeout: float = 240.0):
        self.folder = tempfile.TemporaryDirectory()
        meeting = Path(self.folder.name) / "meeting"
        context = multiprocessing.get_context("spawn")
        self.pipes: list[Connection] = []
        self.processes = []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, rank, size, str(meeting), timeout), daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def start(self, job: str, arguments: list[Any]) -> None:
        """Give the first processes a job, "module:function", each with arguments of its own."""
        for pipe, own in zip(self.pipes, arguments, strict=False):
            pipe.send((job, len(arguments), own))

    def warm_up(self) -> None:
        """Have the first process compile what is not compiled yet: four at once would take too long."""
        self.start("jobs:warm_up", [None])
        if isinstance(failure := self.answer(0, 5 * _SECONDS), Failure):
            raise failure

    def answer(self, rank: int, seconds: float = _SECONDS) -> Any:
        """What a process has to say; a Failure where it failed, None where it is gone."""
        if not self.pipes[rank].poll(seconds):
            raise TimeoutError(f"rank {rank} did not answer in {seconds} s")
        try:
            return self.pipes[rank].recv()
        except EOFError:
            return None

    def run(self, job: str, arguments: list[Any]) -> list[Any]:
        """The results of a job on as many processes as there are arguments; the first Failure is raised."""
        results = self.attempt(job, arguments)
        for result in results:
            if isinstance(result, Failure):
                raise result
        return results

    def attempt(self, job: str, arguments: list[Any]) -> list[Any]:
        """The results of a job, with Failures among them."""
        self.start(job, arguments)
        return [self.answer(rank) for rank in range(len(arguments))]

    def close(self) -> None:
        """End the processes."""
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.join(2)
            if process.is_alive():
                process.kill()
                process.join()
        self.folder.cleanup()


def _work(pipe: Connection, rank: int, size: int, meeting: str, timeout: float) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.path.insert(0, str(Path(__file__).parent))
    sys.path.insert(1, str(Path(__file__).parents[1]))
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    limit = datetime.timedelta(seconds=timeout)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size, timeout=limit)
    groups = {k: dist.new_group(list(range(k)), timeout=limit) for k in range(1, size + 1)}
    while True:
        try:
            job, ranks, own = pipe.recv()
        except EOFError:
            os._exit(0)
        module, name = job.split(":")
        try:
            result = getattr(importlib.import_module(module), name)(groups[ranks], own)
        except Exception as error:
            result = Failure(type(error).__name__, str(error), traceback.format_exc())
        pipe.send(result)
