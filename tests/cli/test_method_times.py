"""The seconds of a method are those of its training: compiling for the first time is nobody's."""

from __future__ import annotations

import time

import numba

from fairlayer.cli.learning import without_compiling


def test_compiling_is_not_counted() -> None:
    def something_new(x: float) -> float:
        return x * 2.0 + 1.0

    began = time.perf_counter()
    with without_compiling() as seconds:
        assert numba.njit(something_new)(1.0) == 3.0
    total = time.perf_counter() - began
    assert 0.0 <= seconds() < 0.5 * total  # all but a few microseconds of it is compiling


def test_without_compiling_all_is_counted() -> None:
    with without_compiling() as seconds:
        time.sleep(0.05)
    assert seconds() >= 0.05
    assert seconds() == seconds()  # the clock has stopped
