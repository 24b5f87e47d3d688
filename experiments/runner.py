"""Runs an experiment: units of work in parallel processes, each kept as soon as it is done, then tables and figures.

A module `experiments.NAME` has an `EXPERIMENT`. Its units are independent of each other and of their order, so that a
run can be interrupted anywhere and resumed: only the units that were running are lost.

    results/NAME/PROFILE/units.jsonl   one line per finished unit
    results/NAME/PROFILE/meta.json     settings, versions, seed, times
    results/NAME/PROFILE/...           tables and figures, made from the two
    results/claims.csv, claims.md      what became of the paper's claims, from the results of all experiments
"""

from __future__ import annotations

import importlib
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from experiments import NAMES, RESULTS
from experiments.claims import Finding, write_claims
from experiments.interrupts import interruptible, raise_if_interrupted
from experiments.progress import Progress
from experiments.record import Record
from fairlayer.errors import FairlayerError, InputError

Result = dict[str, Any]
Finished = tuple[str, Result, float, float]  # key, result, seconds on the wall and of the processor


@dataclass(frozen=True)
class Unit:
    """A piece of work: `key` names it for good, `arguments` are plain data."""

    key: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """What the runner needs to know.

    profiles: settings by name; a frozen dataclass of plain data each, with a `seed`. "paper" is as published; "quick"
    takes seconds and is only to see that everything runs.
    units: the work to do. run: does one unit, maybe in another process; the same unit gives the same plain data.
    summarise: writes tables and figures to a folder. claims: findings by the ids of `published/claims/NAME.csv`.
    Both get the results in the order of the units; each is what `run` returned plus "key", "seconds" and "cpu_seconds".
    threads: of torch, in each process.
    """

    name: str
    profiles: dict[str, Any]
    units: Callable[[Any], list[Unit]]
    run: Callable[[Unit, Any], Result]
    summarise: Callable[[list[Result], Any, Path], None]
    claims: Callable[[list[Result], Any], dict[str, Finding]]
    threads: int = 1


def experiment(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in NAMES:
        raise InputError(f"There is no experiment {name!r}; there are {', '.join(NAMES)}.")
    return importlib.import_module(f"experiments.{name}").EXPERIMENT


def run(
    name: str,
    profile: str = "paper",
    *,
    resume: bool = False,
    replace: bool = False,
    jobs: int = 2,
    folder: str | Path = RESULTS,
    progress: bool = True,
) -> Path:
    """Run an experiment and return the folder with its results.

    resume: go on with what is there. replace: begin anew where there is something, which is kept until a unit is done.
    jobs: processes at a time.
    """
    if resume and replace:
        raise InputError("--resume goes on with what is there, --replace begins anew: give one of them.")
    chosen = experiment(name)
    if profile not in chosen.profiles:
        raise InputError(f"{name} has no profile {profile!r}; there are {', '.join(chosen.profiles)}.")
    if jobs < 1:
        raise InputError(f"jobs must be at least 1; got {jobs}.")
    settings = chosen.profiles[profile]
    units = chosen.units(settings)
    keys = [unit.key for unit in units]
    if repeated := {key for key in keys if keys.count(key) > 1}:
        raise FairlayerError(f"{name} has several units of the key {sorted(repeated)}: each needs its own.")
    home = Path(folder) / name / profile
    record = Record(home, name, profile, settings)
    record.begin(resume=resume, replace=replace)
    todo = [unit for unit in units if unit.key not in record.results]
    bar = Progress(f"{name} ({profile})", len(units), len(units) - len(todo)) if progress else None
    began = time.perf_counter()
    try:
        with closing(_do(chosen, todo, settings, jobs)) as finished:
            for key, result, wall, processor in finished:
                record.keep(key, result, wall, processor)
                if bar is not None:
                    bar.show(key)
    finally:
        if bar is not None:
            bar.close()
        record.close(wall=time.perf_counter() - began, jobs=jobs, units=len(units))
    chosen.summarise(record.ordered(keys), settings, home)
    refresh_claims(folder)
    return home


def _do(chosen: Experiment, units: Sequence[Unit], settings: Any, jobs: int) -> Generator[Finished, None, None]:
    """Results as they come."""
    if jobs == 1 or len(units) < 2:
        with _threads(chosen.threads), interruptible():
            for unit in units:
                done = _work(chosen.name, unit, settings)
                raise_if_interrupted()  # training catches an interrupt, and returns what it has
                yield done
        return
    yield from _do_in_parallel(chosen, units, settings, jobs)


def _do_in_parallel(
    chosen: Experiment, units: Sequence[Unit], settings: Any, jobs: int
) -> Generator[Finished, None, None]:
    others = set(multiprocessing.active_children())
    # Processes start afresh: a copy of this one would inherit locks of threads it does not have.
    pool = ProcessPoolExecutor(
        min(jobs, len(units)), multiprocessing.get_context("spawn"), _prepare_process, (chosen.threads,)
    )
    try:
        with _ignoring_interrupts():  # as the processes that start here then do from their first moment
            futures = [pool.submit(_work, chosen.name, unit, settings) for unit in units]
        for future in as_completed(futures):
            yield future.result()
    except BrokenProcessPool as error:
        raise FairlayerError(
            "A process ended unexpectedly, maybe for lack of memory: --resume with fewer --jobs."
        ) from error
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - others:  # what they are at will not be kept
            child.terminate()
        raise
    pool.shutdown()


def _work(name: str, unit: Unit, settings: Any) -> Finished:
    wall, processor = time.perf_counter(), time.process_time()
    result = experiment(name).run(unit, settings)
    return unit.key, result, time.perf_counter() - wall, time.process_time() - processor


def _prepare_process(threads: int) -> None:
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def stored(name: str, folder: str | Path = RESULTS) -> tuple[str, list[Result], Any] | None:
    """Profile, results and settings of an experiment's finished run; the first that is there, "quick" left out."""
    chosen = experiment(name)
    for profile, settings in chosen.profiles.items():
        record = Record(Path(folder) / name / profile, name, profile, settings)
        keys = [unit.key for unit in chosen.units(settings)]
        if profile != "quick" and record.load() and all(key in record.results for key in keys):
            return profile, record.ordered(keys), settings
    return None


def refresh_claims(folder: str | Path = RESULTS, to: str | Path | None = None) -> None:
    """Write the table of claims from whatever results there are, beside them or in another folder."""
    findings: dict[str, tuple[str, dict[str, Finding]]] = {}
    for name in NAMES:
        if any((Path(folder) / name).glob("*/meta.json")) and (found := stored(name, folder)):
            profile, results, settings = found
            findings[name] = profile, experiment(name).claims(results, settings)
    write_claims(Path(to or folder), NAMES, findings)
