"""Run one worker, watched: a peer may not take the machine with it."""

import json
import re
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parents[1]
MEMORY_LIMIT_MB = 8 * 1024
PATIENCE = 0.05  # seconds between looks at a worker
OUT_OF_MEMORY = re.compile("MemoryError|RESOURCE_EXHAUSTED|not enough memory|bad_alloc")


@dataclass(frozen=True)
class Outcome:
    """What a worker said before it ended, and why it ended if not by itself."""

    reports: list[dict[str, Any]]
    failure: str | None = None
    stopped: bool = False  # over the limits, so larger sizes are not tried

    @property
    def report(self) -> dict[str, Any] | None:
        """The last."""
        return self.reports[-1] if self.reports else None


def run(python: str, module: str, request: Any, time_limit: float) -> Outcome:
    """Start a worker, a module that takes a request, in a peer's environment; wait within limits of time and memory."""
    command = [python, "-m", module, json.dumps(asdict(request))]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as log:
        worker = subprocess.Popen(command, cwd=BENCHMARKS, stdout=out, stderr=log)
        try:
            over = _watch(worker, time_limit)
        finally:
            worker.kill()
            worker.wait()
        out.seek(0)
        log.seek(0)
        reports = [json.loads(line) for line in out if line.endswith("\n")]
        if over:
            return Outcome(reports, over, stopped=True)
        if worker.returncode:
            reason = _last_line(log.read())
            if OUT_OF_MEMORY.search(reason):
                return Outcome(reports, "asks for more memory than there is", stopped=True)
            return Outcome(reports, reason or f"ended with code {worker.returncode}")
    return Outcome(reports)


def _watch(worker: subprocess.Popen, time_limit: float) -> str | None:
    """Wait for the end; the reason to stop the worker, if there is one."""
    deadline = time.monotonic() + time_limit
    while worker.poll() is None:
        if time.monotonic() > deadline:
            return f"no answer within {time_limit:g} s"
        if _resident_mb(worker.pid) > MEMORY_LIMIT_MB:
            return f"memory above {MEMORY_LIMIT_MB // 1024} GB"
        time.sleep(PATIENCE)
    return None


def _resident_mb(pid: int) -> float:
    """Resident memory of another process; 0 where the system does not say, or it has just ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    sizes = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(sizes[0]) / 1024 if sizes else 0.0


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""
