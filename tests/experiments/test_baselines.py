"""The methods that the layer is compared with."""

import copy
import math
from functools import partial

import clarabel
import numpy as np
import pytest
import torch
from scipy import sparse
from torch import nn

from experiments.baselines import (
    AugmentedLagrangian,
    Penalty,
    Projection,
    SoftStep,
    StrictPenalty,
    Unconstrained,
    penalty_of,
    soften,
)
from fairlayer import FairLayer, FairModel, InputError, MeanParity, RateParity, RatioParity, ResidualMean, project
from fairlayer.core.soft_step import soft_step
from fairlayer.gaps import bind_batch
from fairlayer.problem.bounds import read_bounds
from fairlayer.problem.constraint_set import ConstraintSet
from fairlayer.training import Batch, batches, evaluate, fit

mse = nn.functional.mse_loss


def make_data(n=240, seed=0):
    """Inputs (n, 4), targets (n,), groups (n, 2), one of which inputs and targets follow."""
    generator = torch.Generator().manual_seed(seed)
    groups = torch.randint(0, 2, (n, 2), generator=generator)
    x = torch.randn(n, 4, generator=generator)
    x[:, 0] += groups[:, 0]
    return x, x[:, 0] - 0.5 * x[:, 1] + groups[:, 0] + 0.3 * torch.randn(n, generator=generator), groups


def make_model(layer):
    torch.manual_seed(0)
    return FairModel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), layer)


def train(model, data, validation=None, **options):
    return fit(model, data, validation, loss=mse, penalty=penalty_of(model), **options)


@pytest.mark.parametrize("method", [FairLayer, Unconstrained, Projection, Penalty, AugmentedLagrangian, SoftStep])
def test_models_differ_by_one_argument(method, tmp_path):
    x, y, groups = make_data(120)
    model = make_model(method([MeanParity(0.02)], bounds=(-1.0, 1.0)))
    data = batches(x, y, groups, batch_size=40, shuffle=True)
    train(model, data, batches(x, y, groups), epochs=2, checkpoint=tmp_path / "checkpoint.pt")
    result = evaluate(model, data, loss=mse)
    assert math.isfinite(result.loss)
    assert -1.0 <= float(result.outputs.min()) <= float(result.outputs.max()) <= 1.0
    assert (result.batch_gap <= 0.02) == (method in (FairLayer, Projection, SoftStep))
    clone, data = copy.deepcopy(model), batches(x, y, groups)
    clone.load_state_dict(torch.load(tmp_path / "checkpoint.pt", weights_only=True)["model"])
    clone.load_state_dict(model.state_dict())
    assert torch.equal(evaluate(clone, data).outputs, evaluate(model, data).outputs)


def test_projection_trains_raw_and_projects_later():
    x, _, groups = make_data(60)
    model = make_model(Projection([MeanParity(0.01)], bounds=(-0.2, 0.2)))
    assert torch.equal(model.train()(x, groups), model.raw(x))
    wanted = project(model.raw(x).detach(), groups, [MeanParity(0.01)], bounds=(-0.2, 0.2)).value
    assert torch.equal(model.eval()(x, groups).detach(), wanted)


@pytest.mark.parametrize("form", ["absolute", "squared"])
def test_penalty_by_hand(form):
    z = torch.tensor([1.0, 2.0, 4.0, 7.0], requires_grad=True)
    batch = Batch(None, groups=torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]]))
    gaps = [1.5 - 5.5, 2.5 - 4.5]
    method = Penalty([MeanParity(0.5)], strength=0.3, form=form)
    assert method(z, batch.groups) is z
    power = 1 if form == "absolute" else 2
    penalty = method.penalty(z, batch)
    assert float(penalty.detach()) == pytest.approx(0.3 * sum(abs(g) ** power for g in gaps))
    penalty.backward()
    slope = [0.3 * power * abs(g) ** (power - 1) * math.copysign(1, g) / 2 for g in gaps]
    wanted = [slope[0] + slope[1], slope[0] - slope[1], -slope[0] + slope[1], -slope[0] - slope[1]]
    assert z.grad.tolist() == pytest.approx(wanted)
    beyond = Penalty([MeanParity(3.0)], strength=1.0, form=form, only_excess=True)
    assert float(beyond.penalty(z.detach(), batch)) == pytest.approx(1.0)


def test_penalties_of_weights_residuals_and_a_group_by_itself():
    z, groups = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 0, 1])
    weighted = Batch(None, groups=groups, weights=torch.tensor([3.0, 1.0, 2.0]))
    assert float(Penalty([MeanParity(0.5)], strength=1.0).penalty(z, weighted)) == pytest.approx(4.0 - 1.25)
    known = Batch(None, torch.tensor([0.0, 0.0, 5.0]), groups)
    assert float(StrictPenalty([ResidualMean(0.1)]).penalty(z, known)) == pytest.approx(1000.0 * (1.5 + 1.0))
    assert float(Penalty([MeanParity(0.1)]).penalty(z, Batch(None, groups=0 * groups))) == 0.0


def test_penalties_see_the_relative_gap():
    z, batch = torch.tensor([0.4, 0.5, 0.9, 0.7], requires_grad=True), Batch(None, groups=torch.tensor([0, 0, 1, 1]))
    penalty = Penalty([RatioParity(0.9)], (0, 1), only_excess=True).penalty(z, batch)
    assert float(penalty.detach()) == pytest.approx(1 - 0.45 / 0.8 - 0.1)
    penalty.backward()
    assert (torch.sign(z.grad) == torch.tensor([-1, -1, 1, 1])).all()


def test_wrong_arguments():
    with pytest.raises(InputError, match="form"):
        Penalty([MeanParity(0.1)], form="cubic")
    with pytest.raises(InputError, match="strength"):
        Penalty([MeanParity(0.1)], strength=-1.0)
    with pytest.raises(InputError, match="curvature"):
        AugmentedLagrangian([MeanParity(0.1)], curvature=0.0)
    with pytest.raises(InputError, match="decisions have no gradient"):
        Penalty([RateParity(0.1)]).penalty(torch.rand(4), Batch(None, groups=torch.tensor([0, 1, 0, 1])))


def constrained_least_squares(x, y, groups, tolerance):
    """The exact optimum of a linear model's squared error under mean parity, and the multipliers of its mean error."""
    X = np.c_[x, np.ones(len(x))]
    P, q = sparse.csc_matrix(np.triu(2 * X.T @ X / len(X))), -2 * X.T @ y / len(X)
    A = np.stack([X[groups[:, a] == 0].mean(0) - X[groups[:, a] == 1].mean(0) for a in range(groups.shape[1])])
    G, h = sparse.csc_matrix(np.vstack([A, -A])), np.full(2 * len(A), tolerance)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    answer = clarabel.DefaultSolver(P, q, G, h, [clarabel.NonnegativeConeT(len(h))], settings).solve()
    return np.mean((X @ np.array(answer.x) - y) ** 2), np.array(answer.z).reshape(2, -1)


def test_augmented_lagrangian_reaches_the_constrained_optimum():
    x, y, groups = make_data()
    least, wanted = constrained_least_squares(x.double().numpy(), y.double().numpy(), groups.numpy(), 0.05)
    torch.manual_seed(0)
    method = AugmentedLagrangian([MeanParity(0.05)], curvature=2.0, rate=2.0)
    model = FairModel(nn.Linear(4, 1), method)
    data = batches(x, y, groups)
    train(model, data, epochs=400, optimizer=torch.optim.SGD, learning_rate=0.1, restore="last")
    result = evaluate(model, data, loss=mse)
    assert result.gap == pytest.approx(0.05, abs=1e-4)
    assert result.loss == pytest.approx(least, rel=1e-3)
    found = np.array([method.multipliers[f"mean parity, {a}: 0 - 1"] for a in (0, 1)]).T
    np.testing.assert_allclose(found, wanted, atol=1e-2)
    assert wanted.max() > 0.5  # the constraint costs something


def test_augmented_lagrangian_leaves_absent_groups_alone():
    method = AugmentedLagrangian([MeanParity(0.1)], rate=0.5)
    method.penalty(torch.tensor([0.0, 1.0]), Batch(None, groups=torch.tensor([[0, 0], [1, 0]])))
    assert method.multipliers == {"mean parity, 0: 0 - 1": (0.0, pytest.approx(0.45))}
    z, batch = torch.tensor([0.0, 2.0]), Batch(None, groups=torch.tensor([[0, 0], [0, 1]]))
    method.penalty(z, batch)
    assert method.multipliers["mean parity, 0: 0 - 1"][1] == pytest.approx(0.45)
    assert method.multipliers["mean parity, 1: 0 - 1"][1] == pytest.approx(0.95)
    before = dict(method.multipliers)
    assert float(method.eval().penalty(z, batch)) == pytest.approx(100.0 * 1.9)
    assert method.multipliers == before


def test_soft_step_follows_algorithm_1():
    """Solve with the old multiplier, then move it by eta / sqrt(t + 1) n (v - eps)."""
    rng = np.random.default_rng(0)
    constraints, eps, eta, multiplier = [MeanParity(0.05)], 0.05, 0.01, 0.0
    method = SoftStep(constraints, bounds=(-1.0, 1.0), b_tau=50, eta=eta)
    for t in range(6):
        n = 10 + t
        z, groups = rng.normal(size=n), rng.permutation(n)[:, None] % 2
        z = z + groups[:, 0]
        found = method(torch.from_numpy(z), torch.from_numpy(groups))
        system = bind_batch(ConstraintSet(constraints), n, groups)
        wanted = soft_step(z, system, read_bounds((-1.0, 1.0), n, np.float64), 0.5 * multiplier * n)
        np.testing.assert_allclose(found, wanted.value, atol=1e-12)
        assert not wanted.pinned
        multiplier = max(0.0, multiplier + eta / math.sqrt(t + 1) * n * (wanted.gap - eps))
        assert float(method.multiplier) == pytest.approx(multiplier)
    assert multiplier > 0
    return_value = method(torch.ones(5), torch.zeros(5, dtype=torch.long))  # no two groups: no step
    assert torch.equal(return_value, torch.ones(5))
    assert float(method.multiplier) == pytest.approx(multiplier)


def soft_batch(n=12, seed=0, labels=2):
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, labels, size=(n, 2))
    groups[:labels] = np.arange(labels)[:, None]
    return rng.normal(size=n) + groups[:, 0], groups


@pytest.mark.parametrize("price", [0.05, 0.5, 5.0, 1000.0])
@pytest.mark.parametrize(("bounds", "weighted"), [(None, False), ((-1.0, 1.0), False), ((-1.0, 1.0), True)])
def test_soft_step_has_a_derivative(price, bounds, weighted):
    for seed in range(3):
        z, groups = soft_batch(9, seed, labels=3)
        weights = np.random.default_rng(seed).uniform(0.5, 2.0, len(z)) if weighted else None
        system = bind_batch(ConstraintSet([MeanParity(0.05)]), len(z), groups, weights=weights)
        box = read_bounds(bounds, len(z), np.float64)
        raw = torch.tensor(z, requires_grad=True)
        step = partial(soften, system=system, box=box, price=price)
        assert torch.autograd.gradcheck(lambda z, step=step: step(z)[0], raw, eps=1e-7, atol=1e-5)


def test_soft_step_keeps_float32_and_half():
    z, groups = soft_batch()
    system = bind_batch(ConstraintSet([MeanParity(0.05)]), len(z), groups)
    exact = soft_step(z, system, read_bounds(None, len(z), np.float64), 1.0).value
    for dtype, atol in ((torch.float32, 1e-6), (torch.float16, 5e-3)):
        raw = torch.tensor(z, dtype=dtype, requires_grad=True)
        value, _ = soften(raw, system, read_bounds(None, len(z), np.float32), 1.0)
        assert value.dtype == dtype
        np.testing.assert_allclose(value.detach().double(), exact, atol=atol)
        value.sum().backward()
        assert torch.isfinite(raw.grad).all()


def test_soft_step_switches_at_b_tau_and_never_in_evaluation():
    z, groups = torch.randn(40) + torch.arange(40).remainder(2), torch.arange(40).remainder(2)[:, None]
    hard = project(z, groups, [MeanParity(0.05)]).value
    assert torch.equal(SoftStep([MeanParity(0.05)], b_tau=40)(z, groups), hard)
    soft = SoftStep([MeanParity(0.05)], b_tau=41)
    assert torch.equal(soft(z, groups), z)  # the multiplier is still 0
    moved = float(soft.multiplier)
    assert moved > 0
    assert torch.equal(soft.eval()(z, groups), hard)
    assert float(soft.multiplier) == moved
    soft.train()
    assert (float(soft.multiplier), int(soft.steps)) == (0.0, 0)


@pytest.mark.parametrize("validated", [False, True])
def test_every_epoch_begins_with_multiplier_0_and_validation_leaves_it_alone(validated):
    x, y, groups = make_data(120)
    method = SoftStep([MeanParity(0.01)], b_tau=1000, eta=0.1)
    data, steps = batches(x, y, groups, batch_size=20), []

    def loss(outputs, targets):
        steps.append(int(method.steps))
        return mse(outputs, targets)

    fit(make_model(method), data, data if validated else None, loss=loss, epochs=3)
    assert steps == [*range(1, 7), *([6] * 6 if validated else [])] * 3


def test_soft_training_learns_and_evaluates_fair():
    x, y, groups = make_data(400)
    found = {}
    for layer in (Unconstrained([MeanParity(0.05)]), SoftStep([MeanParity(0.05)], b_tau=999)):
        model = make_model(layer)
        train(model, batches(x, y, groups, batch_size=16, shuffle=True), epochs=5, learning_rate=1e-2)
        found[type(layer)] = evaluate(model, batches(x, y, groups), loss=mse)
    assert found[SoftStep].batch_gap <= 0.05 < found[Unconstrained].gap
    assert found[SoftStep].loss < float(y.var())
