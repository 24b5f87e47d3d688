"""Whole programmes started by torchrun: the example, Lightning, Accelerate. Each is the run of a single process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "torchrun_layer.py"


def run(processes: int, script: Path, *arguments: str) -> str:
    """What a script prints, on so many processes."""
    command = [sys.executable, str(script), *arguments]
    if processes > 1:
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        command = [sys.executable, *torchrun, str(script), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for _ in range(5):
        result = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, check=False)
        if "terminate called without an active exception" not in result.stderr:
            break  # on a busy machine gloo's threads may do that as a process ends, with nothing but torch in it
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


def test_the_example():
    """Its run on two processes is its run on one, as far as it prints."""
    alone = run(1, EXAMPLE)
    assert "holds exactly" in alone
    assert run(2, EXAMPLE) == alone


@pytest.mark.parametrize("framework", ["lightning", "accelerate"])
def test_a_framework(framework, tmp_path):
    pytest.importorskip(framework)
    for processes in (1, 2):
        run(processes, HERE / "frameworks.py", framework, str(tmp_path / f"{processes}.json"))
    alone, together = (json.loads((tmp_path / f"{processes}.json").read_text()) for processes in (1, 2))
    assert together["gap"] <= 0.02
    np.testing.assert_allclose(together["losses"], alone["losses"], rtol=1e-12)
    for found, expected in zip(together["parameters"], alone["parameters"], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
