"""The promise at the edge: outputs chosen, with the leader known, to land a hair beyond the tolerance."""

from fractions import Fraction

import numpy as np

from fairlayer import MeanParity, Stream

TOLERANCE = 1e-3


def test_rounding_of_the_history_does_not_break_the_promise():
    """Sums of 32 cells cancel: rounding them one after the other would leave an error far larger than the hair."""
    rng = np.random.default_rng(0)
    for _ in range(10):
        stream = Stream([MeanParity(TOLERANCE, over="a"), MeanParity(1e12, over="b")])
        a, b = rng.integers(0, 2, 200), rng.integers(0, 16, 200)
        z = np.where(b % 2 == 0, 1e8, -1e8) * rng.uniform(0.5, 1.5, 200)
        count, total = [0, 0], [Fraction(0), Fraction(0)]

        def decide(z, a, b, stream=stream, count=count, total=total):
            solution = stream.update(z, {"a": a, "b": b})
            for group, value in zip(a.tolist(), solution.value.tolist(), strict=True):
                count[group] += 1
                total[group] += Fraction(value)
            gap = total[0] / count[0] - total[1] / count[1]
            assert not solution.satisfied or abs(gap) <= Fraction(TOLERANCE)

        decide(z, a, b)
        for _ in range(30):
            group, a, b = int(rng.integers(0, 2)), rng.integers(0, 2, 1), rng.integers(0, 16, 1)
            a[:] = group
            hair = Fraction(10 ** rng.uniform(-13.0, -8.0))
            other = total[1 - group] / count[1 - group]
            wanted = (other + Fraction(TOLERANCE) + hair) * (count[group] + 1) - total[group]
            cell = stream.ledger.index.locate(1, {"a": a, "b": b}, None, None)
            stream.ledger.state.grow(len(stream.ledger.index))
            decide(float(wanted) + stream.ledger.leader.shift()[cell], a, b)
