"""Class probabilities: every class is fair in exact arithmetic; the nearest such output; its derivative; refusals."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from class_oracle import cost, largest_gap, nearest, pair_rows
from fairlayer import (
    ConditionalParity,
    EqualizedOdds,
    EqualizedResiduals,
    FairLayer,
    InputError,
    MeanParity,
    RateParity,
    RatioParity,
    Status,
    project,
)
from pairs import pairwise

KINDS, NOTIONS = ("entropy", "squared"), ("parity", "intersection", "conditional", "odds")
every_kind = pytest.mark.parametrize("kind", KINDS)
every_notion = pytest.mark.parametrize("notion", NOTIONS)


def make(seed, n=40, d=4, sizes=(2, 3), spread=1.5):
    """Probabilities that differ between groups, the groups, a feature and a class of each sample."""
    rng = np.random.default_rng(seed)
    groups = np.stack([rng.integers(0, size, n) for size in sizes], axis=1)
    logits = spread * rng.normal(size=(n, d)) + groups @ rng.normal(size=(len(sizes), d))
    z = np.exp(logits - logits.max(axis=1, keepdims=True))
    return z / z.sum(axis=1, keepdims=True), groups, rng.uniform(size=n), rng.integers(0, 2, n)


def state(notion, groups, feature, target, tolerance):
    """A constraint, and the samples of every group of each of its families."""
    by_attribute = [[column == label for label in np.unique(column)] for column in groups.T]
    if notion == "parity":
        return MeanParity(tolerance), by_attribute
    if notion == "intersection":
        kinds = np.unique(groups, axis=0)
        return MeanParity(tolerance, over=tuple(range(groups.shape[1]))), [[(groups == k).all(axis=1) for k in kinds]]
    parts = [target == 0, target == 1] if notion == "odds" else [feature < 0.5, feature >= 0.5]
    masks = [[mask & part for mask in family] for part in parts for family in by_attribute]
    if notion == "odds":
        return EqualizedOdds(tolerance), masks
    return ConditionalParity(tolerance, regions={"x": [(None, 0.5), (0.5, None)]}), masks


@pytest.mark.parametrize(
    ("kind", "notion", "weighted", "tolerance"), pairwise(KINDS, NOTIONS, [False, True], [0.1, 0.02, 1e-4])
)
def test_is_fair_exactly_and_as_near_as_another_solver_gets(kind, notion, weighted, tolerance):
    z, groups, feature, target = make(len(notion))
    weights = np.random.default_rng(5).uniform(0.3, 3.0, len(z)) if weighted else None
    constraint, masks = state(notion, groups, feature, target, tolerance)
    found = project(z, groups, [constraint], None, target, {"x": feature}, weights, discrepancy=kind, simplex=True)
    assert found.status in (Status.OPTIMAL, Status.VACUOUS)
    assert np.abs(found.multipliers).max() > 0, "the case should need a change"
    assert largest_gap(found.value, masks, weights) <= Fraction(tolerance)
    assert (found.value >= 0).all()
    assert np.abs(found.value.sum(axis=1) - 1).max() <= 1e-15 * z.shape[1]
    w = np.ones(len(z)) if weights is None else weights
    reference = nearest(z, pair_rows(masks, w), tolerance, w, kind)
    assert abs(cost(found.value, z, w, kind) - cost(reference, z, w, kind)) < 1e-7
    assert np.abs(found.value - reference).max() < 1e-4


@every_kind
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_every_class_is_fair_in_rational_arithmetic(kind, dtype):
    rng = np.random.default_rng(1)
    for seed in range(60):
        n, d = int(rng.integers(2, 60)), int(rng.integers(2, 7))
        z, groups, feature, target = make(seed, n, d, (2, 4), spread=rng.uniform(0.1, 4))
        constraint, masks = state("parity", groups, feature, target, 10.0 ** rng.uniform(-6, -0.5))
        P = torch.softmax(torch.tensor(np.log(z), dtype=dtype), dim=1)
        found = project(P, groups, [constraint], discrepancy=kind, simplex=True)
        assert found.value.dtype == dtype
        y = found.value.double().numpy()
        assert found.satisfied == (largest_gap(y, masks) <= Fraction(constraint.tolerance))
        assert found.satisfied or constraint.tolerance < 1000 * torch.finfo(dtype).eps
        assert (y >= 0).all()
        assert np.abs(y.sum(axis=1) - 1).max() <= d * torch.finfo(dtype).eps
        assert kind == "squared" or (y > 0).all()


@every_kind
@every_notion
def test_gradient_is_that_of_finite_differences(kind, notion):
    z, groups, feature, target = make(3, n=14, d=3, sizes=(2, 2), spread=0.6)
    constraint, _ = state(notion, groups, feature, target, 0.05)
    logits = torch.tensor(np.log(z), requires_grad=True)
    weights = torch.tensor(np.random.default_rng(0).uniform(0.5, 2, len(z)))

    def layer(logits):
        P = torch.softmax(logits, dim=1)
        return project(
            P, groups, [constraint], None, target, {"x": feature}, weights, discrepancy=kind, simplex=True
        ).value

    assert (layer(logits) - torch.softmax(logits, dim=1)).abs().max() > 1e-3
    assert torch.autograd.gradcheck(layer, (logits,), atol=1e-6)


def test_double_backward_is_refused():
    z, groups, _, _ = make(0)
    P = torch.tensor(z, requires_grad=True)
    y = project(P, groups, [MeanParity(0.02)], discrepancy="entropy", simplex=True).value
    with pytest.raises(RuntimeError, match="Double backward"):
        torch.autograd.grad(y[0, 0], P, create_graph=True)


def test_two_classes_are_one_probability():
    z, groups, _, _ = make(4, d=2)
    both = project(z, groups, [MeanParity(0.03)], discrepancy="entropy", simplex=True)
    one = project(z[:, 1], groups, [MeanParity(0.03)], discrepancy="entropy")
    np.testing.assert_allclose(both.value[:, 1], one.value, atol=1e-10)


@every_kind
def test_one_group_and_fair_probabilities_stay(kind):
    z, groups, _, _ = make(2)
    alone = project(z, np.zeros(len(z), dtype=int), [MeanParity(0.0)], discrepancy=kind, simplex=True)
    assert alone.status is Status.VACUOUS
    assert not len(alone.gaps)
    np.testing.assert_allclose(alone.value, z, atol=1e-15)
    wide = project(z, groups, [MeanParity(1.0)], discrepancy=kind, simplex=True)
    np.testing.assert_allclose(wide.value, z, atol=1e-15)
    assert wide.status is Status.OPTIMAL
    assert not wide.multipliers.any()


@every_kind
def test_equal_means_are_met_to_the_last_digits(kind):
    z, groups, _, _ = make(6)
    found = project(z, groups, [MeanParity(0.0)], discrepancy=kind, simplex=True)
    assert np.abs(found.gaps).max() < 1e-14
    assert found.status in (Status.ROUNDED, Status.OPTIMAL)


def test_rows_are_named_by_class():
    z, groups, _, _ = make(1, d=3, sizes=(2,))
    found = project(z, {"sex": groups[:, 0]}, [MeanParity(0.05)], discrepancy="entropy", simplex=True)
    assert found.rows == tuple(f"mean parity, sex: 0 - 1, class {j}" for j in range(3))
    means = [z_j[groups[:, 0] == 0].mean() - z_j[groups[:, 0] == 1].mean() for z_j in found.value.T]
    np.testing.assert_allclose(found.gaps, means, atol=1e-15)


@every_kind
def test_certain_classes_can_be_moved(kind):
    """All samples at corners, or next to them: slopes are nothing where the search starts."""
    n = 30
    label = np.arange(n) % 3
    groups = (np.arange(n) * 7 % n < 10).astype(int)
    label[groups == 1] = 0
    z = np.eye(3)[label] if kind == "squared" else (1 - 3e-9) * np.eye(3)[label] + 1e-9
    found = project(z, groups, [MeanParity(0.05)], discrepancy=kind, simplex=True)
    masks = [[groups == 0, groups == 1]]
    assert found.status is Status.OPTIMAL
    assert largest_gap(found.value, masks) <= Fraction(0.05)
    if kind == "squared":
        reference = nearest(z, pair_rows(masks, np.ones(n)), 0.05, np.ones(n), kind)
        assert abs(cost(found.value, z, np.ones(n), kind) - cost(reference, z, np.ones(n), kind)) < 1e-7


def test_a_layer_trains_through_it():
    z, groups, _, target = make(8, n=60, d=3)
    model = torch.nn.Linear(3, 3).double()
    layer = FairLayer([MeanParity(0.02)], discrepancy="entropy", simplex=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    losses = []
    for _ in range(10):
        y = layer(torch.softmax(model(torch.tensor(z)), dim=1), groups)
        loss = torch.nn.functional.nll_loss(y.log(), torch.tensor(target))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert layer.solution.satisfied


GOOD = np.full((4, 3), 1 / 3)


@pytest.mark.parametrize(
    ("z", "constraint", "options", "message"),
    [
        (GOOD[:, 0], MeanParity(0.1), {}, "two or more classes"),
        (GOOD * 2, MeanParity(0.1), {}, "add up to 1"),
        (np.eye(4)[:, :3] + np.eye(4)[:, [3, 3, 3]] / 3, MeanParity(0.1), {}, "positive for discrepancy='entropy'"),
        (np.array([[1.5, -0.5]] * 4), MeanParity(0.1), {"discrepancy": "squared"}, "at least 0"),
        (np.where(np.eye(4)[:, :3] > 0, np.nan, GOOD), MeanParity(0.1), {}, "finite"),
        (GOOD, MeanParity(0.1), {"discrepancy": "logits"}, "'logits' does not go with simplex"),
        (GOOD, RatioParity(0.8), {}, "RatioParity does not go with simplex"),
        (GOOD, RateParity(0.1), {"discrepancy": "squared"}, "RateParity does not go with simplex"),
        (GOOD, EqualizedResiduals(0.1), {"targets": np.zeros(4)}, "EqualizedResiduals does not go with simplex"),
        (torch.tensor(GOOD), MeanParity(torch.tensor(0.1, requires_grad=True)), {}, "tolerance wants a gradient"),
        (GOOD, MeanParity(0.1), {"bounds": (0, 1)}, "neither bounds"),
        (GOOD, MeanParity(0.1), {"confidence": 0.9}, "one output per sample"),
    ],
)
def test_what_cannot_be_done_is_refused(z, constraint, options, message):
    with pytest.raises(InputError, match=message):
        project(z, np.array([0, 0, 1, 1]), [constraint], **{"discrepancy": "entropy", "simplex": True, **options})


def test_no_samples_are_no_problem():
    found = project(np.zeros((0, 3)), np.zeros(0, dtype=int), [MeanParity(0.1)], discrepancy="entropy", simplex=True)
    assert found.value.shape == (0, 3)


def test_a_search_that_settles_on_the_wrong_rows_goes_on():
    """Four samples in three groups, one of them nearly certain: the first model of the dual is too good to be true."""
    z = torch.tensor(
        [
            [9.2955e-06, 9.9998894e-01, 1.7672e-06],
            [3.4953e-01, 3.7249e-01, 2.7798e-01],
            [6.0952e-02, 8.0254e-01, 1.36508e-01],
            [2.7253e-02, 1.8968e-04, 9.7255732e-01],
        ]
    )
    groups = np.array([[0, 2], [1, 1], [2, 0], [2, 0]])
    rule = MeanParity(0.20127234822081388, over=(0, 1))
    solution = project(z, groups, [rule], discrepancy="entropy", simplex=True)
    assert solution.satisfied
    assert np.abs(solution.gaps.numpy()).max() > 0.2012


@every_kind
def test_all_classes_may_be_at_their_bounds_at_once(kind):
    """Gaps of classes add up to 0: two at the bound and two at its opposite do not contradict each other."""
    everywhere = 0
    for seed in range(60):
        z, groups, _, _ = make(seed, 400, 4, (2, 2))
        P = torch.tensor(z, dtype=torch.float32)
        found = project(P, groups, [MeanParity(0.02)], discrepancy=kind, simplex=True)
        assert found.status is Status.OPTIMAL
        everywhere += int((found.gaps.abs() > 0.0199).reshape(4, 2).all(dim=0).sum())
    assert everywhere > 10
