"""Ctrl-C, sent to real processes: one line, exit code 130, and everything as it was."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

import pytest
from people import FIT, people, write

from fairlayer.cli import INTERRUPTED as LINE

# Python runs it when it starts: the process interrupts itself the n-th time it imports, or opens, what is named.
AT = """
import os, signal, sys

name, done = os.environ["INTERRUPT_AT"], False

def interrupt(event, arguments):
    global done
    if not done and event in ("import", "open") and name in str(arguments[0]):
        done = True
        os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(interrupt)
"""


@pytest.fixture
def place(tmp_path, classifier):
    """A folder with a table and a model, and what is in it."""
    write(people(300), tmp_path / "people.csv")
    shutil.copytree(classifier, tmp_path / "model")
    return tmp_path


# Whoever runs the tests in the background has them ignore interrupts, and a child would inherit that.
HEED = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def start(folder, *arguments, **environment):
    command = [sys.executable, "-m", "fairlayer", *map(str, arguments)]
    where = {"cwd": folder, "env": {**os.environ, "OMP_NUM_THREADS": "1", **environment}}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **HEED, **where)


def fit(*more):
    asked = ["--target", "approved", "--ignore", "amount", *FIT[:-1], "100000", "-o", "model", *more]
    return ["fit", "people.csv", *asked]


def predict(*more):
    return ["predict", "model", "people.csv", "-o", "out.csv", "--mode", "stream", "--state", "new.db", *more]


PROJECT = [*("project", "people.csv", "--score", "amount", "--protected", "sex", "--parity", "1"), "-o", "out.csv"]


def test_an_interrupt_while_training(place):
    before = contents(place)
    process = start(place, *fit())
    while not process.stderr.readline().startswith("Training:"):
        assert process.poll() is None
    for _ in range(5):  # those that follow do not break off the tidying
        process.send_signal(signal.SIGINT)
    out, rest = process.communicate(timeout=300)
    assert (process.returncode, rest, out) == (130, LINE + "\n", "")
    assert contents(place) == before


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (["--help"], "fairlayer.cli.app"),
        (fit(), "torch._C"),
        (fit("--epochs", "1"), ".model."),  # the temporary folder
        (predict(), ".out.csv."),  # once the stream is in its store, and its decisions are about to be
        (PROJECT, ".fairlayer-"),
    ],
    ids=lambda given: given if isinstance(given, str) else given[0],
)
def test_an_interrupt_at(place, tmp_path_factory, arguments, where):
    hook = tmp_path_factory.mktemp("hook")
    (hook / "sitecustomize.py").write_text(AT)
    before = contents(place)
    path = os.pathsep.join([str(hook), os.environ.get("PYTHONPATH", "")])
    process = start(place, *arguments, PYTHONPATH=path, INTERRUPT_AT=where)
    out, told = process.communicate(timeout=300)
    assert process.returncode == 130, out + told
    assert [line for line in told.splitlines() if line.startswith("fairlayer: ")] == [LINE]
    assert "Traceback" not in told
    assert "Exception ignored" not in told
    assert contents(place) == before


def test_a_compiled_module_that_is_being_loaded_is_not_torn(tmp_path):
    """DuckDB's makes enumerations while it is loaded, and aborts the process where that fails."""
    code = """
import enum, os, signal, sys
made = enum.EnumMeta.__call__

def interrupt(*arguments, **options):
    if "duckdb" in sys.modules:
        enum.EnumMeta.__call__ = made
        os.kill(os.getpid(), signal.SIGINT)
    return made(*arguments, **options)

enum.EnumMeta.__call__ = interrupt
from fairlayer.cli import main
main()
"""
    data = write(people(20), tmp_path / "people.csv")
    asked = ["audit", data, "--prediction", "amount", "--protected", "sex", "--parity", "1"]
    done = subprocess.run([sys.executable, "-c", code, *asked], capture_output=True, text=True, check=False, **HEED)
    assert (done.returncode, done.stderr) == (130, LINE + "\n")


def test_a_destructor_does_not_swallow_an_interrupt(tmp_path):
    """Python only reports what a destructor raises: the interrupt comes a little later."""
    code = """
import os, signal, time
from fairlayer.cli import ending_in_one_line

class Interrupting:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

with ending_in_one_line():
    Interrupting()
    time.sleep(60)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, **HEED)
    assert (done.returncode, done.stderr) == (130, LINE + "\n")


def test_who_starts_a_command_may_have_it_ignore_interrupts():
    """As a shell does for what runs in the background."""
    code = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); from fairlayer.cli import main; "
        "sys.argv = ['fairlayer', '--version']; os.kill(os.getpid(), signal.SIGINT); main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("fairlayer ")
