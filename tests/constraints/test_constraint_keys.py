"""Constraints as data: what a stored stream or model knows them by is the same in every process, and whole."""

import json
from collections.abc import Mapping

import numpy as np
import pytest

from conformance import CASES, MadeUp, make_problem
from fairlayer import Affine, ConditionalParity, EqualizedOdds, EqualizedResiduals, InputError, MeanParity, ResidualMean
from fairlayer.constraints.constraint import read_constraint


class Backwards(frozenset):
    """A set that lists its values the other way round, as one of another process may."""

    def __iter__(self):
        return reversed(list(super().__iter__()))


def test_sets_of_values_have_one_order():
    towns = {"Aachen", "Bonn", "Celle", "Dresden", 1, "1", 2.5}
    one, other = (ConditionalParity(0.05, regions={"town": [kind(towns)]}) for kind in (frozenset, Backwards))
    assert list(*one.regions["town"]) != list(*other.regions["town"])
    assert one.key == other.key


def same(a, b) -> bool:
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    if isinstance(a, Mapping):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return type(a) is type(b) and a == b


SETTINGS = [
    MeanParity(0.0),
    MeanParity(1e-300, over=("a", 1), name="pay"),
    MeanParity(0.1, over=["a", ("b", 2)]),
    MeanParity(0.1, over=0),
    MeanParity(0.1, over=(True, 1.5, "é\0")),
    ConditionalParity(0.1, regions={"age": [(None, 30), (30.5, None)], 3: [frozenset({1, "1", None, 2.5})]}),
    ConditionalParity(0.1, regions={"age": [(float("-inf"), 1e308)]}),
    EqualizedOdds(0.1),
    EqualizedOdds(0.1, regions=[(None, 0.5), frozenset({"yes"})]),
    EqualizedResiduals(0.1, name="residuals"),
    ResidualMean(0.1, over="a"),
    Affine([[1.0, 2.0]], lower=None, upper=3.0, name="budget"),
    Affine(np.ones((2, 1, 3)), lower=[[0.1], [0.2]]),
    MadeUp(0.05, over="sex", share=0.25),
]


@pytest.mark.parametrize("constraint", SETTINGS + [one for case in CASES for one in make_problem(case).constraints])
def test_settings_survive_as_data(constraint):
    again = read_constraint(json.loads(json.dumps(constraint.to_data(), allow_nan=False)))
    assert type(again) is type(constraint)
    settings, kept = constraint.settings(), again.settings()
    assert list(settings) == list(kept)
    for name, value in settings.items():
        assert same(value, kept[name]), name
    assert json.dumps(again.to_data()) == json.dumps(constraint.to_data())
    if constraint.needs_groups:
        assert again.key == constraint.key


@pytest.mark.parametrize(
    ("constraint", "other"),
    [
        (MeanParity(0.1), MeanParity(0.1, over="a")),
        (MeanParity(0.1), MeanParity(0.1, name="pay")),
        (MeanParity(0.1, over=("a", "b")), MeanParity(0.1, over=["a", "b"])),
        (MeanParity(0.1, over=0), MeanParity(0.1, over="0")),
        (EqualizedOdds(0.1, regions=[(0, 1)]), EqualizedOdds(0.1, regions=[frozenset({0, 1})])),
        (MadeUp(0.1, share=0.5), MadeUp(0.1, share=0.25)),
        (EqualizedResiduals(0.1), ResidualMean(0.1)),
    ],
    ids=repr,
)
def test_keys_tell_constraints_apart(constraint, other):
    assert constraint.key != other.key


@pytest.mark.parametrize("constraint", [c for c in SETTINGS if c.needs_groups])
def test_keys_do_not_depend_on_the_tolerance(constraint):
    data = {**constraint.to_data(), "tolerance": 0.9}
    assert read_constraint(data).key == constraint.key


@pytest.mark.parametrize(
    "words",
    [
        "MeanParity(0.05)",
        "MeanParity(0.05, over=('a', 'b'))",
        "MadeUp(0.05, share=0.5)",
        "EqualizedOdds(tolerance=0.1)",
    ],
)
def test_constraints_in_words(words):
    read = read_constraint(words)
    expected = eval(words, {"MeanParity": MeanParity, "MadeUp": MadeUp, "EqualizedOdds": EqualizedOdds})
    assert read.settings() == expected.settings()
    assert type(read) is type(expected)


BAD = [
    "MeanParity",
    "Parity(0.05)",
    "MeanParity(__import__('os').getpid())",
    "os.getpid()",
    "MeanParity(0.1), MeanParity(0.2)",
    "MeanParity(0.05",
    "",
    "MeanParity(0.05, share=1)",
    "MeanParity()",
    "MeanParity(-1)",
    "GroupConstraint(0.05)",
    "MeanParity(*[0.05])",
    "MeanParity(**{'tolerance': 0.05})",
    "MeanParity(" + "(" * 500 + "1" + ")" * 500 + ")",
    "MeanParity(0.05)\0",
    {"tolerance": 0.1},
    {"kind": "Parity", "tolerance": 0.1},
    {"kind": ["MeanParity"], "tolerance": 0.1},
    ["MeanParity", 0.1],
    None,
    {"kind": "MeanParity", "tolerance": 0.1, "over": {"bytes": "a"}},
    {"kind": "MeanParity", "tolerance": 0.1, "over": {"tuple": ["a"], "set": ["b"]}},
    {"kind": "EqualizedOdds", "tolerance": 0.1, "regions": [{"set": [[1]]}]},
]


@pytest.mark.parametrize("data", BAD, ids=lambda data: repr(data)[:40])
def test_what_is_no_constraint_is_refused(data):
    with pytest.raises(InputError):
        read_constraint(data)


def test_what_cannot_be_kept_is_refused():
    with pytest.raises(InputError, match=r"over holds .*cannot be written as data"):
        MeanParity(0.1, over=object()).to_data()
