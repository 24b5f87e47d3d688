"""`FairLayer` as a citizen of torch: training, saving, copying, compiling, mixed precision."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import weakref

import numpy as np
import pytest
import torch
from torch import nn

from conformance import assert_holds
from fairlayer import EqualizedOdds, FairLayer, InputError, MeanParity, ResidualMean, Solution, Status, project
from formulas import Problem, plain

N = 64
GENERATOR = torch.manual_seed(0)
X = torch.randn(N, 5, generator=GENERATOR)
GROUPS = torch.randint(0, 2, (N, 2), generator=GENERATOR)
Y = X.sum(dim=1, keepdim=True) + GROUPS[:, :1]


class Network(nn.Module):
    def __init__(self, layer: FairLayer):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
        self.layer = layer

    def forward(self, x, groups):
        return self.layer(self.body(x), groups)


def network(**options) -> Network:
    torch.manual_seed(1)
    return Network(FairLayer(MeanParity(0.05), **options))


def test_the_layer_is_the_function():
    constraints = [MeanParity(0.05), EqualizedOdds(0.1)]
    layer = FairLayer(constraints, bounds=(0.0, 1.0))
    z, targets = X[:, 0], GROUPS[:, 1]
    expected = project(z, GROUPS, constraints, (0.0, 1.0), targets=targets)
    assert torch.equal(layer(z, GROUPS, targets=targets), expected.value)
    assert layer.solution.rows == expected.rows
    assert layer.solution.status is expected.status


def test_arrays_are_refused_by_name():
    with pytest.raises(InputError, match=r"z is a ndarray.*torch\.from_numpy.*fairlayer\.project"):
        FairLayer([MeanParity(0.1)])(np.array([0.1, 0.9]), groups=[0, 1])


def test_the_solution_of_the_last_batch_is_kept_without_its_graph():
    layer = FairLayer(MeanParity(0.05))
    assert layer.solution is None
    y = layer(X[:, 0].clone().requires_grad_(), GROUPS)
    assert isinstance(layer.solution, Solution)
    assert not layer.solution.value.requires_grad
    assert torch.equal(layer.solution.value, y)
    assert layer.solution.gaps.abs().max() <= 0.05


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_is_fair_in_every_batch(dtype):
    """Fifty steps on batches of changing membership: rows hold exactly in each, and the loss falls."""
    model = network(bounds=(-3.0, 3.0)).to(dtype)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for step in range(50):
        rows = torch.randperm(N, generator=torch.manual_seed(step))[: 20 + step % 13]
        y = model(X[rows].to(dtype), GROUPS[rows])
        problem = Problem(plain(y[:, 0]), [MeanParity(0.05)], GROUPS[rows], (-3.0, 3.0))
        assert_holds(problem, model.layer.solution)
        loss = nn.functional.mse_loss(y.float(), Y[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert np.mean(losses[-10:]) < 0.6 * np.mean(losses[:10])


def test_the_state_is_the_networks_alone():
    model = network()
    model(X, GROUPS)
    assert all(name.startswith("body.") for name in model.state_dict())
    other = network()
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(X, GROUPS), model(X, GROUPS))


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "torch.save": lambda model: _saved(model),
}


def _saved(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("used", [False, True])
def test_copies_work_and_are_independent(way, used):
    model = network(bounds=(0.0, 1.0))
    expected = model(X, GROUPS)
    if not used:
        model = network(bounds=(0.0, 1.0))
    twin = COPIES[way](model)
    assert twin.layer.solution is None
    assert torch.equal(twin(X, GROUPS), expected)
    with torch.no_grad():
        twin.body[2].bias.add_(5.0)
    assert torch.equal(model(X, GROUPS), expected)


def test_solutions_can_be_pickled():
    layer = FairLayer(MeanParity(0.05))
    layer(X[:, 0], GROUPS)
    again = pickle.loads(pickle.dumps(layer.solution))
    assert again.rows == layer.solution.rows
    assert again.status is Status.OPTIMAL
    assert torch.equal(again.gaps, layer.solution.gaps)


def test_training_and_evaluation_do_the_same():
    model = network()
    trained = model(X, GROUPS)
    assert torch.equal(model.eval()(X, GROUPS), trained)
    with torch.no_grad():
        assert torch.equal(model(X, GROUPS), trained)


def test_under_autocast():
    model = network()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = model(X, GROUPS)
        loss = (y.float() - Y).square().mean()
    assert y.dtype == torch.bfloat16
    assert_holds(Problem(plain(y[:, 0]), [MeanParity(0.05)], GROUPS), model.layer.solution)
    loss.backward()
    assert all(p.grad.isfinite().all() and p.grad.any() for p in model.parameters())


def test_targets_in_half_precision():
    layer = FairLayer(ResidualMean(0.05))
    targets = X[:, 1].bfloat16()
    y = layer(X[:, 0], GROUPS, targets=targets)
    assert_holds(Problem(plain(y), [ResidualMean(0.05)], GROUPS, targets=plain(targets)), layer.solution)


def test_moving_and_casting_the_module():
    model = network().double()
    y = model(X.double(), GROUPS)
    assert y.dtype == torch.float64
    assert model.to("cpu").layer is model.layer


def test_a_description():
    text = repr(network(bounds=(0.0, 1.0)))
    assert "FairLayer" in text
    assert "MeanParity(tolerance=0.05" in text
    assert "bounds=(0.0, 1.0)" in text


def test_a_description_has_all_that_was_set():
    layer = FairLayer(MeanParity(0.05), discrepancy="logits", levels={"sex": [0, 1]}, absent="raise", confidence=0.9)
    assert repr(layer).endswith("discrepancy='logits', levels={'sex': [0, 1]}, absent='raise', confidence=0.9)")
    assert "=" not in repr(FairLayer([]))


def test_constraints_can_be_read_and_set():
    first, second = MeanParity(0.05), MeanParity(0.01)
    layer = FairLayer(first)
    assert layer.constraints == (first,)
    layer.constraints = [second]
    assert layer.constraints == (second,)
    layer(X[:, 0], GROUPS)
    assert layer.solution.gaps.abs().max() <= 0.01
    with pytest.raises(InputError, match="constraints must hold constraints"):
        layer.constraints = [0.1]


def test_bounds_can_be_learned():
    bound = nn.Parameter(torch.tensor(0.5))
    layer = FairLayer(MeanParity(0.05), bounds=(None, bound))
    layer(X[:, 0], GROUPS).sum().backward()
    assert bound.grad > 0


def test_options_reach_the_projection():
    layer = FairLayer(MeanParity(0.05), levels={"sex": [0, 1, 2]}, absent="vacuous")
    layer(X[:, 0], {"sex": GROUPS[:, 0]})
    assert layer.solution.vacuous == ("mean parity, sex: 2 is absent",)
    with pytest.raises(ValueError, match="absent"):
        FairLayer(MeanParity(0.05), absent="raise")(X[:, 0], torch.zeros(N, 1, dtype=torch.long))


def test_arguments_can_be_set_anew():
    layer = FairLayer(MeanParity(0.05), bounds=(0.0, 1.0))
    layer(X[:, 0], GROUPS)
    layer.bounds, layer.discrepancy = (0.1, 0.9), "entropy"
    z = X[:, 0].sigmoid()
    expected = project(z, GROUPS, MeanParity(0.05), (0.1, 0.9), discrepancy="entropy")
    assert torch.equal(layer(z, GROUPS), expected.value)
    with pytest.raises(InputError, match="absent must be one of"):
        layer.absent = "ignore"
    assert layer.absent == "vacuous"


class LearnedScale(nn.Module):
    """The squared discrepancy, with something to learn of its own."""

    name, piecewise_linear = "learned", True

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def response(self, z, s, lo, hi):
        return torch.minimum(torch.maximum(z - s, lo), hi)

    def slope(self, z, s, lo, hi):
        return ((z - s >= lo) & (z - s <= hi)).double()

    sensitivity = slope


def test_a_discrepancy_may_be_a_module():
    layer = FairLayer(MeanParity(0.05), discrepancy=LearnedScale())
    assert [name for name, _ in layer.named_parameters()] == ["discrepancy.scale"]
    assert torch.allclose(layer(X[:, 0], GROUPS), FairLayer(MeanParity(0.05))(X[:, 0], GROUPS))
    twin = copy.deepcopy(layer)
    assert next(twin.parameters()) is twin.discrepancy.scale is not layer.discrepancy.scale
    layer.discrepancy = "squared"
    assert not [*layer.parameters()]
    layer.discrepancy = LearnedScale()
    assert layer.discrepancy.name == "learned"
    assert len([*layer.parameters()]) == 1


class Curved(nn.Module):
    """d(y, z) = c (y - z)^2 / 2, with a curvature c = exp(t) per sample that is learned."""

    name, piecewise_linear = "curved", True

    def __init__(self, logs):
        super().__init__()
        self.logs = nn.Parameter(logs.clone())

    def response(self, z, s, lo, hi):
        return torch.clamp(z - s * torch.exp(-self.logs), lo, hi)

    def slope(self, z, s, lo, hi):
        return self.sensitivity(z, s, lo, hi) * torch.exp(-self.logs)

    def sensitivity(self, z, s, lo, hi):
        raw = z - s * torch.exp(-self.logs)
        return ((raw >= lo) & (raw <= hi)).double()


def test_the_parameters_of_a_discrepancy_are_learned():
    generator = torch.Generator().manual_seed(0)
    z, logs, cost = (torch.randn(12, generator=generator, dtype=torch.float64) for _ in range(3))
    layer = FairLayer(MeanParity(0.05), bounds=(-1.0, 1.2), discrepancy=Curved(logs))

    def loss(shifted: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            layer.discrepancy.logs.copy_(shifted)
        return (layer(z, groups=torch.arange(12) % 2) * cost).sum()

    loss(logs).backward()
    found = layer.discrepancy.logs.grad.clone()
    steps = 1e-6 * torch.eye(12, dtype=torch.float64)
    measured = torch.stack([(loss(logs + step) - loss(logs - step)).detach() / 2e-6 for step in steps])
    assert measured.abs().max() > 0.01
    assert torch.allclose(found, measured, atol=1e-7)
    late = loss(logs)
    with torch.no_grad():
        layer.discrepancy.logs.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        late.backward()


def test_the_solution_keeps_no_graph_alive():
    layer, freed = FairLayer(MeanParity(0.05)), []
    z = X[:, 0].clone().requires_grad_() * 2.0
    weakref.finalize(z, freed.append, True)
    y = layer(z, GROUPS)
    del z, y
    gc.collect()
    assert freed
    assert layer.solution.gaps.abs().max() <= 0.05
