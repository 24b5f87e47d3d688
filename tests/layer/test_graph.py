"""`torch.compile(fullgraph=True)`: the layer in a graph gives what it gives without one, forward and backward."""

from __future__ import annotations

import copy
import gc
import shutil

import pytest
import torch
from torch import Tensor, nn

from fairlayer import EqualizedOdds, FairLayer, MeanParity, RateParity, ResidualMean, Status
from fairlayer.core.solver import Batch

N = 48
GENERATOR = torch.manual_seed(2)
X = torch.randn(N, 5, generator=GENERATOR)
TABLE = torch.randint(0, 2, (N, 2), generator=GENERATOR)
COLUMNS = {"sex": TABLE[:, 0].contiguous(), "region": TABLE[:, 1].contiguous()}
TARGETS = torch.randint(0, 2, (N,), generator=GENERATOR).float()
WEIGHTS = torch.rand(N, generator=GENERATOR) + 0.5


class Network(nn.Module):
    def __init__(self, layer: FairLayer):
        super().__init__()
        torch.manual_seed(1)
        self.body = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
        self.layer = layer

    def forward(self, x, groups, targets=None, weights=None):
        z = torch.sigmoid(self.body(x)).squeeze(-1)
        return 2.0 * self.layer(z, groups, targets=targets, weights=weights)


@pytest.fixture(autouse=True)
def forget_graphs():
    torch._dynamo.reset()


def rows(value, count: int):
    """The first rows of a tensor, or of a mapping of them."""
    return {name: column[:count] for name, column in value.items()} if isinstance(value, dict) else value[:count]


def compare(layer: FairLayer, backend: str, *batch, atol: float = 0.0) -> None:
    """Outputs and gradients do not depend on the graph, for two sizes of batch."""
    plain, model = Network(layer), Network(copy.deepcopy(layer))
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    for count in (N, N - 11):
        given = [rows(part, count) for part in (X, *batch)]
        expected, y = plain(*given), compiled(*given)
        assert torch.allclose(y, expected, rtol=0.0, atol=atol)
        expected.square().sum().backward()
        y.square().sum().backward()
    for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert theirs.grad.any()
        assert torch.allclose(mine.grad, theirs.grad, rtol=0.0, atol=atol)
    assert model.layer.solution.status is layer.solution.status
    assert torch.allclose(model.layer.solution.gaps, layer.solution.gaps, rtol=0.0, atol=atol)


@pytest.mark.parametrize("groups", [TABLE, COLUMNS, TABLE[:, 0]], ids=["table", "columns", "one"])
def test_in_a_graph(groups):
    compare(FairLayer(MeanParity(0.01), bounds=(0.0, 1.0)), "aot_eager", groups)


@pytest.mark.parametrize(
    "layer",
    [
        FairLayer([MeanParity(0.02), EqualizedOdds(0.1)], bounds=(0.0, 1.0)),
        FairLayer(ResidualMean(0.01)),
        FairLayer(MeanParity(0.01), discrepancy="entropy"),
        FairLayer(RateParity(0.1), surrogate="sigmoid"),
    ],
    ids=["odds", "residuals", "entropy", "decisions"],
)
def test_in_a_graph_with_targets(layer):
    compare(layer, "aot_eager", TABLE, TARGETS)


def test_in_a_graph_with_weights():
    compare(FairLayer(MeanParity(0.01)), "aot_eager", TABLE, TARGETS, WEIGHTS)


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
def test_by_inductor():
    """Which takes sums of the network in another order."""
    compare(FairLayer(MeanParity(0.01), bounds=(0.0, 1.0)), "inductor", COLUMNS, atol=1e-5)


def test_without_gradients():
    model = Network(FairLayer(MeanParity(0.01), bounds=(0.0, 1.0)))
    with torch.no_grad():
        assert torch.equal(torch.compile(model, fullgraph=True, backend="aot_eager")(X, COLUMNS), model(X, COLUMNS))


def test_what_backward_needs_is_freed_with_the_output():
    """It is kept outside of the graph, which holds tensors alone."""
    compiled = torch.compile(Network(FairLayer(MeanParity(0.01))), fullgraph=True, backend="aot_eager")
    kept = [compiled(X, TABLE) for _ in range(3)]
    gc.collect()
    before = sum(isinstance(one, Batch) for one in gc.get_objects())
    kept[0].sum().backward()
    del kept
    gc.collect()
    assert sum(isinstance(one, Batch) for one in gc.get_objects()) <= before - 2  # the layer's last solution has one


def test_errors_are_said_from_within_a_graph():
    compiled = torch.compile(Network(FairLayer(MeanParity(0.01), absent="raise")), fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="Groups are absent from this batch"):
        compiled(X, {"sex": torch.zeros(N, dtype=torch.int64)})


@pytest.mark.parametrize("wanted", ["tolerance", "bounds", "words"])
def test_what_no_graph_can_hold_breaks_it(wanted):
    """Gradients of tolerances and bounds, and labels that are no tensors: the same numbers, outside of the graph."""
    limit = nn.Parameter(torch.tensor(0.02 if wanted == "tolerance" else 0.6))
    layer = FairLayer(MeanParity(limit)) if wanted == "tolerance" else FairLayer(MeanParity(0.02))
    if wanted == "bounds":
        layer = FairLayer(MeanParity(0.02), bounds=(None, limit))
    groups = COLUMNS if wanted != "words" else {"sex": ["f" if v else "m" for v in COLUMNS["sex"].tolist()]}
    expected = Network(layer)(X, groups)
    expected.sum().backward()
    gradient, limit.grad = limit.grad, None
    y = torch.compile(Network(layer), backend="aot_eager")(X, groups)
    y.sum().backward()
    assert torch.equal(y, expected)
    assert (limit.grad is None) if wanted == "words" else torch.allclose(limit.grad, gradient)


def test_a_copy_of_a_layer_is_found_by_a_number_of_its_own():
    layer = FairLayer(MeanParity(0.01))
    other = copy.deepcopy(layer)
    other.bounds = (0.0, 0.5)
    for each in (layer, other):
        y = torch.compile(each, fullgraph=True, backend="aot_eager")(X[:, 0], TABLE)
        assert torch.equal(y, each(X[:, 0], TABLE))
    assert layer.solution.status is Status.OPTIMAL
    assert isinstance(other.solution.value, Tensor)
    assert other.solution.value.max() <= 0.5 < layer.solution.value.max()
