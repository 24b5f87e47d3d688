"""What torch makes of a network that ends in the layer: graphs of any number of layers, and files."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn

from fairlayer import FairLayer, MeanParity

X = torch.randn(40, 3, generator=torch.manual_seed(0))
GROUPS = (torch.arange(40) % 2)[:, None]


class Network(nn.Module):
    def __init__(self, tolerance: float):
        super().__init__()
        torch.manual_seed(1)
        self.body, self.layer = nn.Linear(3, 1), FairLayer([MeanParity(tolerance)])

    def forward(self, x, groups):
        return self.layer(self.body(x)[:, 0], groups)


def test_more_layers_than_torch_compiles_again():
    """The layer is one operator: another layer is not another compilation of it."""
    torch._dynamo.reset()
    for k in range(1, 13):
        network = Network(0.01 * k)
        expected = network(X, GROUPS)
        assert torch.equal(torch.compile(network, fullgraph=True, backend="aot_eager")(X, GROUPS), expected)


LOADED = """
import sys, torch
from fairlayer import FairLayer, MeanParity
X, GROUPS, expected = torch.load(sys.argv[2])
other = FairLayer([MeanParity(5.0)])
other(X[:, 0], GROUPS)
program = torch.export.load(sys.argv[1])
assert torch.equal(program.module()(X, GROUPS), expected)
"""


def test_an_exported_network_keeps_its_layer(tmp_path):
    """In a process that has other layers, or it is refused in words."""
    network = Network(0.01)
    try:
        program, refusal = torch.export.export(network, (X, GROUPS)), ""
    except Exception as error:
        program, refusal = None, str(error)
    if program is None:
        assert "freeze" in refusal
        return
    torch.export.save(program, tmp_path / "network.pt2")
    torch.save((X, GROUPS, network(X, GROUPS).detach()), tmp_path / "data.pt")
    command = [sys.executable, "-c", LOADED, str(tmp_path / "network.pt2"), str(tmp_path / "data.pt")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("how", ["trace", "script"])
def test_older_ways_are_refused_in_words(how):
    network = Network(0.01)
    make = {"trace": lambda: torch.jit.trace(network, (X, GROUPS)), "script": lambda: torch.jit.script(network)}[how]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception, match=r"torch\.compile|freeze"):
            make()
