"""The network of the paper: 15 hidden layers, each with layer normalisation and ReLU."""

from torch import nn

FEATURES = 151
HIDDEN = (800, *[600] * 7, 400, 300, 200, 100, 50, 10, 3)


def paper_network() -> nn.Sequential:
    """Build the network; its output is (n, 1)."""
    layers: list[nn.Module] = []
    width = FEATURES
    for hidden in HIDDEN:
        layers += [nn.Linear(width, hidden), nn.LayerNorm(hidden), nn.ReLU()]
        width = hidden
    return nn.Sequential(*layers, nn.Linear(width, 1))
