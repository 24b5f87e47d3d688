"""In a container whose packages and home folder are read-only, everything works from the first call on."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fairlayer

FIRST_USE = Path(__file__).parent / "first_use.py"
CANNOT_WRITE = """
import pathlib, sys
for folder in sys.argv[1:]:
    try:
        pathlib.Path(folder, "written").touch()
    except PermissionError:
        continue
    raise AssertionError(f"{folder} is not read-only")
"""
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1  # of linux/prctl.h and linux/capability.h


def obey_permissions() -> None:
    """Make permissions hold for root too, in the process that is about to start; others cannot ignore them anyway."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)


@pytest.fixture
def container(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that may write neither to the package nor to its home folder."""
    site, home = tmp_path / "site-packages", tmp_path / "home"
    home.mkdir()
    shutil.copytree(Path(fairlayer.__file__).parent, site / "fairlayer", ignore=shutil.ignore_patterns("__pycache__"))
    for path in (home, site, *site.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    return {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(site)}


@pytest.mark.skipif(sys.platform != "linux", reason="root is made to obey permissions as Linux does it")
def test_read_only_packages_and_home(container: dict[str, str], tmp_path: Path) -> None:
    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            env=container,
            cwd=container["HOME"],
            preexec_fn=obey_permissions,
            capture_output=True,
            text=True,
        )

    package = Path(container["PYTHONPATH"], "fairlayer")
    for arguments in (("-c", CANNOT_WRITE, package, container["HOME"]), (FIRST_USE, tmp_path)):
        done = run(*arguments)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
    assert not list(package.rglob("__pycache__"))
