"""The authors' package at work on a stream, in an environment of its own."""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from peers.environments import UnavailableError, packages_of, python_of
from streams.scenarios import Scenario

AUTHORS = "fairness-training, online step"
ENVIRONMENT = "fairness-training"


def run_authors(scenario: Scenario, seconds: float) -> tuple[dict[str, Any], np.ndarray]:
    """What it reports (time of a step, version), and what it emitted within so many seconds."""
    python = python_of(ENVIRONMENT)
    with tempfile.TemporaryDirectory() as folder:
        outputs = str(Path(folder) / "emitted.npy")
        request = {"scenario": scenario.settings(), "seconds": seconds, "outputs": outputs}
        command = [python, "-m", "streams.authors", json.dumps(request)]
        done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise UnavailableError(done.stderr.strip().splitlines()[-1][:200])
        version = packages_of(ENVIRONMENT).get("fairness-training")
        return {"version": version, **json.loads(done.stdout)}, np.load(outputs)
