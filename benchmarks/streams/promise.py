"""Watching the promise: steps with a pooled gap above the tolerance, counted without rounding."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import combinations

import numpy as np

from fairlayer import MeanParity, Solution, Stream

NEAR = 1.0 - 1e-9  # gaps below this share of the tolerance need no second look


class Watch:
    """Counts the steps of a stream of mean parity, and those after which some pooled gap was above its tolerance."""

    def __init__(self, stream: Stream):
        self.stream = stream
        self.tolerance = Fraction(stream.settings.tolerances[0])
        self.limit = NEAR * stream.settings.tolerances[0]
        self.steps = 0
        self.above = 0
        self.exact = 0  # steps decided in rational arithmetic
        self.samples = 0

    def look(self, solution: Solution) -> None:
        """After each update."""
        self.steps += 1
        gaps = solution.gaps
        if len(gaps) and np.abs(gaps).max() > self.limit:
            self.exact += 1
            self.above += self._largest_gap() > self.tolerance

    def _largest_gap(self) -> Fraction:
        """From the ledger's sums, which are kept in two floats each."""
        plan, view = self.stream.ledger.index.plan, self.stream.ledger.view()
        state = self.stream.ledger.state
        totals = [Fraction(high) + Fraction(low) for high, low in state.cells["total"].tolist()]
        counts = state.count
        means: dict[int, Fraction] = {}
        for k in {*view.plus.tolist(), *view.minus.tolist()}:
            cells = np.flatnonzero(plan.membership[:, k])
            means[k] = sum(totals[c] for c in cells) / int(counts[cells].sum())
        return max(abs(means[a] - means[b]) for a, b in zip(view.plus.tolist(), view.minus.tolist(), strict=True))

    def compare(self, emitted: np.ndarray, groups: np.ndarray) -> None:
        """At the end, from what was emitted alone: the last step once more, independent of the ledger."""
        self.samples += len(emitted)
        values = [Fraction(value) for value in emitted.tolist()]
        for column in groups.T:
            means = []
            for label in np.unique(column):
                members = np.flatnonzero(column == label).tolist()
                means.append(sum(values[i] for i in members) / len(members))
            self.above += any(abs(a - b) > self.tolerance for a, b in combinations(means, 2))


# Adversaries: raw output and groups of the next batch, given the stream so far.


def _one_sided(rng: np.random.Generator, step: int, n: int, stream: Stream) -> tuple[np.ndarray, np.ndarray]:
    """Hundreds of batches of one group alone, then the other, far apart."""
    side = (step // 300) % 2
    groups = np.column_stack([np.full(n, side), rng.integers(0, 3, n)])
    return rng.normal(3.0 * side, 1.0, n), groups


def _rising(rng: np.random.Generator, step: int, n: int, stream: Stream) -> tuple[np.ndarray, np.ndarray]:
    """Outputs that grow without end, and groups that follow them."""
    groups = rng.integers(0, 2, (n, 3))
    return 0.001 * step + rng.normal(groups.sum(axis=1), 0.3), groups


def _newcomers(rng: np.random.Generator, step: int, n: int, stream: Stream) -> tuple[np.ndarray, np.ndarray]:
    """A group never seen before, every so often."""
    groups = np.column_stack([rng.integers(0, 2 + min(step // 500, 10), n), rng.integers(0, 2, n)])
    return rng.normal(groups[:, 0], 1.0), groups


def _outliers(rng: np.random.Generator, step: int, n: int, stream: Stream) -> tuple[np.ndarray, np.ndarray]:
    """Now and then outputs a million times as large."""
    groups = (rng.random((n, 2)) < 0.1).astype(np.int64)
    return rng.normal(0.0, 1.0, n) * (1e6 if step % 97 == 0 else 1.0), groups


def _against(rng: np.random.Generator, step: int, n: int, stream: Stream) -> tuple[np.ndarray, np.ndarray]:
    """Whatever widens the gap of the moment."""
    gap = next(iter(stream.gaps().values()), 0.0)
    groups = rng.integers(0, 2, (n, 2))
    return np.where((groups[:, 0] == 0) == (gap >= 0), 1.0, -1.0) * rng.uniform(1.0, 5.0, n), groups


ADVERSARIES: tuple[Callable, ...] = (_one_sided, _rising, _newcomers, _outliers, _against)


def provoke(streams: int, steps: int, seed: int) -> Iterator[Watch]:
    """Adversarial streams, batch sizes 1 to 256, tolerances 1e-4 to 0.5, with and without box, in both precisions."""
    for number in range(streams):
        rng = np.random.default_rng([seed, number])
        adversary = ADVERSARIES[number % len(ADVERSARIES)]
        box = (-2.0, 4.0) if (number // len(ADVERSARIES)) % 2 else None
        dtype = np.float32 if number % 4 == 3 else np.float64
        stream = Stream([MeanParity(float(10 ** rng.uniform(-4.0, -0.3)))], bounds=box)
        watch = Watch(stream)
        emitted, seen = [], []
        for step in range(steps):
            n = int(2 ** rng.uniform(0.0, 8.01)) if step % 4 == 0 else int(rng.integers(1, 5))
            z, groups = adversary(rng, step, n, stream)
            solution = stream.update(z.astype(dtype), groups)
            watch.look(solution)
            emitted.append(solution.value)
            seen.append(groups)
        watch.compare(np.concatenate(emitted).astype(np.float64), np.concatenate(seen))
        yield watch
