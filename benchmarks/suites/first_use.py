"""First use: the README's layer, then its stream, each in a new process."""

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
README = Path(__file__).parents[2] / "README.md"
SNIPPETS = {"layer": "FairLayer(", "stream": "stream.update("}  # by what they contain
LIMIT = 3.0
TITLE = """# First use

Two programs of the README, the layer (forward and backward) and the stream, each in a process of its own. Seconds and
memory are beyond those of `import torch`; `import fairlayer` and everything it loads are included.

"""


def main(args: Namespace) -> list[Target]:
    """Both programs, each once."""
    others = OtherWork()
    start, spent = time.perf_counter(), _spent_by_children()
    rows = [{"program": name, **run(snippet(content))} for name, content in SNIPPETS.items()]
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
        Target(f"first layer and first stream, {words}", sum(row[what] for row in rows), LIMIT, busy=doubt)
        for what, words in (("processor", "processor seconds"), ("wall", "seconds"))
    ]


def snippet(content: str) -> str:
    """The program of the README that contains this."""
    (found,) = [text for text in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL) if content in text]
    return found


def run(program: str) -> dict[str, Any]:
    """Run a program of the README in an empty folder."""
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
