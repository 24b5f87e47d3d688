"""The compiled module takes arrays as they are, and gives arrays that own their memory."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from fairlayer.core import _native


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [0, 1, 1000])
def test_arrays_keep_their_dtype(dtype: type, size: int) -> None:
    values = np.arange(size, dtype=dtype)
    values.flags.writeable = False
    sums = _native.running_sums(values)
    gc.collect()
    assert sums.dtype == dtype
    assert np.array_equal(sums, np.cumsum(values))


@pytest.mark.parametrize("values", [np.arange(3), np.ones((2, 2)), np.arange(6.0)[::2], [1.0, 2.0]])
def test_nothing_is_converted_silently(values: object) -> None:
    with pytest.raises(TypeError, match="incompatible function arguments"):
        _native.running_sums(values)
