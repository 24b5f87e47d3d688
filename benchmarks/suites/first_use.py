"""First use: the README's layer, then the guide's first stream, each in a new process."""

import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from measure import OtherWork, busy
from records import Target, figure, markdown_table, write_csv, write_settings

PROCESS = Path(__file__).parents[1] / "first_use_process.py"
ROOT = Path(__file__).parents[2]
SNIPPETS = {
    "layer": ("README.md", "FairLayer("),
    "stream": ("docs/guide/streams.md", "stream.update("),
}  # page, text
LIMITS = {"layer": 1.0, "stream": 1.3}  # seconds; the stream loads the layer as well
TITLE = """# First use

The README's layer (forward and backward) and the first stream of the guide (500 batches), each in a process of its own.
Seconds and memory are beyond those of `import torch`; `import fairlayer` and everything it loads are included.

"""


def main(args: Namespace) -> list[Target]:
    """Both programs, each once."""
    others = OtherWork()
    start, spent = time.perf_counter(), _spent_by_children()
    rows = [{"program": name, **run(snippet(*where))} for name, where in SNIPPETS.items()]
    beside = others.cores()
    if beside is not None:  # the programs themselves are no other work
        beside -= (_spent_by_children() - spent) / (time.perf_counter() - start)
    write_csv(args.results / "first_use.csv", rows)
    lines = [(row["program"], *(figure(row[what]) for what in ("imports", "processor", "wall", "mb"))) for row in rows]
    table = markdown_table(("program", "import fairlayer", "processor", "wall", "MB"), lines)
    (args.results / "first_use.md").write_text(f"{TITLE}{table}\n")
    write_settings(args.results / "first_use.json", args)
    doubt = busy(beside)
    return [
        Target(f"first {row['program']}, {words}", row[what], LIMITS[row["program"]], busy=doubt)
        for row in rows
        for what, words in (("processor", "processor seconds"), ("wall", "seconds"))
    ]


def snippet(page: str, content: str) -> str:
    """The first program of a page that contains this."""
    programs = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    return next(program for program in programs if content in program)


def run(program: str) -> dict[str, Any]:
    """Run a program in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"
        path.write_text(program)
        command = [sys.executable, str(PROCESS), str(path)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def _spent_by_children() -> float:
    """Processor time of the processes that were waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
