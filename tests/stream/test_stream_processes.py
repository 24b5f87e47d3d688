"""Several processes write to one stream, and some of them are killed: see soak.py."""

import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).with_name("soak.py")


@pytest.mark.parametrize(
    ("place", "options"),
    [
        ("sqlite", "--kills 8 --of classes"),
        ("postgresql", "--kills 0 --writers 3 --batches 8"),
        ("a server of its own", "--kills 4 --restarts 2 --of decisions"),
    ],
)
def test_nothing_is_lost_nothing_counts_twice_and_the_promise_holds(request, tmp_path, place, options):
    """In a process of its own, as it forks."""
    where = ["--at", str(tmp_path / "stream.db")]
    if place == "postgresql":
        where[1] = request.getfixturevalue("postgres")
    elif place != "sqlite":
        request.getfixturevalue("postgres_server")  # skips where there is none
        where = ["--databases", "postgresql"]
    command = [sys.executable, SOAK, *where, "--seconds", "120", *options.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 problems" in done.stdout
    assert f"{options.split()[1]} kills" in done.stdout
    assert f"{2 if 'restarts' in options else 0} restarts" in done.stdout
