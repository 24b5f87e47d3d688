"""fairlayer and its peers side by side: the same problems, with times, violations and errors."""

import tempfile
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from measure import busy
from peers import plot, process, report, scoring
from peers.catalogue import FAIRLAYER, PEERS, PROJECT, Peer
from peers.environments import UnavailableError, packages_of, python_of
from peers.worker import Request
from problems import Case
from records import Target, figure, write_csv, write_settings

SIZES = (16, 256, 2000, 20_000, 200_000)
MAIN = (2, True)  # attributes and box: measured at every size
OTHERS = ((2, False), (5, True))  # measured at the sizes in OTHER_SIZES
OTHER_SIZES = (256,)
CALL_LIMIT = 20.0  # seconds; a peer whose call takes longer is not tried at larger sizes
TIME_LIMIT = 120.0  # seconds for a worker as a whole, building included

COLUMNS = (
    *("peer", "version", "dtype", "n", "k", "box", "groups", "forward_ms", "forward_backward_ms", "repeats"),
    *("gap_violation", "box_violation", "output_error", "gradient_error", "checked", "peak_mb"),
    *("build_ms", "first_ms", "other_cores", "note"),
)
BUSY_NOTE = "measured beside other work"
FAIRNESS_TRAINING_SPEEDUPS = {2000: 300.0, 20_000: 3000.0}

Row = dict[str, Any]


def main(args: Namespace) -> list[Target]:
    """Measure size by size, so that neighbours in the table are neighbours in time."""
    peers = [peer for peer in PEERS if not args.peers or any(text in peer.name for text in args.peers)]
    seconds = 2.0 if args.quick else CALL_LIMIT
    rows: list[Row] = []
    stopped: dict[tuple, str] = {}
    for case in cases(args):
        for peer in peers:
            if peer.floor and (case.k, case.box) != MAIN:
                continue
            row = measure(peer, case, args, seconds, stopped)
            rows.append(row)
            write_csv(args.results / "peers.csv", rows)  # as it goes, so that an interruption loses little
            time = figure(row["forward_backward_ms"]) or "-"
            shape = f"n={case.n} k={case.k} {'box' if case.box else 'no box'}"
            print(f"   {shape:<22} {peer.name:<38} {time:>10} ms  {row['note']}", flush=True)
    rows.sort(key=lambda row: (row["k"] != MAIN[0], not row["box"], row["n"]))
    targets = speedups(rows)
    write_csv(args.results / "peers.csv", rows)
    (args.results / "peers.md").write_text(report.page(rows, targets, CALL_LIMIT))
    plot.draw(args.results / "peers.png", rows, Case(rows[0]["n"], *MAIN))
    write_settings(args.results / "peers.json", args, environments=installed(peers))
    return targets


def cases(args: Namespace) -> Iterator[Case]:
    """What to measure, smaller sizes first, since a peer is given up at the size it cannot do."""
    sizes = args.sizes or (SIZES[:2] if args.quick else SIZES)
    for n in sorted(sizes):
        yield Case(n, *MAIN)
        if n in OTHER_SIZES and not args.quick:
            for k, box in OTHERS:
                yield Case(n, k, box)


def measure(peer: Peer, case: Case, args: Namespace, seconds: float, stopped: dict[tuple, str]) -> Row:
    """One row of the table; a peer that cannot do it gets a row that says why."""
    row: Row = dict.fromkeys(COLUMNS) | {
        "peer": peer.name,
        "dtype": peer.dtype,
        "n": case.n,
        "k": case.k,
        "box": case.box,
        "groups": "fixed" if peer.fixed_groups else "new",
    }
    series = (peer.name, case.k, case.box)
    try:
        python = python_of(peer.environment)
        row["version"] = packages_of(peer.environment).get(peer.package)
    except UnavailableError as error:
        return row | {"note": str(error)}
    if reason := peer.cannot(case.k, case.box) or stopped.get(series):
        return row | {"note": reason}

    with tempfile.TemporaryDirectory() as folder:
        request = Request(
            adapter=peer.adapter,
            options=peer.options,
            dtype=peer.dtype,
            fixed_groups=peer.fixed_groups,
            compiled=peer.compiled,
            case=case,
            seed=args.seed,
            repeats=3 if args.quick else 7,
            max_repeats=20 if args.quick else 200,
            seconds=seconds,
            patience=2 * CALL_LIMIT,
            checked=3 if args.quick else 5,
            outputs=str(Path(folder) / "outputs.npz"),
        )
        outcome = process.run(python, request, TIME_LIMIT)
        result = outcome.report or {}
        row |= {name: value for name, value in result.items() if name in COLUMNS}
        if result and not peer.floor:
            row |= scoring.score(request)
    row["note"] = note(outcome)
    if outcome.stopped or (row["forward_backward_ms"] or 0) > 1e3 * CALL_LIMIT:
        stopped[series] = f"not tried: at n = {case.n}, {row['note']}"
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
    """fairlayer against each peer, in the peer's own precision, at each size of the main case."""
    ours = {
        (row["dtype"], row["n"], row["k"], row["box"]): row
        for row in rows
        if row["peer"].startswith(FAIRLAYER) and row["forward_backward_ms"]
    }
    skipped = {peer.name for peer in PEERS if peer.floor or peer.environment == PROJECT}
    targets = []
    for row in rows:
        mine = ours.get((row["dtype"], row["n"], row["k"], row["box"]))
        if row["peer"] in skipped or not mine or not row["forward_backward_ms"]:
            continue
        limit = 1.0
        if row["peer"].startswith("fairness-training"):
            limit = FAIRNESS_TRAINING_SPEEDUPS.get(row["n"], 1.0)
        shape = f"n = {row['n']}, k = {row['k']}{'' if row['box'] else ', no box'}"
        what = f"times faster than {row['peer']}, {shape}"
        ratio = row["forward_backward_ms"] / mine["forward_backward_ms"]
        doubt = any(busy(measured["other_cores"]) for measured in (row, mine))
        targets.append(Target(what, ratio, limit, at_least=True, busy=doubt))
    return targets


def installed(peers: Sequence[Peer]) -> dict[str, dict[str, str]]:
    """Every package of every environment that could be made."""
    found = {}
    for name in dict.fromkeys(peer.environment for peer in peers):
        try:
            found[name] = packages_of(name)
        except UnavailableError as error:
            found[name] = {"unavailable": str(error)}
    return found
