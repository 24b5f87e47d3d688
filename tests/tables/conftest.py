"""One Ray cluster for the tests of a module that need one: two workers, on this machine alone."""

from __future__ import annotations

import logging
import os
import signal
import threading
from pathlib import Path

import pytest

PROC = Path("/proc")


@pytest.fixture(scope="module")  # others start clusters too, as the documentation does, and a process has one at most
def cluster():
    """The module `ray`, connected to a cluster that ends with the tests of a module."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray = pytest.importorskip("ray", reason="needs fairlayer[ray]")
    pytest.importorskip("pyarrow", reason="needs fairlayer[ray]")
    pytest.importorskip("ray.data", reason="needs fairlayer[ray]")
    ray.init(
        num_cpus=2,
        object_store_memory=100_000_000,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    yield ray
    ray.shutdown()


@pytest.fixture
def killer(cluster):
    """Kills one worker as soon as it works on a task of the given name; `killed` then names it."""
    if not (PROC / "self" / "cmdline").exists():
        pytest.skip("processes are found by way of /proc")
    hunts = []

    def hunt(task):
        hunts.append(Hunt(task))
        hunts[-1].start()
        return hunts[-1]

    yield hunt
    for one in hunts:
        one.ended.set()
        one.join()


class Hunt(threading.Thread):
    """Looks for a worker of this process's cluster, and kills it."""

    def __init__(self, task):
        super().__init__(daemon=True)
        self.task = task
        self.ended = threading.Event()
        self.killed = None

    def run(self):
        while self.killed is None and not self.ended.wait(0.002):
            for pid in descendants(os.getpid()):
                if self.task in title(pid):
                    os.kill(pid, signal.SIGKILL)
                    self.killed = pid
                    break


def descendants(root):
    for path in PROC.glob(f"{root}/task/*/children"):
        try:
            children = path.read_text().split()
        except OSError:
            continue
        for child in map(int, children):
            yield child
            yield from descendants(child)


def title(pid):
    """What a worker of Ray says that it does; nothing for other processes."""
    try:
        words = (PROC / str(pid) / "cmdline").read_text().replace("\0", " ").strip()
    except OSError:
        return ""
    return words if words.startswith("ray::") else ""
