"""Project or audit a dataset with Ray workers, one of which is killed while it works. See suites/ray.py.

    ray_process.py project FOLDER OUTPUT
    ray_process.py audit FOLDER

The last line printed is a record of what it took, as JSON.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

WORKERS = 3
STORE = 2_000_000_000  # bytes of Ray's object store
TOLERANCE = 0.001
ATTRIBUTES = ["sex", "race", "region"]
PROC = Path("/proc")


def main(task: str, folder: str, *more: str) -> dict[str, Any]:
    """Do one task and say what it took."""
    import ray
    from ray.data import DataContext

    ray.init(
        num_cpus=WORKERS,
        object_store_memory=STORE,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        log_to_driver=False,
    )
    DataContext.get_current().enable_progress_bars = False
    # Task names of the passes: of a projection those that take sums, of an audit those that answer queries.
    watch = Watch("(sums)" if task == "project" else "(ask)")
    watch.start()
    began = time.perf_counter()
    found = (project if task == "project" else audit)(ray.data.read_parquet(folder), *more)
    seconds = time.perf_counter() - began
    watch.ended.set()
    watch.join()
    cpu = sum(map(processor_time, [os.getpid(), *descendants(os.getpid())]))
    ray.shutdown()
    return {"seconds": seconds, "cpu_s": cpu, "peak_mb": watch.peak / 2**20, "killed": watch.killed, **found}


def project(dataset: Any, output: str) -> dict[str, Any]:
    """Make the raw outputs fair, and write all columns."""
    from fairlayer import MeanParity
    from fairlayer.ray import project as run

    began = time.perf_counter()
    fair = run(dataset, "z", ATTRIBUTES, [MeanParity(TOLERANCE)], (0.0, 1.0))
    solved = time.perf_counter() - began
    fair.dataset.write_parquet(output)
    return {"solve_s": solved, "status": fair.status.name, "gap": float(abs(fair.gaps).max())}


def audit(dataset: Any) -> dict[str, Any]:
    """Audit the projected outputs."""
    from fairlayer.ray import audit as run

    return {"digest": audit_digest(run(dataset, ATTRIBUTES, constraints(), **roles()))}


def constraints() -> list[Any]:
    """What is audited, here and by the local engine."""
    from fairlayer import EqualizedOdds, MeanParity

    both = MeanParity(0.05, over=("sex", "race"), name="parity of both")
    return [MeanParity(TOLERANCE), both, EqualizedOdds(0.1, over="sex")]


def roles() -> dict[str, Any]:
    """The columns, here and in the file of the local engine."""
    return {"prediction": "fair", "target": "y", "raw": "z", "tradeoff": False}


def audit_digest(result: Any) -> str:
    """Everything that an audit found, as a digest: equal to the bit or not."""
    import hashlib

    parts = ("findings", "groups", "intersections", "overall", "calibration", "histograms", "changes", "selections")
    return hashlib.sha256(repr([getattr(result, name) for name in parts]).encode()).hexdigest()


class Watch(threading.Thread):
    """Looks at all processes of the cluster: their memory, and one worker to kill while it works on a pass."""

    def __init__(self, task: str):
        super().__init__(daemon=True)
        self.task = task
        self.ended = threading.Event()
        self.peak = 0  # bytes; what several processes share is counted once
        self.killed: list[str] = []

    def run(self) -> None:
        """Until the work has ended."""
        looks = 0
        while not self.ended.wait(1.0 if self.killed else 0.05):
            processes = list(descendants(os.getpid()))
            if self.killed or looks % 10 == 0:
                self.peak = max(self.peak, sum(map(memory, [os.getpid(), *processes])))
            working = [pid for pid in processes if not self.killed and self.task in title(pid)]
            if working:
                self.killed.append(f"{working[0]} {title(working[0])}")
                os.kill(working[0], signal.SIGKILL)
            looks += 1


def descendants(root: int) -> Iterator[int]:
    """Processes that a process has started, or that these have."""
    for path in PROC.glob(f"{root}/task/*/children"):
        try:
            children = path.read_text().split()
        except OSError:
            continue
        for child in map(int, children):
            yield child
            yield from descendants(child)


def title(pid: int) -> str:
    """What a process says that it does: workers of Ray name their task."""
    try:
        words = (PROC / str(pid) / "cmdline").read_text().replace("\0", " ").strip()
    except OSError:
        return ""
    return words if words.startswith("ray::") else ""


def memory(pid: int) -> int:
    """Bytes of a process, its part of what is shared among them."""
    try:
        lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def processor_time(pid: int) -> float:
    """Seconds of processor time that a process has taken."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
