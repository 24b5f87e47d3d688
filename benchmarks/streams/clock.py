"""Times of `update`: in memory, in SQLite and in PostgreSQL, durable before it returns."""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from fairlayer import MeanParity, Stream
from measure import OtherWork
from streams.scenarios import Scenario

sys.path.append(str(Path(__file__).parents[2] / "tests"))
from postgres import NoServerError, running_server

BATCHES = (1, 4, 16, 64, 256)


def measure(seed: int, quick: bool) -> list[dict[str, Any]]:
    """A row per store and batch size."""
    rows = []
    for store, updates in (("memory", 3000), ("SQLite", 1000), ("PostgreSQL", 600)):
        try:
            with location(store) as place:
                rows += [_time(store, place, batch, updates // (30 if quick else 1), seed) for batch in BATCHES]
        except NoServerError as error:
            print(f"   {store}: {error}", flush=True)
    return rows


@contextmanager
def location(store: str) -> Iterator[str | None]:
    """Where such a store can be."""
    if store == "memory":
        yield None
    elif store == "SQLite":
        with tempfile.TemporaryDirectory() as folder:
            yield str(Path(folder) / "stream.db")
    else:
        with running_server() as url:
            yield url


def _time(store: str, place: str | None, batch: int, updates: int, seed: int) -> dict[str, Any]:
    warm_up = 20
    scenario = Scenario(batch, 2, True, False, batch * (updates + warm_up), seed)
    stream = Stream([MeanParity(scenario.tolerance)], bounds=scenario.bounds, store=place, name=f"b = {batch}")
    z, groups = scenario.draw()
    microseconds = []
    others = OtherWork()
    for at in scenario.batches():
        raw, labels = z[at], groups[at]
        start = time.perf_counter()
        stream.update(raw, labels)
        microseconds.append(1e6 * (time.perf_counter() - start))
    stream.close()
    counted = microseconds[warm_up:]
    row = {
        "store": store,
        "batch": batch,
        "median_us": median(counted),
        "per_second": 1e6 * len(counted) / sum(counted),
    }
    # A database server is at work for us: what it takes is not others'.
    return row | {"updates": len(counted), "other_cores": None if store == "PostgreSQL" else others.cores()}
