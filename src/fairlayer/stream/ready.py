"""Everything that a stream runs, compiled and loaded before it is needed.

Compiling takes a minute, loading what is compiled a second. Inside a transaction other writers would
wait for it. So a stream in a store goes through everything beforehand, in memory: each kind of step, in float32 and
float64.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from fairlayer.compiled import compile_all
from fairlayer.constraints import ConditionalParity, EqualizedOdds, MeanParity, RateParity, ResidualMean
from fairlayer.solve import smooth
from fairlayer.stream.policies import POLICIES

_TURN = threading.Lock()
_READY: set[tuple[str, str]] = set()


def prepare(*ways: str, discrepancy: str = "squared") -> None:
    """Compile and load what streams run that decide in these ways, once in a process; all where none is named."""
    with _TURN:
        for way in ways or POLICIES:
            if (way, discrepancy) not in _READY:
                for dtype in (np.float32, np.float64):
                    _rehearse(way, dtype, discrepancy)
                compile_all(but=smooth.__name__)  # those of the discrepancy at hand are reached
                _READY.add((way, discrepancy))


def _rehearse(way: str, dtype: Any, discrepancy: str) -> None:
    """A few short streams in memory that leave out no kind of step."""
    from fairlayer.stream.stream import Stream

    z, words = np.array([0.1, 0.9, 0.4, 0.6], dtype), {"g": ["a", "b", "a", "b"]}
    table, targets = np.array([[0, 1], [1, 0], [0, 0], [1, 1]]), np.array([0.0, 1.0, 1.0, 0.0])
    options: dict[str, Any] = {"bounds": (0.0, 1.0), "policy": way, "b_tau": 3, "discrepancy": discrepancy}

    def run(stream: Stream, groups: Any, **more: Any) -> None:
        for n in (4, 2, 1):
            stream.update(**{name: _first(n, each) for name, each in {"z": z, "groups": groups, **more}.items()})

    if way == "decisions":  # of one attribute and of two, differences and ratios
        run(Stream([RateParity(ratio=0.9)]), words)
        stream = Stream([RateParity(0.01)], bounds=(0.0, 1.0), warm_start=(z, table))
    elif way == "classes":
        z = np.array([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7], [0.2, 0.6, 0.2], [0.3, 0.3, 0.4]], dtype)
        stream = Stream([MeanParity(0.01)], simplex=True, warm_start=(z, table))
    else:
        run(Stream([MeanParity(0.01)], **options), words)
        stream = Stream([MeanParity(0.01)], **options)
    run(stream, table, targets=targets)  # one that was met before takes another way
    run(stream, {j: table[:, j].copy() for j in range(2)})
    stream.certificate()
    if way in ("decisions", "classes"):
        return
    # No gap at all, which numbers of this dtype cannot keep: the constant is tried.
    exact = Stream([MeanParity(0.0)], **options)
    for part in (slice(4), slice(1, 4), slice(2)):
        exact.update(z[part] / 3, {"g": table[part, 0].copy(), "h": table[part, 1].copy()})
    conditions = ConditionalParity(0.01, regions={"x": [(None, 0.5), (0.5, None)]})
    features = {"x": z.tolist()}
    for constraints in ([EqualizedOdds(0.01), conditions], [ResidualMean(0.01)]):
        run(Stream(constraints, **options), words, targets=targets, features=features)
    beyond = Stream([ResidualMean(0.01)], **options)
    beyond.update(z, words, targets=targets + 5.0)  # no output within the bounds will do
    if way == "ledger":
        later = Stream([EqualizedOdds(0.01)], **options, each_batch=True, warm_start=(z, words))
        later.update(z, words, ids="abcd")
        later.observe("abcd", targets)


def _first(n: int, data: Any) -> Any:
    """What is given of the first samples."""
    return {name: column[:n] for name, column in data.items()} if isinstance(data, dict) else data[:n]
