"""Rules for the strength of a penalty."""

from types import SimpleNamespace

import pytest

from experiments.strength import select_strength
from fairlayer import InputError

#           strength: loss, excess
OUTCOMES = {0.1: (0.30, 0.20), 1.0: (0.50, -0.01), 5.0: (0.40, -0.02), 10.0: (0.35, 0.01), 100.0: (0.60, -0.04)}


def attempts(tried, outcomes=OUTCOMES):
    def attempt(strength):
        tried.append(strength)
        loss, excess = outcomes[strength]
        return SimpleNamespace(loss=loss, gap=0.05 + excess, excess=excess)

    return attempt


@pytest.mark.parametrize(
    ("rule", "lazy", "chosen", "order"),
    [
        ("smallest", False, 1.0, [0.1, 1.0, 5.0, 10.0, 100.0]),
        ("smallest", True, 1.0, [0.1, 1.0]),
        ("best", False, 5.0, [0.1, 1.0, 5.0, 10.0, 100.0]),
        ("descend", False, 100.0, [100.0, 10.0]),
    ],
)
def test_rules(rule, lazy, chosen, order):
    tried = []
    selection = select_strength(attempts(tried), [10, 0.1, 100, 1, 5], rule=rule, lazy=lazy)
    assert (selection.strength, selection.satisfied) == (chosen, True)
    assert tried == order
    assert [trial.strength for trial in selection.trials] == sorted(order)
    assert "<- chosen" in str(selection).splitlines()[1 + sorted(order).index(chosen)]


def test_slack_counts_a_near_miss():
    assert select_strength(attempts([]), OUTCOMES, rule="best", slack=0.011).strength == 10.0


@pytest.mark.parametrize(("fallback", "chosen"), [("loss", 0.1), ("gap", 10.0)])
def test_where_none_satisfies(fallback, chosen):
    selection = select_strength(attempts([]), [0.1, 10.0], fallback=fallback)
    assert (selection.strength, selection.satisfied) == (chosen, False)


def test_a_gap_that_cannot_be_measured_satisfies_nothing():
    selection = select_strength(lambda _: SimpleNamespace(loss=1.0, gap=float("nan"), excess=float("nan")), [1.0])
    assert not selection.satisfied


def test_refusals():
    with pytest.raises(InputError, match="grid"):
        select_strength(attempts([]), [])
    with pytest.raises(InputError, match="rule"):
        select_strength(attempts([]), [1.0], rule="largest")
