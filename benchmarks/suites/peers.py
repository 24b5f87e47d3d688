"""fairlayer and its peers side by side: the same problems, with times, violations and errors.

Two kinds: fair projections of one batch, by size; and batches of independent affine problems, by their number. Rows of
peers and sizes that are not asked for are kept from an earlier run; the date of a row says which.
"""

import json
import tempfile
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from affine import AffineCase
from measure import busy
from peers import plot, process, report, scoring
from peers.catalogue import AFFINE_PEERS, FAIRLAYER, PEERS, PROJECT, Peer
from peers.environments import UnavailableError, packages_of, python_of
from peers.worker import Request
from problems import Case
from records import Target, figure, read_csv, write_csv, write_settings

SIZES = (16, 256, 2000, 20_000, 200_000)
MAIN = (2, True)  # attributes and box: measured at every size
OTHERS = ((2, False), (5, True))  # measured at the sizes in OTHER_SIZES
OTHER_SIZES = (256,)
PROBLEMS = (1, 64, 1024)  # affine problems in a batch
MOST_AFFINE_MS = 5.0  # for the largest of these, forward and backward
CALL_LIMIT = 20.0  # seconds; a peer whose call takes longer is not tried at larger sizes
AFFINE_SECONDS = 6.0  # for the repeats of a peer on affine problems, so that all peers fit into one run
TIME_LIMIT = 120.0  # seconds for a worker as a whole, building included

COLUMNS = (
    *("groups", "forward_ms", "forward_backward_ms", "least_ms", "repeats"),
    *("gap_violation", "box_violation", "output_error", "gradient_error", "checked", "peak_mb"),
    *("build_ms", "first_ms", "other_cores", "note", "date"),
)
BUSY_NOTE = "measured beside other work"
FAIRNESS_TRAINING_SPEEDUPS = {2000: 300.0, 20_000: 3000.0}

Row = dict[str, Any]


def main(args: Namespace) -> list[Target]:
    """Measure size by size, so that neighbours in the table are neighbours in time."""
    args.date = datetime.now(UTC).isoformat(timespec="seconds")
    rows = table(args, args.results / "peers.csv", PEERS, list(cases(args)))
    affine = table(args, args.results / "peers_affine.csv", AFFINE_PEERS, [AffineCase(count) for count in PROBLEMS])
    targets = [*speedups(rows), *affine_speedups(affine)]
    (args.results / "peers.md").write_text(report.page(rows, affine, targets, CALL_LIMIT))
    if rows:
        plot.draw(args.results / "peers.png", rows, Case(rows[0]["n"], *MAIN))
    settings = args.results / "peers.json"
    earlier = {} if args.quick or not settings.exists() else json.loads(settings.read_text())["environments"]
    environments = earlier | installed(peer for peer in [*PEERS, *AFFINE_PEERS] if wanted(peer, args))
    write_settings(settings, args, environments=environments)
    return targets


def wanted(peer: Peer, args: Namespace) -> bool:
    """Whether a peer is asked for."""
    return not args.peers or any(text in peer.name for text in args.peers)


def table(args: Namespace, path: Path, peers: Sequence[Peer], cases: Sequence[Case | AffineCase]) -> list[Row]:
    """Measure the peers that are asked for on every case; the rows of all, with those kept from an earlier run."""
    names, columns = [peer.name for peer in peers], ("peer", "version", "dtype", *asdict(cases[0]), *COLUMNS)
    rows: dict[tuple, Row] = {}
    if path.exists() and not args.quick:
        rows = {key(row): dict.fromkeys(columns) | row for row in read_csv(path) if row["peer"] in names}

    def in_order() -> list[Row]:
        return sorted(rows.values(), key=lambda row: (*place(row), names.index(row["peer"])))

    stopped: dict[tuple, str] = {}
    for case in cases:
        for peer in peers:
            if not wanted(peer, args) or (peer.floor and (case.k, case.box) != MAIN):
                continue
            row = dict.fromkeys(columns) | measure(peer, case, args, stopped)
            rows[key(row)] = row
            write_csv(path, in_order())  # as it goes, so that an interruption loses little
            time = figure(row["forward_backward_ms"]) or "-"
            print(f"   {shape(row):<26} {peer.name:<38} {time:>10} ms  {row['note']}", flush=True)
    return in_order()


def cases(args: Namespace) -> Iterator[Case]:
    """What to measure, smaller sizes first, since a peer is given up at the size it cannot do."""
    sizes = args.sizes or (SIZES[:2] if args.quick else SIZES)
    for n in sorted(sizes):
        yield Case(n, *MAIN)
        if n in OTHER_SIZES and not args.quick:
            for k, box in OTHERS:
                yield Case(n, k, box)


def key(row: Row) -> tuple:
    """A peer and a case."""
    return row["peer"], row.get("problems"), row["n"], row["k"], row.get("box")


def place(row: Row) -> tuple:
    """The main case first, by size; affine problems by their number."""
    return (row["problems"],) if "problems" in row else (row["k"] != MAIN[0], not row["box"], row["n"])


def shape(row: Row) -> str:
    """A case in words."""
    if "problems" in row:
        return "1 affine problem" if row["problems"] == 1 else f"{row['problems']:,} affine problems"
    return f"n = {row['n']}, k = {row['k']}{'' if row['box'] else ', no box'}"


def measure(peer: Peer, case: Case | AffineCase, args: Namespace, stopped: dict[tuple, str]) -> Row:
    """One row of the table; a peer that cannot do it gets a row that says why."""
    row: Row = asdict(case) | {
        "peer": peer.name,
        "dtype": peer.dtype,
        "groups": "fixed" if peer.fixed else "new",
        "forward_backward_ms": None,
        "date": args.date,
    }
    series = (peer.name, case.k, row.get("box"))
    try:
        python = python_of(peer.environment)
        row["version"] = packages_of(peer.environment).get(peer.package)
    except UnavailableError as error:
        return row | {"note": str(error)}
    if reason := (isinstance(case, Case) and peer.cannot(case.k, case.box)) or stopped.get(series):
        return row | {"note": reason}

    with tempfile.TemporaryDirectory() as folder:
        request = Request(
            adapter=peer.adapter,
            options=peer.options,
            dtype=peer.dtype,
            fixed=peer.fixed,
            compiled=peer.compiled,
            case=case,
            seed=args.seed,
            repeats=3 if args.quick else 50 if isinstance(case, AffineCase) else 7,
            max_repeats=20 if args.quick else 200,
            seconds=2.0 if args.quick else AFFINE_SECONDS if isinstance(case, AffineCase) else CALL_LIMIT,
            patience=2 * CALL_LIMIT,
            checked=3 if args.quick else 5,
            outputs=str(Path(folder) / "outputs.npz"),
        )
        outcome = process.run(python, "peers.worker", request, TIME_LIMIT)
        result = outcome.report or {}
        row |= {name: value for name, value in result.items() if name in COLUMNS}
        if result and not peer.floor:
            row |= scoring.score(request)
    row["note"] = note(outcome)
    if outcome.stopped or (row["forward_backward_ms"] or 0) > 1e3 * CALL_LIMIT:
        stopped[series] = f"not tried: at {shape(row)}, {row['note']}"
    return row


def note(outcome: process.Outcome) -> str:
    """Say what a reader must know of a row, in a few words."""
    if outcome.failure:
        return outcome.failure
    seconds = outcome.report["forward_backward_ms"] / 1e3
    if seconds > CALL_LIMIT:
        return f"a call takes {seconds:.0f} s"
    return BUSY_NOTE if busy(outcome.report["other_cores"]) else ""


def speedups(rows: Sequence[Row]) -> list[Target]:
    """fairlayer against each peer, in the peer's own precision, at each size.

    Where a peer's groups or rows are fixed, ours are too if there is such a row.
    """
    ours = {
        (row["dtype"], row["groups"], *key(row)[1:]): row
        for row in rows
        if FAIRLAYER in row["peer"] and "training" not in row["peer"] and row["forward_backward_ms"]
    }
    skipped = {peer.name for peer in [*PEERS, *AFFINE_PEERS] if peer.floor or peer.environment == PROJECT}
    targets = []
    for row in rows:
        of_same = (ours.get((row["dtype"], groups, *key(row)[1:])) for groups in (row["groups"], "new"))
        mine = next(filter(None, of_same), None)
        if row["peer"] in skipped or not mine or not row["forward_backward_ms"]:
            continue
        limit = 1.0
        if row["peer"].startswith("fairness-training"):
            limit = FAIRNESS_TRAINING_SPEEDUPS.get(row["n"], 1.0)
        runs = "" if row["date"] == mine["date"] else " (of another run)"
        ratio = row["forward_backward_ms"] / mine["forward_backward_ms"]
        doubt = any(busy(measured["other_cores"]) for measured in (row, mine))
        what = f"times faster than {row['peer']}, {shape(row)}{runs}"
        targets.append(Target(what, ratio, limit, at_least=True, busy=doubt))
    return targets


def affine_speedups(rows: Sequence[Row]) -> list[Target]:
    """The same for batches of affine problems, by the fastest call of each: other work can only make calls slower."""
    own = [row for row in rows if FAIRLAYER in row["peer"] and row["problems"] == PROBLEMS[-1] and row["least_ms"]]
    return [
        *(
            Target(f"ms, {row['peer']}, {shape(row)}", row["least_ms"], MOST_AFFINE_MS, busy=busy(row["other_cores"]))
            for row in own
        ),
        *speedups([row | {"forward_backward_ms": row["least_ms"]} for row in rows]),
    ]


def installed(peers: Iterable[Peer]) -> dict[str, dict[str, str]]:
    """Every package of every environment that could be made."""
    found = {}
    for name in dict.fromkeys(peer.environment for peer in peers):
        try:
            found[name] = packages_of(name)
        except UnavailableError as error:
            found[name] = {"unavailable": str(error)}
    return found
