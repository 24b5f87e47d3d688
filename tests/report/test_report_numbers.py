"""Numbers as text, and places on a scale."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlayer.audit.words import (
    aligned,
    aligned_intervals,
    beside,
    confidence,
    count,
    interval,
    isolated,
    number,
    percent,
    shortened,
    stated,
    typed,
)
from fairlayer.report.drawing import Band, Curve, Scale, scale


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.05, "0.0500"),
        (0.99999, "1.00"),
        (-1234.5, "\N{MINUS SIGN}1,234"),
        (1e-9, "1.00e\N{MINUS SIGN}9"),
        (math.nan, "\N{EN DASH}"),
        (math.inf, "\N{EN DASH}"),
        (None, "\N{EN DASH}"),
    ],
)
def test_number(value, text):
    assert number(value) == text


def test_chosen_numbers_read_as_they_were_written():
    assert [stated(0.05), stated(1.0), stated(0.0), stated(1e-7)] == ["0.05", "1", "0", "0.0000001"]
    assert [stated(123456.0), stated(-0.5)] == ["123456", "\N{MINUS SIGN}0.5"]
    assert [confidence(0.95), confidence(0.999)] == ["95\N{NO-BREAK SPACE}%", "99.9\N{NO-BREAK SPACE}%"]


def test_columns_have_the_same_decimals():
    assert aligned([0.5, 0.0123, None]) == ["0.500", "0.012", "\N{EN DASH}"]
    assert aligned([0.5, -0.0001], sign=True) == ["+0.500", "0.000"]  # never minus zero
    assert aligned_intervals([(0.0, 1.5), None]) == ["0.00 to 1.50", "\N{EN DASH}"]
    assert interval((math.nan, math.nan)) == "\N{EN DASH}"


def test_gaps_are_as_precise_as_their_tolerance():
    """Nothing but rounding reads as 0; a gap that exceeds the tolerance never reads as the tolerance."""
    assert beside(1.39e-17, 0.05, False, 0.5) == "0.0000"
    assert beside(-1.39e-17, 0.0, False, 0.5) == "0.000"
    assert beside(0.12345, 0.05, True, 0.5) == "+0.1235"
    assert beside(0.05000001, 0.05, True, 0.5) == "+0.05000001"
    assert beside(1e-12, 0.0, True, 0.5) == "+0.000000000001"
    assert beside(-1234.5678, 500.0, True, 3e4) == "\N{MINUS SIGN}1,235"
    assert beside(math.nan, 0.05, True, 0.5) == "\N{EN DASH}"


def test_words():
    assert number(0.5, sign=True) == "+0.500"
    assert percent(0.1234) == "12.3\N{NO-BREAK SPACE}%"
    assert count(1234567) == "1,234,567"
    assert shortened("a" * 50, 10) == "a" * 9 + "\N{HORIZONTAL ELLIPSIS}"
    assert isolated("Zo\u00eb & 3 <b>") == "Zo\u00eb & 3 <b>"
    for name in ("\u05d0\u05d1", "\u0627\u0628", "\u202eevil"):
        assert isolated(name) == f"\N{FIRST STRONG ISOLATE}{name}\N{POP DIRECTIONAL ISOLATE}"
    shown = " ".join([number(-1234.5), confidence(0.95), number(None), isolated("\u05d0")])
    assert typed(shown) == "-1,234 95 % - \u05d0"
    assert typed("\x1b[2Jx\n") == "\\x1b[2Jx\\n"


@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=20), st.sampled_from([0.0, 0.1]))
def test_a_scale_holds_its_values_and_few_round_ticks(values, margin):
    axis = scale(values, margin=margin)
    assert axis.low < axis.high
    assert all(-1e-6 <= axis(value) <= 100.000001 for value in values)
    assert 1 <= len(axis.ticks) <= 9
    assert len({axis.label(tick) for tick in axis.ticks}) == len(axis.ticks)
    assert axis.down(values[0]) == pytest.approx(100 - axis(values[0]), abs=0.01)


def test_scales_of_little_and_ticks_of_equal_decimals():
    assert (scale([]).low, scale([]).high) == (0.0, 1.0)
    assert scale([math.nan, None, 3.0]).low < 3.0 < scale([3.0]).high
    axis = scale([0.0, 1.0])
    assert [axis.label(tick) for tick in axis.ticks] == ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]
    axis = scale([-0.05, 0.05])
    assert axis.label(axis.ticks[0]) == "\N{MINUS SIGN}0.06"


def test_what_is_not_a_number_is_not_drawn():
    axis = Scale(0.0, 1.0, (0.0, 1.0), 1.0)
    assert math.isnan(axis(math.nan))
    assert (axis(math.inf), axis(-math.inf)) == (100.0, 0.0)
    assert not Band(axis(math.nan), 3.0, "x").drawable
    assert not Curve(((0.0, math.nan),), "x").drawable
    assert Curve(((0.0, 1.0), (2.0, 3.0)), "x", filled=True).path == "M0,1L2,3L2,100L0,100Z"
