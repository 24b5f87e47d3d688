"""The runner: nothing finished is lost, nothing unfinished is kept, and it does not matter how results came about."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from experiments import record, runner
from experiments.__main__ import PROFILES
from fairlayer.errors import FairlayerError, InputError

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Settings:
    size: int = 5
    seed: int = 7


class Toy:
    """An experiment that counts its calls and can be made to fail at one unit."""

    def __init__(self):
        self.called: list[str] = []
        self.summaries: list[list[dict]] = []
        self.trouble = {}
        self.experiment = runner.Experiment(
            "toy",
            {"paper": Settings(), "quick": Settings(2)},
            lambda settings: [runner.Unit(f"unit {i}", {"i": i}) for i in range(settings.size)],
            self.run,
            lambda results, settings, folder: self.summaries.append(results),
            lambda results, settings: {},
        )

    def run(self, unit, settings):
        self.called.append(unit.key)
        if unit.key in self.trouble:
            self.trouble[unit.key]()
        return {"square": np.float32(unit.arguments["i"] ** 2), "nothing": float("nan")}


@pytest.fixture
def toy(monkeypatch):
    toy = Toy()
    monkeypatch.setattr(runner, "NAMES", (*runner.NAMES, "toy"))
    monkeypatch.setitem(sys.modules, "experiments.toy", SimpleNamespace(EXPERIMENT=toy.experiment))
    return toy


def go(folder, **options):
    return runner.run("toy", folder=folder, jobs=1, progress=False, **options)


def lines(home):
    return [json.loads(line) for line in (home / "units.jsonl").read_text().splitlines()]


def test_results_are_kept_and_summarised_in_the_order_of_units(toy, tmp_path):
    home = go(tmp_path)
    assert home == tmp_path / "toy" / "paper"
    assert [entry["square"] for entry in lines(home)] == [0, 1, 4, 9, 16]
    assert toy.summaries[0] == lines(home)
    assert all(
        entry["nothing"] is None and entry["seconds"] >= 0 and entry["cpu_seconds"] >= 0 for entry in lines(home)
    )
    meta = json.loads((home / "meta.json").read_text())
    assert meta["seed"] == 7
    assert meta["settings"] == {"size": 5, "seed": 7}
    assert (meta["units"], meta["units_done"]) == (5, 5)
    assert {"fairlayer", "torch", "numpy"} <= set(meta["versions"])
    assert meta["wall_seconds"] >= 0
    assert meta["cores"] == os.cpu_count()


def test_existing_results_are_refused_resumed_or_replaced(toy, tmp_path):
    go(tmp_path)
    with pytest.raises(InputError, match="holds results already: give --resume, --replace or another --folder"):
        go(tmp_path)
    with pytest.raises(InputError, match="give one of them"):
        go(tmp_path, resume=True, replace=True)
    toy.called.clear()
    meta = (tmp_path / "toy" / "paper" / "meta.json").read_bytes()
    go(tmp_path, resume=True)
    assert toy.called == []
    assert len(toy.summaries) == 2
    assert (tmp_path / "toy" / "paper" / "meta.json").read_bytes() == meta
    go(tmp_path, replace=True)
    assert len(toy.called) == 5


def test_what_is_replaced_is_kept_until_a_unit_is_done(toy, tmp_path):
    home = go(tmp_path)
    before = {path.name: path.read_bytes() for path in home.iterdir()}
    toy.trouble = {"unit 0": fail}
    with pytest.raises(RuntimeError):
        go(tmp_path, replace=True)
    assert {path.name: path.read_bytes() for path in home.iterdir()} == before
    toy.trouble = {"unit 1": fail}
    with pytest.raises(RuntimeError):
        go(tmp_path, replace=True)
    assert [entry["key"] for entry in lines(home)] == ["unit 0"]


def test_nothing_is_left_by_a_run_without_a_finished_unit(toy, tmp_path):
    toy.trouble = {"unit 0": fail}
    with pytest.raises(RuntimeError):
        go(tmp_path)
    toy.trouble = {}
    go(tmp_path)


def test_results_of_other_settings_cannot_be_resumed(toy, tmp_path):
    go(tmp_path)
    toy.experiment.profiles["paper"] = Settings(size=6)
    with pytest.raises(InputError, match="other settings"):
        go(tmp_path, resume=True)


def interrupt():
    signal.raise_signal(signal.SIGINT)


def interrupt_and_catch():
    with contextlib.suppress(KeyboardInterrupt):  # as training does, which then ends early
        interrupt()


def interrupt_and_stumble():
    interrupt_and_catch()
    fail()  # as whatever needs what was broken off


def terminate_and_stumble():
    with contextlib.suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    fail()


def fail():
    raise RuntimeError("out of luck")


@pytest.mark.parametrize(
    ("trouble", "error"),
    [
        (interrupt, KeyboardInterrupt),
        (interrupt_and_catch, KeyboardInterrupt),
        (interrupt_and_stumble, KeyboardInterrupt),
        (terminate_and_stumble, KeyboardInterrupt),
        (fail, RuntimeError),
    ],
)
def test_only_the_running_unit_is_lost(toy, tmp_path, trouble, error):
    toy.trouble = {"unit 3": trouble}
    with pytest.raises(error):
        go(tmp_path)
    home = tmp_path / "toy" / "paper"
    assert [entry["key"] for entry in lines(home)] == ["unit 0", "unit 1", "unit 2"]
    assert toy.summaries == []
    toy.trouble = {}
    toy.called.clear()
    go(tmp_path, resume=True)
    assert toy.called == ["unit 3", "unit 4"]
    assert [entry["square"] for entry in toy.summaries[0]] == [0, 1, 4, 9, 16]


@pytest.mark.parametrize("cut", [1, 40])
def test_a_torn_line_is_done_again(toy, tmp_path, cut):
    home = go(tmp_path)
    text = (home / "units.jsonl").read_bytes()
    (home / "units.jsonl").write_bytes(text[:-cut])
    toy.called.clear()
    go(tmp_path, resume=True)
    assert toy.called == ["unit 4"]
    assert [entry["key"] for entry in lines(home)] == [f"unit {i}" for i in range(5)]


def test_mistakes_are_named(toy, tmp_path):
    with pytest.raises(InputError, match="no experiment 'nonsense'"):
        runner.run("nonsense", folder=tmp_path)
    with pytest.raises(InputError, match="no profile 'huge'; there are paper, quick"):
        go(tmp_path, profile="huge")
    with pytest.raises(InputError, match="jobs"):
        runner.run("toy", folder=tmp_path, jobs=0)
    toy.trouble = {}
    object.__setattr__(toy.experiment, "units", lambda settings: [runner.Unit("same"), runner.Unit("same")])
    with pytest.raises(FairlayerError, match="same"):
        go(tmp_path)


def test_the_command_says_which_experiments_have_which_profiles():
    for profile in ("large", "medium"):
        having = [name for name in runner.NAMES if profile in runner.experiment(name).profiles]
        listed = re.search(rf"`{profile}`: [^()]*\(([^)]*)\)", PROFILES)[1]
        assert re.findall(r"\w+", listed) == having


def test_stored_takes_finished_runs_only_and_never_quick_ones(toy, tmp_path):
    go(tmp_path, profile="quick")
    assert runner.stored("toy", tmp_path) is None
    toy.trouble = {"unit 4": fail}
    with pytest.raises(RuntimeError):
        go(tmp_path)
    assert runner.stored("toy", tmp_path) is None
    toy.trouble = {}
    go(tmp_path, resume=True)
    profile, results, settings = runner.stored("toy", tmp_path)
    assert (profile, len(results), settings) == ("paper", 5, Settings())


def test_plain_data():
    assert record.plain({"a": np.array([1.0, np.inf]), 2: (np.int64(3), "x", None, True)}) == {
        "a": [1.0, None],
        "2": [3, "x", None, True],
    }


def test_processes_and_an_interrupt_do_not_change_results(tmp_path, quick):
    """A run in two processes, interrupted after its first unit and resumed, gives what one process gives."""
    arguments = [sys.executable, "-m", "experiments", "beyond", "--profile", "quick", "--folder", str(tmp_path / "two")]
    units = tmp_path / "two" / "beyond" / "quick" / "units.jsonl"
    process = subprocess.Popen([*arguments, "--jobs", "2"], cwd=ROOT, stderr=subprocess.PIPE)
    while process.poll() is None and not (units.exists() and units.read_text()):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode in (0, 130, -signal.SIGINT)  # 0 where everything had been done by then
    before = len(lines(units.parent))
    assert before >= 1
    runner.run("beyond", "quick", resume=True, jobs=1, folder=tmp_path / "two", progress=False)
    assert _without_times(lines(units.parent)) == _without_times(lines(quick("beyond")))


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="looks at /proc for when to interrupt")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_with_what_to_do_however_early_it_comes(tmp_path, number):
    """It comes while modules are imported, which takes seconds, or a little later."""
    asked = ["beyond", "--profile", "quick", "--jobs", "1", "--folder", str(tmp_path)]
    arguments = [sys.executable, "-m", "experiments", *asked]
    # What a shell starts in the background ignores Ctrl-C, and so would what the tests start.
    heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(arguments, cwd=ROOT, stderr=subprocess.PIPE, text=True, preexec_fn=heed)
    while process.poll() is None and "torch" not in Path(f"/proc/{process.pid}/maps").read_text():
        time.sleep(0.01)
    process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    # Python ends itself by the signal, which a shell calls 130, where one has hit the execution of a text.
    assert process.returncode in (130, -signal.SIGINT)
    assert said.splitlines()[-1] == "Interrupted; --resume goes on from here."
    assert "Traceback" not in said


def _without_times(entries):
    times = ("seconds", "cpu_seconds")
    return {entry["key"]: {name: value for name, value in entry.items() if name not in times} for entry in entries}
