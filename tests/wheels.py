"""`./dev wheel`: the package as others get it, tried in an environment that has nothing else.

First without extras: the layer, a stream and an audit work, and what is missing is named with the extra that brings it.
Then with the command line: a model is fitted, reported on and used.
"""

from __future__ import annotations

import csv
import os
import random
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"

WITHOUT_SKLEARN = """
try:
    import fairlayer.sklearn
except ModuleNotFoundError as error:
    assert "pip install 'fairlayer[sklearn]'" in str(error), error
else:
    raise AssertionError("scikit-learn is here")
"""


def build(folder: Path, *options: str) -> Path:
    """Build the wheel into a folder, with further options of pip."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, *options, "--wheel-dir", str(folder), str(ROOT)], check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    return wheel


class Empty:
    """An environment with nothing in it, in a folder of its own, from which the repository cannot be seen."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.bin = folder / "venv" / "bin"
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)

    def run(self, program: str, *arguments: str | Path, expect: int = 0) -> str:
        """Run a program of the environment; what it printed."""
        hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
        environment = {name: value for name, value in os.environ.items() if name not in hidden}
        command = [self.bin / program, *arguments]
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)
        if done.returncode != expect:
            raise SystemExit(f"{program} {arguments}: {done.returncode}, not {expect}\n{done.stdout}\n{done.stderr}")
        return done.stdout + done.stderr

    def install(self, *packages: str) -> None:
        """Install packages, as the project pins them."""
        self.run("python", "-m", "pip", "install", "--quiet", "-c", CONSTRAINTS, *packages)


def write_people(path: Path, rows: int = 400) -> None:
    """A table in which one sex is paid more often."""
    draw = random.Random(0)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["years", "sex", "hired"])
        for _ in range(rows):
            years, sex = draw.uniform(0, 20), draw.choice("fm")
            table.writerow([f"{years:.2f}", sex, int(years + 6 * (sex == "m") + draw.gauss(0, 3) > 13)])


def without_extras(empty: Empty, wheel: Path) -> None:
    """What needs no extra works; what needs one says which."""
    empty.install("torch")
    empty.install(str(wheel))
    empty.run("python", ROOT / "tests" / "first_use.py")
    empty.run("python", "-c", WITHOUT_SKLEARN)
    said = empty.run("fairlayer", "--help", expect=2)
    assert "pip install 'fairlayer[cli]'" in said, said


def with_commands(empty: Empty, wheel: Path) -> None:
    """The command line, from a table to predictions."""
    empty.install(f"{wheel}[cli]")
    write_people(empty.folder / "people.csv")
    assert "fit" in empty.run("fairlayer", "--help")
    choices = ["--target", "hired", "--protected", "sex", "--parity", "0.05", "-o", "model"]
    empty.run("fairlayer", "fit", "people.csv", *choices)
    empty.run("fairlayer", "predict", "model", "people.csv", "-o", "fair.csv")
    for name in ("model/report.html", "model/model-card.md", "fair.csv"):
        assert (empty.folder / name).stat().st_size, name


def main(arguments: Sequence[str]) -> int:
    """Build into dist, or a folder that is named, and try what was built."""
    target = Path(arguments[0]) if arguments else ROOT / "dist"
    for old in target.glob("fairlayer-*.whl"):
        old.unlink()
    wheel = build(target).resolve()
    with zipfile.ZipFile(wheel) as content:
        compiled = [name for name in content.namelist() if name.startswith("fairlayer/core/_native.")]
    assert len(compiled) == 1, compiled
    print(f"{wheel.name}: {wheel.stat().st_size / 1024:.0f} kB")
    with tempfile.TemporaryDirectory() as folder:
        empty = Empty(Path(folder))
        for step in (without_extras, with_commands):
            began = time.monotonic()
            step(empty, wheel)
            print(f"{step.__name__.replace('_', ' ')}: good, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
