"""Mean parity beside constraints that a stream cannot promise."""

from __future__ import annotations

import numpy as np
import pytest

from fairlayer import EqualizedOdds, MeanParity, ResidualMean, Stream
from formulas import Problem, exact_violations, plain


@pytest.mark.parametrize("seed", range(5))
def test_mean_parity_is_kept_whatever_the_others_need(seed):
    rng = np.random.default_rng(seed)
    stream = Stream([MeanParity(0.05), ResidualMean(0.01), EqualizedOdds(0.02)], bounds=(0.0, 1.0))
    z, sex = [], []
    for _ in range(40):
        n = int(rng.integers(1, 6))
        outputs, labels, targets = rng.random(n), rng.integers(0, 2, n), rng.integers(0, 2, n)
        z += plain(stream.update(outputs, {"sex": labels}, targets=targets).value).tolist()
        sex += labels.tolist()
        problem = Problem(np.array(z), [MeanParity(0.05)], {"sex": np.array(sex)})
        assert max(exact_violations(problem.rows, np.array(z)), default=0) <= 0
