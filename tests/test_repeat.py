"""The repeat lane: a table of labels seen before is solved by template, and nobody can tell."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fairlayer import Affine, InputError, MeanParity, Status, project
from fairlayer.projection import ConstraintSet

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def batch(seed: int, n: int = 50, labels: int = 2, k: int = 2, dtype: torch.dtype = torch.float64):
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, labels, (n, k))
    groups[:labels] = np.arange(labels)[:, None]
    z = rng.normal(size=n) * rng.choice([1.0, 30.0]) + groups.sum(axis=1)
    return torch.tensor(z, dtype=dtype), torch.tensor(groups)


def assert_same(solution, expected) -> None:
    assert torch.equal(solution.value, expected.value)
    assert solution.rows == expected.rows
    assert solution.vacuous == expected.vacuous
    assert solution.status == expected.status
    assert torch.equal(solution.gaps, expected.gaps)
    assert torch.equal(solution.multipliers, expected.multipliers)


def assert_lane_changes_nothing(batches, constraints, **options) -> ConstraintSet:
    """Run the batches one after the other with rules that remember, and each by itself with rules that do not."""
    rules = ConstraintSet(constraints)
    for z, groups in batches:
        assert_same(project(z, groups, rules, **options), project(z, groups, ConstraintSet(constraints), **options))
    return rules


@DTYPES
@pytest.mark.parametrize("bounds", [None, (0.0, 1.0), (0.0, None)])
def test_bitwise_the_same(dtype, bounds):
    batches = [batch(seed, n=20 + 7 * seed, dtype=dtype) for seed in range(40)]
    rules = assert_lane_changes_nothing(batches, MeanParity(0.05), bounds=bounds)
    assert rules.template is not None


def test_gradients_are_the_same():
    rules = ConstraintSet(MeanParity(0.05))
    project(*batch(0), rules)
    z, groups = batch(1)
    upstream = torch.randn(len(z), dtype=z.dtype, generator=torch.manual_seed(0))
    found = []
    for chosen in (rules, ConstraintSet(MeanParity(0.05))):
        leaf = z.clone().requires_grad_()
        found += torch.autograd.grad(project(leaf, groups, chosen, (0.0, 1.0)).value, leaf, upstream)
    assert torch.equal(*found)


@pytest.mark.parametrize(
    "kinds",
    [
        [{"labels": 2}, {"labels": 3}, {"labels": 2}],
        [{"k": 2}, {"k": 1}, {"k": 3}, {"k": 2}],
        [{"n": 50}, {"n": 4}, {"n": 500}],
    ],
    ids=["label sets", "columns", "sizes"],
)
def test_batches_that_differ(kinds):
    assert_lane_changes_nothing([batch(seed, **kind) for seed, kind in enumerate(kinds * 2)], MeanParity(0.05))


def test_a_label_in_the_middle_of_the_range():
    """Labels 0 and 2, then 0, 1 and 2: the range is the same, the groups are not."""
    z, groups = batch(0, labels=3)
    gap = torch.where(groups == 1, 2, groups)
    assert_lane_changes_nothing([(z, gap), (z, groups), (z, gap)], MeanParity(0.05))


@pytest.mark.parametrize("other", [torch.tensor([[0, 7]]), torch.tensor([[-1, 0]])], ids=["above", "below"])
def test_a_label_out_of_range(other):
    z, groups = batch(0)
    changed = torch.cat([other, groups[1:]])
    assert_lane_changes_nothing([(z, groups), (z, changed), (z, groups)], MeanParity(0.05))


def test_a_group_that_vanishes():
    z, groups = batch(0)
    rules = assert_lane_changes_nothing([(z, groups), (z, torch.zeros_like(groups))], MeanParity(0.05))
    assert project(z, torch.zeros_like(groups), rules).status is Status.VACUOUS


def test_tolerances_and_bounds_are_read_anew():
    tolerance = torch.tensor(0.5, dtype=torch.float64)
    constraint = MeanParity(tolerance)
    rules = ConstraintSet(constraint)
    z, groups = batch(0)
    project(z, groups, rules)
    tolerance.fill_(0.01)
    assert project(z, groups, rules).gaps.abs().max() <= 0.01
    assert project(z, groups, rules, bounds=(0.2, 0.4)).value.max() <= 0.4


def test_nothing_is_remembered_of_a_matrix():
    """As many samples as cells: the system looks like one of labels, and is not."""
    groups = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    z = torch.tensor([1.0, 5.0, 2.0, 3.0], dtype=torch.float64)
    constraints = [MeanParity(0.1), Affine([[1.0, 2.0, 3.0, 4.0]], upper=3.0)]
    assert_lane_changes_nothing([(z, groups)] * 3, constraints)


def test_attributes_named_in_another_order():
    batches = [batch(seed) for seed in range(3)]
    assert_lane_changes_nothing(batches, [MeanParity(0.01, over=1), MeanParity(0.5, over=0)])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_outputs_that_are_not_finite(bad):
    rules = ConstraintSet(MeanParity(0.05))
    z, groups = batch(0)
    before = project(z, groups, rules).value
    broken = z.clone()
    broken[7] = bad
    with pytest.raises(InputError, match=r"z\[7\]"):
        project(broken, groups, rules)
    assert torch.equal(project(z, groups, rules).value, before)


def test_a_table_of_another_length():
    rules = ConstraintSet(MeanParity(0.05))
    z, groups = batch(0)
    project(z, groups, rules)
    with pytest.raises(InputError, match="50 entries for 49 outputs"):
        project(z[1:], groups, rules)
