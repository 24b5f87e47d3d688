"""At the border of the compiled module: arrays are taken as they are or refused, never converted silently."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from fairlayer.core._native import cost_tables

# Two units, of three and two samples; one of the first and both of the second have a yes now.
START, SLOPE, NOW = np.array([0, 3, 5]), np.array([-1.0, 2.0, 4.0, 1.0, 3.0]), np.array([1, 2])
ARGUMENTS = {"start": START, "slope": SLOPE, "now": NOW}


def test_read_only_arrays_are_taken_and_the_answer_owns_its_memory() -> None:
    for array in ARGUMENTS.values():
        array.flags.writeable = False
    answers = [cost_tables(START, SLOPE, NOW) for _ in range(100)]
    gc.collect()
    assert all(answer.tolist() == [1, 0, 2, 6, -4, -3, 0] for answer in answers)
    assert not np.shares_memory(answers[0], answers[1])


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda array: array.astype(np.float32), id="dtype"),
        pytest.param(lambda array: np.repeat(array, 2)[::2], id="layout"),
        pytest.param(lambda array: array[None], id="shape"),
        pytest.param(lambda array: array.tolist(), id="list"),
    ],
)
def test_another_dtype_layout_or_shape_is_refused(name: str, change) -> None:
    arguments = ARGUMENTS | {name: change(ARGUMENTS[name])}
    with pytest.raises(TypeError, match="incompatible function arguments"):
        cost_tables(*arguments.values())
