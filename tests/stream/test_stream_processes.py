"""Several processes write to one stream, and some of them are killed: see soak.py."""

import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).with_name("soak.py")


@pytest.mark.parametrize(
    "kills",
    [
        ["--kills", "10"],
        ["--kills", "0", "--writers", "4", "--batches", "10"],
        ["--kills", "8", "--of", "decisions"],
        ["--kills", "8", "--of", "classes"],
    ],
)
def test_nothing_is_lost_nothing_counts_twice_and_the_promise_holds(location, kills):
    """In a process of its own, as it forks; 10 kills of one of two writers, then four writers at once; of means, of
    decisions, and of class probabilities."""
    command = [sys.executable, SOAK, "--at", location, "--seconds", "120", *kills]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 problems" in done.stdout
    assert f"{kills[1]} kills" in done.stdout


def test_the_server_dies_too(postgres_server):
    """A server of its own, as it is ended and started again while writers are killed."""
    few = ["--kills", "4", "--restarts", "4", "--seconds", "120"]
    done = subprocess.run(
        [sys.executable, SOAK, "--databases", "postgresql", *few], capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 restarts" in done.stdout
    assert "0 problems" in done.stdout
