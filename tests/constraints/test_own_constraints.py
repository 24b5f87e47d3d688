"""What a constraint of one's own says of itself is checked where the class, or the constraint, is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from fairlayer import FairLayer, InputError, RatioParity, project
from fairlayer.constraints import Condition, GroupConstraint
from fairlayer.constraints.constraint import _KINDS, Constraint

Z, SEX, X = np.array([0.1, 0.2, 0.8, 0.9]), {"sex": [0, 1, 0, 1]}, {"x": [0, 0, 1, 1]}


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """Classes made here are not known afterwards."""
    monkeypatch.setattr("fairlayer.constraints.constraint._KINDS", dict(_KINDS))


def kind(base: type = GroupConstraint, **attributes: Any) -> Any:
    """A class of one's own."""
    return dataclass(frozen=True, eq=False)(type("Mine", (base,), attributes))


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"quantity": "residuals"}, "Mine has quantity 'residuals': it must be one of .*'residual'"),
        ({"quantity": None}, "Mine has quantity None"),
        ({"comparison": "quotient"}, "Mine has comparison 'quotient': it must be one of .*'ratio'"),
        ({"comparison": property(lambda self: "quotient")}, "Mine has comparison 'quotient'"),
        ({"quantity": "decision"}, "no threshold"),
        ({"quantity": "decision", "comparison": "each", "threshold": 0.5}, "does not go with comparison 'each'"),
        ({"quantity": "residual", "comparison": "ratio"}, "does not go with comparison 'ratio'"),
        ({"comparison": "ratio"}, "derive it from RatioParity"),
        ({"comparison": "ratio", "ratio": 0.8}, r"no tolerance; got tolerance=0\.1"),
    ],
)
def test_what_cannot_be_meant_is_refused(attributes, message):
    with pytest.raises(InputError, match=message):
        kind(**attributes)(0.1)


def test_a_bare_constraint_is_refused():
    with pytest.raises(InputError, match=r"Bare is a bare Constraint.*GroupConstraint"):
        FairLayer(type("Bare", (Constraint,), {})())


def test_a_condition_on_something_else_is_refused():
    with pytest.raises(InputError, match=r'source \'features\'.*"feature" or "target"'):
        Condition("features", "age", ((None, 30),))
    with pytest.raises(InputError, match="low < high"):
        Condition("feature", "age", ((30, 20),))


@pytest.mark.parametrize("source", ["feature", "target"])
def test_what_it_needs_follows_from_its_conditions(source):
    mine = kind(conditions=property(lambda self: (Condition(source, "x", ((None, 0.5),)),)))(0.0)
    assert (mine.needs_features, mine.needs_targets) == (source == "feature", source == "target")
    with pytest.raises(InputError, match=f"{source}s is missing"):
        project(Z, SEX, mine)
    found = project(Z, SEX, mine, targets=X["x"], features=X)
    assert np.allclose(found.value, [0.15, 0.15, 0.8, 0.9])
    assert found.rows[0].startswith("Mine, sex")  # a class without a title has its name


def test_a_ratio_of_ones_own_allows_what_it_says():
    fields = {"__annotations__": {"tolerance": Any, "ratio": float}, "comparison": "ratio"}
    fields |= {"tolerance": field(default=0.0, init=False), "ratio": field(default=0.9, kw_only=True)}
    for mine in (kind(**fields)(), type("Mine", (RatioParity,), {})(0.9)):
        found = project(Z, SEX, mine, bounds=(0, 1))
        assert mine.coefficient == 0.9
        assert abs(found.gaps[0]) <= mine.allowed + 1e-12
        assert found.value[::2].mean() >= 0.9 * found.value[1::2].mean() - 1e-12
