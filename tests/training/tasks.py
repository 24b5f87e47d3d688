"""A small task that tests share: two attributes, one of which the inputs reveal and the targets follow."""

import copy

import torch
from torch import nn

from fairlayer import FairModel


def make_data(n=240, seed=0):
    """Inputs (n, 4), targets (n,), groups (n, 2)."""
    generator = torch.Generator().manual_seed(seed)
    groups = torch.randint(0, 2, (n, 2), generator=generator)
    x = torch.randn(n, 4, generator=generator)
    x[:, 0] += groups[:, 0]
    targets = x[:, 0] - 0.5 * x[:, 1] + groups[:, 0] + 0.3 * torch.randn(n, generator=generator)
    return x, targets, groups


def make_model(layer=None, seed=0, dropout=0.0):
    """A small network with a layer."""
    torch.manual_seed(seed)
    return FairModel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 1)), layer)


def copy_state(model):
    """The model's state, which training on does not change."""
    return copy.deepcopy(model.state_dict())
