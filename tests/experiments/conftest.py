"""What the tests of the experiments share: each experiment's quick profile, run once by whichever process needs it."""

from __future__ import annotations

import json
import os
from functools import cache

import pytest
from filelock import FileLock


@pytest.fixture(scope="session")
def quick(tmp_path_factory):
    """Run the quick profile of an experiment; the folder of its results."""
    from experiments.runner import run

    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    @cache
    def home(name):
        done = shared / f"{name}.done"
        with FileLock(shared / f"{name}.lock"):
            if not done.exists():
                run(name, "quick", jobs=1, folder=shared / "quick", progress=False)
                done.touch()
        return shared / "quick" / name / "quick"

    return home


@pytest.fixture(scope="session")
def results_of(quick):
    """The results of an experiment's quick profile, one per unit."""
    return lambda name: [json.loads(line) for line in (quick(name) / "units.jsonl").read_text().splitlines()]
