"""`./dev` finds a Python that is new enough, and installs no more than a command needs.

Installing takes minutes, so here Python is a script that notes what it is asked for; `./dev` itself is the real one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTHON = f"""#!/bin/sh
case "$1 ${{2:-}}" in
"-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && cp "$0" "$3/bin/cmake" ;;
"-c import ziglang"*) echo /packages/ziglang ;;
"-c "*) exec {sys.executable} "$@" ;;
*) echo "$(basename "$0") $*" >>asked ;;
esac
"""
TOOLS = ["sh", "basename", "cat", "chmod", "cksum", "cp", "dirname", "mkdir", "rm", "touch"]  # all that ./dev calls
OLD = "#!/bin/sh\nexit 1\n"  # as a Python says that is too old, or a shim with nothing behind it


class Checkout:
    """A folder with what `./dev` reads, and a PATH with the Pythons that are named."""

    def __init__(self, folder: Path):
        self.folder, self.path, self.tools = folder / "checkout", folder / "bin", folder / "tools"
        for made in (self.folder, self.path, self.tools):
            made.mkdir()
        for name in ("dev", "pyproject.toml", "constraints.txt"):
            shutil.copy(ROOT / name, self.folder)
        for name in TOOLS:
            (self.tools / name).symlink_to(shutil.which(name))
        self.has("c++", script="#!/bin/sh\n")

    def has(self, *names: str, script: str = PYTHON) -> None:
        for name in names:
            (self.path / name).write_text(script)
            (self.path / name).chmod(0o755)

    def run(self, *arguments: str, expect: int = 0, **variables: str) -> str:
        environment = {"PATH": f"{self.path}{os.pathsep}{self.tools}", **variables}
        command = [shutil.which("sh"), "dev", *arguments]
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)
        assert done.returncode == expect, done.stderr
        return done.stderr

    def asked(self) -> list[str]:
        """What the environment's Python was asked for since the last time."""
        file = self.folder / "asked"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return lines


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def installed(lines: list[str]) -> list[str]:
    return [line.split()[-1] for line in lines if " -m pip install " in line]


def test_the_demo_installs_the_command_line_and_the_tests_add_the_rest(checkout: Checkout) -> None:
    checkout.has("python3.11")
    assert "1.6 GB" in checkout.run("demo", "-o", "elsewhere")
    asked = checkout.asked()
    assert installed(asked) == ["torch", "scikit-build-core", ".[cli]"]
    assert asked[-1] == "python -m experiments.demo -o elsewhere"
    assert checkout.run("demo") == ""
    assert installed(checkout.asked()) == []
    assert "3.4 GB" in checkout.run("test", "tests/cli")
    asked = checkout.asked()
    assert installed(asked) == ["torch", "scikit-build-core", ".[dev]"]
    assert asked[-1].endswith(" tests/cli")
    for command in ("demo", "test"):  # the larger one serves both
        checkout.run(command)
        assert installed(checkout.asked()) == []


def test_what_is_installed_follows_the_pins(checkout: Checkout) -> None:
    checkout.has("python3.11")
    checkout.run("test")
    checkout.asked()
    (checkout.folder / "constraints.txt").write_text("torch==0\n")
    checkout.run("demo")
    assert installed(checkout.asked()) == ["torch", "scikit-build-core", ".[cli]"]
    checkout.run("test")
    assert installed(checkout.asked()) == ["torch", "scikit-build-core", ".[dev]"]


@pytest.mark.parametrize("name", ["python3.12", "python3.13", "python3"])
def test_any_python_that_is_new_enough_will_do(checkout: Checkout, name: str) -> None:
    checkout.has("python3.11", "python3.12", "python3.13", "python3", script=OLD)
    checkout.has(name)
    checkout.run("python", "--version")
    assert checkout.asked()[-1] == "python --version"


def test_without_such_a_python_it_says_what_it_needs(checkout: Checkout) -> None:
    checkout.has("python3.11", "python3.12", "python3.13", "python3", script=OLD)
    assert "needs Python 3.11 or newer" in checkout.run("test", expect=2)
    assert not (checkout.folder / ".venv").exists()


def test_a_python_that_is_named_is_the_one(checkout: Checkout) -> None:
    checkout.has("python3.11", script=OLD)
    checkout.has("mine")
    checkout.run("python", PYTHON="mine")
    checkout.run("python", PYTHON="mine")  # the environment has that version
    other = PYTHON.replace(f"exec {sys.executable}", "echo 2.7; exit; #")
    checkout.has("other", script=other)
    assert "remove it to use other" in checkout.run("python", expect=2, PYTHON="other")


def test_every_python_that_the_package_names_is_looked_for_and_tested() -> None:
    named = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    assert re.search(r"python: \[(.+)\]", workflow)[1] == ", ".join(f'"{version}"' for version in named)
    assert "run: .ci/run" in workflow
    candidates = " ".join(f"python{version}" for version in named)
    assert f"${{PYTHON:-{candidates} python3}}" in (ROOT / "dev").read_text()


def test_an_environment_that_was_interrupted_is_made_again(checkout):
    checkout.has("python3.11")
    (checkout.folder / ".venv" / "bin").mkdir(parents=True)
    python = checkout.folder / ".venv" / "bin" / "python"
    python.write_text(OLD)  # it is there, but what it runs is not
    python.chmod(0o755)
    checkout.run("demo")
    assert checkout.asked()[-1] == "python -m experiments.demo"


def test_without_a_compiler_the_core_is_built_by_zig(checkout: Checkout) -> None:
    checkout.has("python3.11")
    (checkout.path / "c++").unlink()
    assert "found no C++ compiler (tried c++, g++, clang++)" in checkout.run("python")
    assert installed(checkout.asked()) == ["torch", "scikit-build-core", ".[dev]", "ziglang"]
    wrapper = checkout.folder / ".venv" / "zig" / "c++"
    assert 'exec "/packages/ziglang/zig" c++ -mcpu=baseline "$@"' in wrapper.read_text()
    assert os.access(wrapper, os.X_OK)
    assert checkout.run("python") == ""  # from the second time on, it is there
    assert installed(checkout.asked()) == []


def test_a_compiler_that_is_named_is_the_one(checkout: Checkout) -> None:
    checkout.has("python3.11")
    checkout.has("mine", script="#!/bin/sh\n")
    checkout.run("python", CXX="mine")
    assert "ziglang" not in installed(checkout.asked())
    assert "tried absent" in checkout.run("python", CXX="absent")


@pytest.mark.skipif("FAIRLAYER_TEST_ZIG" not in os.environ, reason="takes five minutes: set FAIRLAYER_TEST_ZIG")
def test_the_demo_needs_nothing_but_python(checkout: Checkout) -> None:
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in files.splitlines():
        (checkout.folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout.folder / name)
    (checkout.path / "c++").unlink()
    (checkout.path / "python3.11").symlink_to(Path(sys.base_prefix) / "bin" / "python3")
    (checkout.tools / "uname").symlink_to(shutil.which("uname"))
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name == "HOME"}
    assert "found no C++ compiler" in checkout.run("demo", **pip)
    assert (checkout.folder / "demo" / "report.html").exists()


def test_an_installation_without_a_compiler_says_what_to_do(checkout: Checkout, tmp_path: Path) -> None:
    cmake = pytest.importorskip("cmake", reason="cmake is not installed: pip install cmake")
    (checkout.path / "c++").unlink()
    command = [Path(cmake.CMAKE_BIN_DIR) / "cmake", "-S", ROOT, "-B", tmp_path / "build", "-G", "Ninja"]
    command.append(f"-DCMAKE_MAKE_PROGRAM={Path(sys.executable).parent / 'ninja'}")
    done = subprocess.run(command, env={"PATH": str(checkout.tools)}, capture_output=True, text=True)
    said = " ".join(done.stderr.split())
    assert done.returncode
    assert "none was found: install one (Debian and Ubuntu: apt install g++," in said
    assert "or run ./dev wheel, which builds with the PyPI package ziglang" in said
