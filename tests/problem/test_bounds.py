"""The box: any form of bounds, kept to the last bit in every dtype."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fairlayer import InputError, MeanParity, project
from formulas import plain
from pairs import pairwise

N = 40
GROUPS = np.arange(N) % 2
Z = torch.tensor(3 * np.random.default_rng(0).normal(size=N) + GROUPS)


def answer(bounds, dtype=torch.float64, **options):
    return project(Z.to(dtype), {"sex": GROUPS}, MeanParity(0.3), bounds, **options).value


@pytest.mark.parametrize(
    ("dtype", "bounds", "per_sample"),
    pairwise(
        [torch.float64, torch.float32, torch.float16, torch.bfloat16],
        [(0.1, 0.7), (1 / 3, 2 / 3), (-0.3, None), (None, 0.123456789), (0.1, 100.3)],
        [False, True],
    ),
)
def test_bounds_hold_exactly(bounds, dtype, per_sample):
    """Also where the dtype lacks the bound itself: the nearest number inside is used, not the nearest."""
    offset = np.linspace(0.0, 0.01, N) if per_sample else 0.0
    lo, hi = (None if side is None else side + offset for side in bounds)
    y = plain(answer((lo, hi), dtype))
    assert lo is None or (y >= lo).all()
    assert hi is None or (y <= hi).all()
    touched = (y - lo).min() if lo is not None else (hi - y).min()
    assert touched <= 2 * float(torch.finfo(dtype).eps), "the bound should bind, as closely as the dtype allows"


FORMS = {
    "tuple": (0.0, 1.0),
    "list": [0.0, 1.0],
    "integers": (0, 1),
    "numpy scalars": (np.float32(0.0), np.float64(1.0)),
    "tensors": (torch.tensor(0.0), torch.tensor(1.0)),
    "half precision": (torch.zeros(N, dtype=torch.bfloat16), torch.ones(N, dtype=torch.float16)),
    "array": (np.zeros(N), np.ones(N)),
    "mixed": (0.0, torch.ones(N)),
    "rows of an array": np.array([[0.0] * N, [1.0] * N]),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_answer(form):
    assert (answer(FORMS[form]) - answer((0.0, 1.0))).abs().max() < 1e-12


@pytest.mark.parametrize("open_box", [None, (None, None), (-np.inf, np.inf), (np.full(N, -np.inf), None)])
def test_open_bounds_are_no_bounds(open_box):
    assert (answer(open_box) - answer(None)).abs().max() < 1e-12


def test_a_box_beyond_the_range_of_the_dtype_is_open():
    assert torch.equal(answer((-1e6, 1e6), torch.float16), answer(None, torch.float16))


def test_a_wide_box_costs_no_accuracy():
    """Bounds far from every output leave a float32 answer as it is without them."""
    assert (answer((-1e6, 1e6), torch.float32) - answer(None, torch.float32)).abs().max() < 1e-6


def test_bounds_of_no_width():
    assert torch.equal(answer((0.5, 0.5)), torch.full((N,), 0.5, dtype=torch.float64))


BAD = {
    "crossed": ((1.0, 0.0), "lo > hi"),
    "crossed at one sample": ((np.where(np.arange(N) == 7, 2.0, 0.0), 1.0), "lo > hi .* at position 7"),
    "NaN": ((float("nan"), 1.0), "NaN"),
    "NaN at one sample": ((np.where(np.arange(N) == 7, np.nan, 0.0), 1.0), "NaN"),
    "one number": (1.0, "pair"),
    "three numbers": ((0, 1, 2), "pair"),
    "words": (("low", "high"), r"bounds\[0\] must be a number"),
    "wrong length": ((np.zeros(3), None), rf"bounds\[0\] has shape \(3,\).*\({N},\)"),
    "wrong shape": ((None, np.zeros((N, 1))), r"bounds\[1\] has shape"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_bounds(kind):
    bounds, message = BAD[kind]
    with pytest.raises(InputError, match=message):
        answer(bounds)
