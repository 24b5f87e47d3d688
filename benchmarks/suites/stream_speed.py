"""Updates per second of a stream: in memory, in SQLite, in PostgreSQL, and by the authors' package."""

from argparse import Namespace
from typing import Any

from measure import busy
from peers.environments import UnavailableError
from records import Target, figure, markdown_table, write_csv, write_settings
from streams import clock, plot
from streams.authors_process import AUTHORS, run_authors
from streams.scenarios import Scenario

TITLE = """# Updates of a stream

The ledger, two attributes, box [0, 1]; every batch new. A store is durable before `update` returns.

"""
LIMITS = {"memory": 150.0, "SQLite": 300.0, "faster": 100.0}
BATCH = 16


def main(args: Namespace) -> list[Target]:
    """Time every store, then the authors' online step."""
    rows = clock.measure(args.seed, args.quick)
    known: dict[str, Any] = {}
    try:
        scenario = Scenario(BATCH, 2, True, False, 20_000, args.seed)
        known, _ = run_authors(scenario, 3.0 if args.quick else 20.0)
        rows.append(
            {"store": AUTHORS, "batch": BATCH, "median_us": 1e3 * known["median_ms"], "per_second": None}
            | {"updates": known["steps"], "other_cores": known["other_cores"]}
        )
    except UnavailableError as error:
        print(f"   {AUTHORS}: {error}", flush=True)
    write_csv(args.results / "stream_speed.csv", rows)
    header = ["store", "b", "updates per second", "median microseconds"]
    listed = [[row["store"], row["batch"], figure(row["per_second"]), figure(row["median_us"])] for row in rows]
    (args.results / "stream_speed.md").write_text(TITLE + markdown_table(header, listed) + "\n")
    plot.speed(args.results / "stream_speed.png", rows)
    write_settings(args.results / "stream_speed.json", args, authors=known)
    return targets({(row["store"], row["batch"]): row for row in rows})


def targets(by: dict[tuple, dict[str, Any]]) -> list[Target]:
    """What must hold at batches of 16."""
    memory, sqlite, theirs = (by.get((store, BATCH)) for store in ("memory", "SQLite", AUTHORS))
    doubt = busy(memory["other_cores"])
    listed = [
        Target(
            "update in memory, b = 16, two attributes, microseconds", memory["median_us"], LIMITS["memory"], busy=doubt
        ),
        Target(
            "SQLite durable, batches per second, b = 16",
            sqlite["per_second"],
            LIMITS["SQLite"],
            True,
            busy(sqlite["other_cores"]),
        ),
    ]
    if theirs:
        what = "times faster than fairness-training's online step, b = 16"
        doubt |= busy(theirs["other_cores"])
        listed.append(Target(what, theirs["median_us"] / memory["median_us"], LIMITS["faster"], True, doubt))
    return listed
