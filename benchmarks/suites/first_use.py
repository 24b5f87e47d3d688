"""First use: the README's layer, then its stream, each in a new process, before anything is compiled and after."""

import json
import os
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
LIMIT, LOAD_LIMIT = 20.0, 3.0
LONGEST = 25
TITLE = """# First use

The two programs of the README, the layer (forward and backward, float32) and the stream (float64), each in a process of
its own, one after the other. First: nothing is compiled yet. Again: all of it is found on disk. Seconds; `import torch`
is not counted, `import fairlayer` is.

"""


def main(args: Namespace) -> list[Target]:
    """Both programs twice over one folder of compiled code, which is empty at first."""
    rows, functions, others = [], {}, OtherWork()
    start, spent = time.perf_counter(), _spent_by_children()
    with tempfile.TemporaryDirectory() as folder:
        for when in ("first", "again"):
            for name, content in SNIPPETS.items():
                found = run(snippet(content), folder)
                own = found.pop("compiled")
                rows.append({"program": name, "when": when, **found, "functions": sum(map(len, own.values()))})
                functions.update({(name, what): times for what, times in own.items()})
    beside = others.cores()
    if beside is not None:  # the programs themselves are no other work
        beside -= (_spent_by_children() - spent) / (time.perf_counter() - start)
    write_csv(args.results / "first_use.csv", rows)
    columns = ("processor", "wall", "peak_mb", "functions")
    lines = [(row["program"], row["when"], *(figure(row[what]) for what in columns)) for row in rows]
    longest = sorted(functions.items(), key=lambda item: -sum(item[1]))[:LONGEST]
    (args.results / "first_use.md").write_text(
        TITLE
        + markdown_table(("program", "when", "processor", "wall", "peak MB", "functions compiled"), lines)
        + "\n\nWhat compiles longest, without what it calls, and for how many types of its arguments:\n\n"
        + markdown_table(
            ("program", "function", "processor", "times"),
            [(program, f"`{what}`", figure(sum(times)), len(times)) for (program, what), times in longest],
        )
        + "\n"
    )
    write_settings(args.results / "first_use.json", args, functions={f"{p} {w}": t for (p, w), t in functions.items()})
    doubt = busy(beside)

    def both(when: str, what: str) -> float:
        return sum(row[what] for row in rows if row["when"] == when)

    return [
        Target("first layer and first stream, processor seconds", both("first", "processor"), LIMIT, busy=doubt),
        Target("first layer and first stream, seconds", both("first", "wall"), LIMIT, busy=doubt),
        Target("the same once compiled, seconds", both("again", "wall"), LOAD_LIMIT, busy=doubt),
    ]


def snippet(content: str) -> str:
    """The program of the README that contains this."""
    (found,) = [text for text in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL) if content in text]
    return found


def run(program: str, folder: str) -> dict[str, Any]:
    """Run a program of the README with compiled code in this folder."""
    path, environment = Path(folder) / "program.py", {**os.environ, "NUMBA_CACHE_DIR": folder}
    path.write_text(program)
    command = [sys.executable, str(PROCESS), str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def _spent_by_children() -> float:
    """Processor time of the processes that were waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
