"""The site, built once for all tests that look at it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys

import pytest
from built import ROOT

sys.path.append(str(ROOT / "docs" / "scripts"))


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder of the site, built strictly: a warning is an error. Processes that test side by side share it."""
    pytest.importorskip("mkdocs", reason="the documentation needs mkdocs-material and mkdocstrings")
    own = tmp_path_factory.getbasetemp()
    place = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    folder, done = place / "site", place / "site-is-built"
    with (place / "site-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # who comes second waits for the first
        if not done.exists():
            command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
            environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "OMP_NUM_THREADS": "1"}
            built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
            assert built.returncode == 0, built.stdout + built.stderr
            done.touch()
    return folder
