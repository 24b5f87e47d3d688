"""The measured rows as a page to read."""

from collections.abc import Sequence
from typing import Any

import affine
from affine import AffineCase
from peers.catalogue import AFFINE
from peers.process import MEMORY_LIMIT_MB
from problems import TOLERANCE
from records import Target, figure, markdown_table

Row = dict[str, Any]

INTRODUCTION = f"""# fairlayer and its peers

Written by `./dev bench peers`; versions, seed and machine are in `peers.json`, all columns in `peers.csv`.

The problem: the nearest y to z (n,) with k binary attributes, each mean gap at most {TOLERANCE:g}, with or
without the box [0, 1]. Every call gets a batch it has not seen, with new groups except where a name says
"groups fixed". Times are medians in milliseconds, from tensors z and groups to the output, or to the
gradient of a random linear loss; a peer's building before the first batch is not in them. Each peer runs in
its own process and environment, one size after the other.

Violations are of the returned numbers, summed in float64. Errors are against a float64 reference that does
not use fairlayer: Clarabel's solution, refined by Newton steps and checked against the optimality
conditions. Output error is the largest difference; gradient error is relative to the gradient's norm. Peak
memory is of the whole process, libraries included. A peer is not tried at larger n once a call
takes {{limit:g}} s or it needs {MEMORY_LIMIT_MB // 1024} GB.

Not all rows need be of one run: the last column says when each was measured.

![forward + backward against batch size](peers.png)
"""

AFFINE_INTRODUCTION = f"""## Batches of affine problems

What layers for optimisation problems are made for: independent problems in one call, each the nearest y to z with
{AffineCase.n} outputs in the box [{affine.BOX[0]:g}, {affine.BOX[1]:g}] and {AffineCase.k} rows, |A y| at most
{affine.TOLERANCE:g}. Every call has new z and new rows, except where a name says "rows fixed": Pi-net compiles its rows
into the program. fairlayer makes its constraint from the rows within the call. Least: the fastest call, which is what
speed-ups are taken from, as other work on the machine can only make calls slower. Gap violation is that of the rows.
"""


def page(rows: Sequence[Row], affine_rows: Sequence[Row], targets: Sequence[Target], limit: float) -> str:
    """Write the whole page."""
    parts = [INTRODUCTION.format(limit=limit)]
    for k, box in dict.fromkeys((row["k"], row["box"]) for row in rows):
        chosen = [row for row in rows if (row["k"], row["box"]) == (k, box)]
        parts.append(f"## {k} attributes, {'box [0, 1]' if box else 'no box'}\n")
        parts.append("Forward + backward, ms:\n\n" + _summary(chosen, "n", "forward_backward_ms") + "\n")
        parts.append("All figures:\n\n" + _details(chosen, "n") + "\n")
    if affine_rows:
        shown = [row | {"peer": row["peer"].removeprefix(AFFINE)} for row in affine_rows]
        parts.append(AFFINE_INTRODUCTION)
        parts.append("Forward + backward, ms, least:\n\n" + _summary(shown, "problems", "least_ms") + "\n")
        parts.append("All figures:\n\n" + _details(shown, "problems") + "\n")
    if targets:
        cells = [(t.what, figure(t.measured), t.limit_text, t.met) for t in targets]
        parts.append("## Speed-ups\n\nAgainst fairlayer in the peer's own precision, forward + backward.\n")
        parts.append(markdown_table(("what", "measured", "limit", "met"), cells) + "\n")
    return "\n".join(parts)


def _day(row: Row) -> str:
    return (row["date"] or "")[:10]


def _summary(rows: Sequence[Row], size: str, time: str) -> str:
    sizes = sorted({row[size] for row in rows})
    times = {(row["peer"], row[size]): figure(row[time]) or "-" for row in rows}
    names = dict.fromkeys(row["peer"] for row in rows)
    lines = [(name, *(times.get((name, n), "-") for n in sizes)) for name in names]
    return markdown_table(("peer", *(f"{size} = {n:,}" for n in sizes)), lines)


def _details(rows: Sequence[Row], size: str) -> str:
    header = (
        "peer",
        "version",
        "dtype",
        size,
        "forward",
        "fwd+bwd",
        "least",
        "repeats",
        "gap violation",
        "box violation",
        "output error",
        "gradient error",
        "peak MB",
        "note",
        "date",
    )
    times = ("forward_ms", "forward_backward_ms", "least_ms")
    errors = ("gap_violation", "box_violation", "output_error", "gradient_error")
    lines = [
        (
            row["peer"],
            row["version"],
            row["dtype"],
            row[size],
            *(figure(row[name]) for name in times),
            row["repeats"],
            *(None if row[name] is None else f"{row[name]:.0e}" for name in errors),
            None if row["peak_mb"] is None else f"{row['peak_mb']:.0f}",
            row["note"],
            _day(row),
        )
        for row in rows
    ]
    return markdown_table(header, lines)
