"""`check_discrepancy` finds what is wrong with a discrepancy, and nothing wrong with those that are right."""

from __future__ import annotations

import pytest
import torch

from discrepancies import KINDS, Odds, Scaled, kind_of
from fairlayer import FairLayer, InputError, MeanParity, WeightedSquared, check_discrepancy, project


@pytest.mark.parametrize("kind", ["squared", Odds(), *(kind_of(kind) for kind in KINDS if kind != "weighted squared")])
def test_those_that_are_right(kind):
    check_discrepancy(kind)


def test_on_outputs_of_ones_own():
    check_discrepancy("entropy", [0.1, 0.5, 0.7])
    check_discrepancy(WeightedSquared([1.0, 2.0]), torch.tensor([0.1, 0.9]))
    with pytest.raises(InputError, match=r"z\[1\] is 1.5"):
        check_discrepancy("entropy", [0.1, 1.5])


class WrongSlope(Scaled):
    def slope(self, z, s, lo, hi):
        return 2.0 * super().slope(z, s, lo, hi)


class WrongSensitivity(Odds):
    name = "wrong"

    def sensitivity(self, z, s, lo, hi):
        return self.slope(z, s, lo, hi)


class TooConvex(Odds):
    strong_convexity = 5.0


class RisesWithTheShift(Scaled):
    factor = -7.0


class NotClipped(Scaled):
    def response(self, z, s, lo, hi):
        return z - s / self.factor


class NotHeld(Scaled):
    def sensitivity(self, z, s, lo, hi):
        return torch.ones_like(z)


class OtherValue(Scaled):
    def value(self, y, z):
        return 0.5 * (y - z) ** 2


class NotAtHome(Scaled):
    def response(self, z, s, lo, hi):
        return torch.clamp(z + 0.1 - s / self.factor, lo, hi)


class LeavesItsInterval(Scaled):
    domain = interval = (0.0, 1.0)


class SinglePrecision(Scaled):
    def response(self, z, s, lo, hi):
        return super().response(z, s, lo, hi).float()


class Endless(Odds):
    def slope(self, z, s, lo, hi):
        return super().slope(z, s, lo, hi) / (s > -3.0)


class NoSlope:
    name = "no slope"
    piecewise_linear = True

    def response(self, z, s, lo, hi):
        return torch.clamp(z - s, lo, hi)


class Flat(Scaled):
    """|y - z|^1.5 at heart: its curvature is infinite at y = z."""

    piecewise_linear = False

    def response(self, z, s, lo, hi):
        return torch.clamp(z - s * s.abs(), lo, hi)

    def sensitivity(self, z, s, lo, hi):
        raw = z - s * s.abs()
        return ((raw >= lo) & (raw <= hi)).double()

    def slope(self, z, s, lo, hi):
        return self.sensitivity(z, s, lo, hi) * 2.0 * s.abs()


class Numpy(Scaled):
    def response(self, z, s, lo, hi):
        return super().response(z, s, lo, hi).numpy()


class SingleSensitivity(Scaled):
    def sensitivity(self, z, s, lo, hi):
        return super().sensitivity(z, s, lo, hi).float()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Odds, r"discrepancy is the class Odds: pass an object, Odds\(\)"),
        (NoSlope, "NoSlope has no slope"),
        (type("NoName", (NoSlope,), {"name": property()}), "NoName has no name"),
    ],
)
def test_what_lacks_something_is_refused_when_the_layer_is_made(make, message):
    with pytest.raises(InputError, match=message):
        FairLayer(MeanParity(0.1), discrepancy=make())


@pytest.mark.parametrize("wrong", [Numpy, SinglePrecision, SingleSensitivity])
def test_what_returns_something_else_is_refused_by_name(wrong):
    z = torch.tensor([0.0, 1.0], dtype=torch.float64, requires_grad=True)
    with pytest.raises(InputError, match=r"'scaled': (response|slope) must return a float64 tensor"):
        project(z, [0, 1], [MeanParity(0.1)], discrepancy=wrong()).value.sum().backward()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (WrongSlope, r"slope is not -d response / d s.*got 0\.28.*expected 0\.14"),
        (WrongSensitivity, "sensitivity is not d response / d z"),
        (TooConvex, r"slope exceeds 1 / strong_convexity = 0\.2"),
        (RisesWithTheShift, "slope is not positive"),
        (NotClipped, "response is not clipped to its bounds"),
        (NotHeld, "is not 0 where a bound holds the sample"),
        (OtherValue, r"response does not minimise value\(y, z\)"),
        (NotAtHome, "response to shift 0 is not z"),
        (LeavesItsInterval, "response leaves its interval, 0 to 1"),
        (SinglePrecision, "response must return a float64 tensor"),
        (Endless, "slope is not finite"),
        (Flat, "slope is not positive"),
        (NoSlope, "NoSlope has no slope"),
    ],
)
def test_those_that_are_wrong(wrong, message):
    with pytest.raises(InputError, match=message):
        check_discrepancy(wrong())
