"""RateParity is the nearest batch whose decisions keep the rates: against every pattern of decisions there is."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from brute import draw, keeps, rates

from fairlayer import FairLayer, InfeasibleError, InputError, MeanParity, RateParity, SoftGroup, Status, project
from fairlayer.gaps import measure
from fairlayer.problem.constraint_set import ConstraintSet


def change(solution, z, weights=1.0):
    return float((weights * (np.asarray(solution.value, dtype=float) - z) ** 2).sum())


def population(n, seed=0, attributes=1):
    rng = np.random.default_rng(seed)
    groups = {f"a{j}": rng.choice(["x", "y", "z"][: 2 + (j == 0)], n) for j in range(attributes)}
    z = rng.normal(0.45 + 0.2 * (groups["a0"] == "y") - 0.1 * (groups["a0"] == "z"), 0.2)
    return z, groups


@pytest.mark.parametrize("seed", range(150))
def test_random_batches_equal_brute_force(seed):
    """One to three attributes, weights, bounds, ties, four dtypes; `./dev bench rates_exact` tries 20,000."""
    rng = np.random.default_rng(seed)
    assert not draw(rng, int(rng.integers(2, 11))).judge()


@pytest.mark.parametrize("seed", range(6))
def test_larger_batches_are_no_dearer_than_an_integer_programme_finds(seed):
    assert not draw(np.random.default_rng(seed), 30).judge()


def test_equal_weights_change_nothing_and_samples_without_weight_stay():
    z, groups = population(300)
    plain, weighted = (project(z, groups, RateParity(0.02), weights=w) for w in (None, np.full(300, 0.3)))
    np.testing.assert_array_equal(plain.value, weighted.value)
    assert weighted.status is Status.OPTIMAL
    here = np.arange(300) % 5 > 0
    solution = project(z, groups, RateParity(0.01), weights=here.astype(float))
    assert (solution.value == z)[~here].all()
    assert keeps(rates((solution.value >= 0.5)[here], groups["a0"][here]), 0.01, None)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("threshold", [0.5, 0.3, 0.7, 1 / 3, 0.0, -2.0, 1e-30])
def test_decisions_of_the_returned_tensor_are_the_promised_ones(dtype, threshold):
    z, groups = population(200, attributes=2)
    scores = torch.tensor(z - 0.5 + threshold).to(dtype)
    solution = project(scores, groups, RateParity(0.05, threshold=threshold))
    assert solution.value.dtype == dtype
    for column in groups.values():
        assert keeps(rates((solution.value >= threshold).numpy(), column), 0.05, None)
    moved = solution.value != scores
    assert 0 < moved.sum() < 100
    if solution.satisfied and dtype is torch.float64:
        assert len(set(solution.value[moved].tolist())) <= 2


@pytest.mark.parametrize("given", [1, 0, "each"])
def test_conditions_on_the_target(given):
    z, groups = population(400)
    targets = (np.random.default_rng(1).random(400) < 0.4).astype(int)
    solution = project(z, groups, RateParity(0.03, given=given), targets=targets)
    assert solution.status is Status.OPTIMAL
    for target in (0, 1):
        here = targets == target
        part, alone = solution.value[here], project(z[here], groups["a0"][here], RateParity(0.03)).value
        if given in (target, "each"):
            assert keeps(rates(part >= 0.5, groups["a0"][here]), 0.03, None)
            np.testing.assert_array_equal(part, alone)
        else:
            np.testing.assert_array_equal(part, z[here])
    with pytest.raises(InputError, match="targets is missing"):
        project(z, groups, RateParity(0.03, given=given))


def test_intersections_are_one_attribute():
    z, groups = population(600, attributes=2)
    solution = project(z, groups, RateParity(0.05, over=("a0", "a1")))
    both = np.char.add(groups["a0"], groups["a1"])
    assert keeps(rates(solution.value >= 0.5, both), 0.05, None)
    np.testing.assert_array_equal(solution.value, project(z, {"both": both}, RateParity(0.05)).value)


def test_gaps_are_differences_of_rates():
    z, groups = population(300)
    solution = project(z, groups, [RateParity(0.05), RateParity(ratio=0.9)])
    each = dict(zip("xyz", map(float, rates(solution.value >= 0.5, groups["a0"])), strict=True))
    assert solution.rows[0] == "rate parity, a0: x - y"
    assert solution.gaps[0] == pytest.approx(each["x"] - each["y"])
    assert solution.rows[3] == "rate parity, a0 (2): x - y, relative"
    assert solution.gaps[3] == pytest.approx((each["x"] - each["y"]) / max(each["x"], each["y"]))
    assert np.abs(solution.gaps[:3]).max() <= 0.05
    assert np.abs(solution.gaps[3:]).max() <= 0.1
    assert not solution.multipliers.any()


def test_ties_are_told_apart_by_position_and_reported():
    z, groups = np.array([0.6, 0.6, 0.6, 0.6, 0.4, 0.4, 0.4, 0.4]), np.repeat([0, 1], 4)
    solution = project(z, groups, RateParity(0.5))
    assert (solution.value >= 0.5).tolist() == [True] * 4 + [True, True, False, False]  # up is nearer by a hair
    assert solution.ties == 4
    raised = project(z - 0.1, groups, RateParity(0.5, threshold=0.45))
    assert raised.ties == 4
    assert project(np.linspace(0, 1, 8), groups, RateParity(0.5)).ties == 0


def test_bounds_that_forbid_it_name_the_least_tolerance():
    bounds = (np.array([0.0] * 4 + [0.6] * 4), np.array([0.4, 0.4, 1.0, 1.0] + [1.0] * 4))
    z, groups = np.array([0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9]), {"sex": np.repeat(["f", "m"], 4)}
    with pytest.raises(InfeasibleError, match=r"rate parity, sex: f - m \(feasible from tolerance 0\.5\)") as error:
        project(z, groups, RateParity(0.3), bounds)
    assert error.value.smallest == (0.5,)
    with pytest.raises(InfeasibleError, match=r"feasible up to ratio 0\.5\)"):
        project(z, groups, RateParity(ratio=0.8), bounds)
    relaxed = project(z, groups, RateParity(0.3), bounds, infeasible="relax")
    assert relaxed.status is Status.RELAXED
    assert relaxed.excess == pytest.approx(0.2)
    assert rates(relaxed.value >= 0.5, groups["sex"]) == [Fraction(1, 2), 1]
    assert project(z, groups, RateParity(0.5), bounds).status is Status.OPTIMAL


def test_overlapping_bounds_that_forbid_it():
    bounds = (np.array([0.6, 0.0, 0.0, 0.6]), np.array([1.0, 0.4, 0.4, 1.0]))
    z, groups = np.array([0.6, 0.4, 0.4, 0.6]), {"a": np.array([0, 1, 1, 0]), "b": np.array([0, 0, 1, 1])}
    with pytest.raises(InfeasibleError, match="rate parity, a: 0 - 1"):
        project(z, groups, RateParity(0.3), bounds)
    relaxed = project(z, groups, RateParity(0.3), bounds, infeasible="relax")
    assert relaxed.status is Status.RELAXED
    assert relaxed.excess == pytest.approx(0.7, abs=1e-5)


def test_rates_are_measured_and_penalties_refused():
    z, groups = population(300)
    rules = ConstraintSet(RateParity(0.05))
    each = [float(rate) for rate in rates(z >= 0.5, groups["a0"])]
    found = measure(z, rules, groups)
    assert found.largest == pytest.approx(max(each) - min(each))
    assert not found.satisfied
    assert measure(project(z, groups, RateParity(0.05)).value, rules, groups).satisfied


def test_the_same_batch_has_the_same_answer():
    z, groups = population(1000, attributes=3)
    first, second = (project(z, groups, RateParity(0.03)) for _ in range(2))
    np.testing.assert_array_equal(first.value, second.value)
    assert first.optimality_gap == second.optimality_gap
    assert first.optimality_gap <= 0.02 * change(first, z)


def test_absent_groups_are_named():
    z, groups = population(50)
    solution = project(z, {"a0": groups["a0"]}, RateParity(0.1), levels={"a0": ["w", "x", "y", "z"]})
    assert solution.status is Status.VACUOUS
    assert solution.vacuous == ("rate parity, a0: w is absent",)


def test_what_is_refused():
    z, groups = population(20)
    for constraints, match in [
        ([RateParity(0.1), MeanParity(0.1)], "mixes RateParity.*with MeanParity"),
        ([RateParity(0.1), RateParity(0.1, threshold=0.4)], r"different thresholds, \[0\.4, 0\.5\]"),
        ([RateParity(torch.tensor(0.1, requires_grad=True))], "must be a number"),
    ]:
        with pytest.raises(InputError, match=match):
            project(z, groups, constraints)
    with pytest.raises(InputError, match="groups holds probabilities"):
        project(z, SoftGroup(np.full((20, 2), 0.5)), RateParity(0.1))
    with pytest.raises(InputError, match=r"z\[3\] is nan"):
        project(np.where(np.arange(20) == 3, np.nan, z), groups, RateParity(0.1))
    with pytest.raises(InputError, match=r"beyond the range of torch\.float16"):
        project(torch.tensor(z).half(), groups, RateParity(0.1, threshold=1e6))
    with pytest.raises(InputError, match="surrogate must be None or 'sigmoid'"):
        project(z, groups, RateParity(0.1), surrogate="smooth")
    with pytest.raises(InputError, match="temperature must be"):
        project(z, groups, RateParity(0.1), surrogate="sigmoid", temperature=0.0)
    with pytest.raises(InputError, match="takes a tolerance or a ratio"):
        RateParity()
    assert project(np.zeros(0), np.zeros(0, dtype=int), RateParity(0.1)).value.shape == (0,)


def test_the_gradient_is_that_of_scores_that_stay():
    z, groups = population(40)
    scores = torch.tensor(z, requires_grad=True)
    layer = FairLayer([RateParity(0.05)], bounds=(0.1, 0.9))
    y = layer(scores, groups=groups)
    (gradient,) = torch.autograd.grad(y.sum(), scores)
    inside = (z > 0.1) & (z < 0.9)
    stayed = np.isclose(y.detach().numpy(), z) & inside
    assert 0 < (inside & ~stayed).sum() < 40
    np.testing.assert_array_equal(gradient.numpy(), stayed.astype(float))
    assert layer.solution.status is Status.OPTIMAL
    assert torch.autograd.gradcheck(lambda s: layer(s, groups=groups), scores, eps=1e-9, atol=1e-4)


def test_the_surrogate_holds_the_rates_of_sigmoids():
    z, groups = population(200)
    scores, warmth = torch.tensor(z, requires_grad=True), 0.2
    layer = FairLayer([RateParity(0.05)], surrogate="sigmoid", temperature=warmth)
    y = layer(scores, groups=groups)
    assert keeps(rates(y.detach().numpy() >= 0.5, groups["a0"]), 0.05, None)
    upstream = torch.tensor(np.random.default_rng(0).normal(size=200))
    (gradient,) = torch.autograd.grad(y, scores, upstream)
    slope = torch.sigmoid((scores.detach() - 0.5) / warmth)
    slope = slope * (1 - slope)
    # The step leaves the soft gap between the groups that were moved as it is, and is no longer than the upstream's.
    masks = {label: torch.tensor(groups["a0"] == label) for label in "xyz"}
    drift = {label: float((slope * gradient)[mask].mean()) for label, mask in masks.items()}
    assert min(abs(drift[a] - drift[b]) for a, b in ("xy", "yz", "xz")) < 1e-12
    assert gradient.norm() <= upstream.norm() * (1 + 1e-12)
    assert (gradient != 0).all()


def test_an_answer_that_branch_and_bound_denies_is_found():
    # HiGHS calls this programme infeasible after its presolve, although a yes for everybody satisfies it.
    z = "444244464444624446426424244"
    a, b = "012020021211202020121000201", "011111111100101010101001001"
    groups = {"a": [int(label) for label in a], "b": [int(label) for label in b]}
    scores = np.array([int(digit) / 8 for digit in z], dtype=np.float16)
    solution = project(scores, groups, RateParity(0.0), bounds=(0, 1))
    assert solution.satisfied


@pytest.mark.parametrize(("digits", "n", "tolerance"), [(1, 800, 0.1), (2, 2000, 0.1), (3, 3000, 0.06)])
def test_scores_on_the_threshold_are_left_alone_where_the_rates_are_kept(digits, n, tolerance):
    rng = np.random.default_rng(0)
    groups = {"sex": rng.choice(["f", "m"], n), "region": rng.choice(["n", "s", "w"], n)}
    z = np.clip(rng.normal(0.5, 0.2, n), 0, 1).round(digits)
    assert all(keeps(rates(z >= 0.5, column), tolerance, None) for column in groups.values())
    assert (z == 0.5).any()
    solution = project(z, groups, RateParity(tolerance))
    assert np.array_equal(solution.value, z)
    assert solution.status is Status.OPTIMAL


@pytest.mark.parametrize(("tolerance", "turned"), [(0.03, 2), (0.04, 1), (0.05, 0)])
def test_no_more_scores_on_the_threshold_are_turned_than_needed(tolerance, turned):
    z = np.repeat([0.5, 0.2, 0.5, 0.2], [40, 60, 45, 55])
    groups = {"a": np.repeat([0, 1], 100), "b": np.tile([0, 1], 100)}
    assert (project(z, groups, RateParity(tolerance)).value != z).sum() == turned


@pytest.mark.parametrize("weights", [[1.0, 2.0, 1.0, 1.0], [1, 1, 1, 3]])
@pytest.mark.parametrize("rule", [(0.1, None), (None, 0.8)])
@pytest.mark.parametrize("bounds", [None, (0.5, 1.0)])
@pytest.mark.parametrize("infeasible", ["raise", "relax"])
def test_weighted_rates_that_are_kept_are_left_alone(weights, rule, bounds, infeasible):
    z, groups = np.array([0.6, 0.7, 0.8, 0.9]), {"g": [0, 0, 1, 1]}
    asked = RateParity(rule[0], ratio=rule[1])
    solution = project(z, groups, asked, bounds, weights=weights, infeasible=infeasible)
    assert np.array_equal(solution.value, z)
    assert solution.status is Status.OPTIMAL


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("yeses", "size"), [(3, 5), (1, 7), (2, 3)])
def test_relaxing_ends_in_the_tolerance_that_the_error_names(yeses, size, weighted):
    """So many of a group must be yes, and nobody of the other."""
    z = np.repeat([0.6, 0.4, 0.3], [yeses, size - yeses, 2])
    lo, hi = (
        np.repeat([0.5, 0.0, 0.0], [yeses, size - yeses, 2]),
        np.repeat([1.0, 0.45, 0.45], [yeses, size - yeses, 2]),
    )
    groups, weights = np.repeat([0, 1], [size, 2]), np.where(np.arange(size + 2), 1.0, 1.5) if weighted else None
    asked = {"bounds": (lo, hi), "weights": weights}
    with pytest.raises(InfeasibleError) as error:
        project(z, groups, RateParity(0.1), **asked)
    (least,) = error.value.smallest
    total = size + 0.5 * weighted
    assert 0.0 <= least - (yeses + 0.5 * weighted) / total < 1e-5
    assert project(z, groups, RateParity(least), **asked).satisfied
    assert f"tolerance {least:g})" in str(error.value)
    relaxed = project(z, groups, RateParity(0.1), infeasible="relax", **asked)
    assert relaxed.status is Status.RELAXED
    assert relaxed.excess == pytest.approx(least - 0.1, abs=1e-5)


@pytest.mark.parametrize("over", [None, "g"])
def test_a_ratio_is_the_decimal_that_was_written(over):
    z, g = np.repeat([0.6, 0.4, 0.6, 0.4], [3, 9, 2, 8]), np.repeat([0, 1], [12, 10])  # rates 1/4 and 1/5
    groups = {"g": g, "h": np.arange(22) % 2}
    solution = project(z, groups, RateParity(ratio=0.8, over=over or ["g", ("g",)]))
    assert np.array_equal(solution.value, z)
    assert solution.status is Status.OPTIMAL
    tenth = np.repeat([0.6, 0.4, 0.6, 0.4], [3, 7, 2, 8])  # 0.3 - 0.2 is a tenth, though not in floats
    assert np.array_equal(project(tenth, np.repeat([0, 1], 10), RateParity(0.1)).value, tenth)


@pytest.mark.parametrize("attributes", [2, 3])
def test_training_takes_a_rounded_answer_with_a_bound(attributes):
    for seed in range(5):
        z, groups = population(256, seed, attributes)
        best = project(z, groups, RateParity(0.02))
        layer = FairLayer([RateParity(0.02)])
        y = layer(torch.tensor(z, requires_grad=True), groups=groups).detach().numpy()
        assert all(keeps(rates(y >= 0.5, column), 0.02, None) for column in groups.values())
        assert layer.solution.status in (Status.OPTIMAL, Status.BOUNDED)
        turn = 1e-6 * (z.max() - z.min()) ** 2
        least, found = (float(((v - z) ** 2).sum() + turn * (v != z).sum()) for v in (best.value, y))
        assert best.optimality_gap == 0.0
        assert least * (1 - 1e-9) <= found <= least + layer.solution.optimality_gap + 1e-9
        assert found <= 1.5 * least


def test_many_overlapping_groups_are_bounded_closely_and_in_silence(capfd):
    rng = np.random.default_rng(1)
    groups = {name: rng.integers(0, 12, 1500) for name in "abc"}
    z = rng.random(1500) + 0.2 * (groups["a"] == 1)
    solution = project(z, groups, RateParity(0.02))
    assert all(keeps(rates(solution.value >= 0.5, column), 0.02, None) for column in groups.values())
    assert solution.optimality_gap < 0.2 * change(solution, z)
    assert capfd.readouterr() == ("", "")


def test_scores_of_any_size():
    for scale in (1e-200, 1e150, 1e300):
        z, groups = population(60)
        plain = project(z, groups, RateParity(0.05), bounds=(0, 1))
        scaled = project(z * scale, groups, RateParity(0.05, threshold=0.5 * scale), bounds=(0, scale))
        assert np.array_equal(plain.value >= 0.5, scaled.value >= 0.5 * scale)
        assert scaled.status is Status.OPTIMAL
