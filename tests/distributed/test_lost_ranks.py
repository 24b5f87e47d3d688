"""A rank that dies or hangs is an error on all others, within the timeout of the group."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pool import Pool

from fairlayer import MeanParity

TIMEOUT = 4.0


@pytest.mark.parametrize(
    ("fate", "stage"),
    [("dies", "first forward"), ("hangs", "first backward"), ("dies", "second backward"), ("hangs", "second forward")],
)
def test_a_lost_rank_is_an_error_on_all_others(fate, stage):
    pool = Pool(3)
    try:
        one = {
            "z": torch.tensor([0.1, 0.9, 0.4, 0.3]).double(),
            "upstream": torch.ones(4).double(),
            "groups": np.array([0, 1, 0, 1]),
            "constraints": [MeanParity(0.1)],
        }
        pool.warm_up()
        pool.run("jobs:project_share", [one] * 3)
        one |= {"seconds": TIMEOUT, "stage": stage}
        pool.start("jobs:die", [one, {**one, "fate": fate}, one])
        for rank in (0, 2):
            kind, message, seconds = pool.answer(rank, 60.0)
            assert kind == "RankError"
            assert "lost the others" in message
            assert seconds < TIMEOUT + 20.0
    finally:
        for process in pool.processes:
            process.kill()
        pool.close()
