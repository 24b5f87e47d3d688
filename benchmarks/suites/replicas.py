"""Many writers of one stream in PostgreSQL: batches per second against their number, with and without group commit."""

import os
from argparse import Namespace

from records import Target, figure, markdown_table, write_csv, write_settings
from streams.clock import NoServerError, running_server
from streams.writers import throughput

TITLE = """# Many writers of one stream

PostgreSQL on the same machine, durable before `update` returns; batches of 16 with ids, two attributes, box [0, 1].
Writers are processes, each with so many threads that call `update`. Alone: each batch is a transaction by itself, a
round trip for every statement, the lock held until the disk has it. Together: as streams do it.

"""
BATCH = 16
LIMIT = 3.0
QUIET = 0.5  # load of a machine that does nothing else


def main(args: Namespace) -> list[Target]:
    """Alone and together in turn, for every number of writers."""
    seconds = 0.5 if args.quick else 4.0
    doubt = os.getloadavg()[0] > QUIET  # before writers and server begin, which are our own work
    rows = []
    try:
        with running_server() as url:
            for writers, callers in ((1, 1), (1, 8), (2, 8), (4, 8), (8, 1), (8, 8)):
                name = f"{writers} x {callers}"
                alone = throughput(url, f"{name} alone", writers, callers, BATCH, False, seconds)
                together = throughput(url, f"{name} together", writers, callers, BATCH, True, seconds)
                row = {"writers": writers, "callers": callers, "batch": BATCH, "alone": alone, "together": together}
                rows.append(row | {"ratio": together / max(alone, 1 / seconds)})
                print(f"   {name}: {alone:.0f} alone, {together:.0f} together", flush=True)
    except NoServerError as error:
        print(f"   {error}", flush=True)
        return []
    write_csv(args.results / "replicas.csv", rows)
    header = ["writers", "callers in each", "alone, batches per second", "together, batches per second", "times"]
    listed = [
        [row["writers"], row["callers"], *(figure(row[what]) for what in ("alone", "together", "ratio"))]
        for row in rows
    ]
    (args.results / "replicas.md").write_text(TITLE + markdown_table(header, listed) + "\n")
    write_settings(args.results / "replicas.json", args, seconds=seconds)
    ratio = {(row["writers"], row["callers"]): row["ratio"] for row in rows}
    what = "times the throughput of one transaction per batch, 8 writers, b = 16, callers in each:"
    return [Target(f"{what} {k}", ratio[8, k], LIMIT, True, doubt) for k in (1, 8)]
