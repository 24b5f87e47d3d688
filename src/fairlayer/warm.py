"""`warm_up`: compile everything beforehand, for images and services that should answer at once."""

from __future__ import annotations

import numpy as np
import torch

from fairlayer.constraints import Affine, MeanParity, RateParity
from fairlayer.projection import project
from fairlayer.stream import Stream


def warm_up() -> None:
    """Compile what layers and streams run, in float32 and float64. What is compiled is kept on disk for next time.

    Call it where a container image is built, or when a service starts: the first batch is then as quick as any other.
    `fairlayer warm-up` does the same from the command line.
    """
    groups = torch.tensor([[0, 1], [1, 0], [0, 0], [1, 1]])
    words = {"group": np.array(["a", "b", "a", "b"])}
    for dtype in (torch.float32, torch.float64):
        z = torch.tensor([0.1, 0.9, 0.4, 0.6], dtype=dtype, requires_grad=True)
        for form in (groups, words):
            project(z, form, MeanParity(0.01), (0.0, 1.0)).value.sum().backward()
            project(z, form, RateParity(0.01), weights=[1.0, 2.0, 1.0, 1.0]).value.sum().backward()
        project(z.reshape(2, 2), None, Affine([[1.0, 1.0]], 0.5, 0.6)).value.sum().backward()
    for constraint in (MeanParity(0.01), RateParity(0.01)):
        Stream(constraint, (0.0, 1.0)).update(np.array([0.1, 0.9, 0.4, 0.6]), words)
