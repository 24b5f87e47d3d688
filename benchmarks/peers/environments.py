"""A virtual environment per peer under `.venvs/`, so that the project's own stays clean."""

import hashlib
import json
import subprocess
import sys
import venv
from functools import cache
from importlib.metadata import version
from pathlib import Path

from peers.catalogue import PROJECT, REQUIREMENTS, SOURCES

ROOT = Path(__file__).parents[2] / ".venvs"
INSTALL_SECONDS = 1800
LIST_PACKAGES = (
    "import json; from importlib.metadata import distributions;"
    "print(json.dumps({d.name.lower().replace('_', '-'): d.version for d in distributions()}))"
)


class UnavailableError(Exception):
    """A peer's environment cannot be made here; the message says why."""


def python_of(environment: str) -> str:
    """Path of an environment's Python, installed on first use."""
    outcome = _prepare(environment)
    if isinstance(outcome, UnavailableError):
        raise outcome
    return outcome


@cache
def _prepare(environment: str) -> str | UnavailableError:
    """Install an environment once; a failure is kept too, or every size of the peer would try again.

    Where a peer needs torch, it comes first and alone, in the version the project uses: left to a peer's
    requirements, pip may choose another, several gigabytes larger. The second step names it again, so that it stays.
    """
    if environment == PROJECT:
        return sys.executable
    home = ROOT / environment
    pinned = {"torch": f"torch=={version('torch').partition('+')[0]}"}
    requirements = [pinned.get(name, name) for name in ("numpy", *REQUIREMENTS[environment])]
    first = [name for name in requirements if name in pinned.values()]
    source = SOURCES.get(environment, ())
    wanted = hashlib.sha256("\n".join([sys.version, *requirements, *source]).encode()).hexdigest()
    stamp, python = home / "installed", str(home / "bin" / "python")
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"   installing {', '.join(REQUIREMENTS[environment])}", flush=True)
    try:
        venv.create(home, with_pip=True, clear=True)
        for step in filter(None, (first, requirements)):
            command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *step]
            _run(*command)
        if source:
            repository, commit = source
            _run("git", "clone", "--quiet", repository, str(home / "source"))
            _run("git", "-C", str(home / "source"), "checkout", "--quiet", commit)
    except subprocess.TimeoutExpired:
        return UnavailableError(f"does not install within {INSTALL_SECONDS} s")
    except subprocess.CalledProcessError as error:
        complaints = [line for line in (error.stderr or "").splitlines() if line.startswith(("ERROR", "fatal"))]
        reason = complaints[-1] if complaints else f"{error.cmd[0]} failed"
        return UnavailableError(f"does not install: {reason[:200]}")
    stamp.write_text(wanted)
    return python


def _run(*command: str) -> None:
    subprocess.run(command, capture_output=True, text=True, check=True, timeout=INSTALL_SECONDS)


@cache
def packages_of(environment: str) -> dict[str, str]:
    """Normalised name and version of everything installed in an environment."""
    done = subprocess.run([python_of(environment), "-c", LIST_PACKAGES], capture_output=True, text=True, check=True)
    return dict(sorted(json.loads(done.stdout).items()))
