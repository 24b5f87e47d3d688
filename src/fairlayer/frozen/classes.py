"""`FrozenClasses`: fair class probabilities as a plain function of one sample. Made by `freeze`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from fairlayer.constraints.plain_data import Label, Name
from fairlayer.errors import InputError
from fairlayer.frozen.frozen import Frozen
from fairlayer.layer import FairLayer


class FrozenClasses(Frozen):
    """Class probabilities (n, d) and groups of any number of samples -> fair ones, each a function of its own sample.

    Made by `freeze` of a layer with simplex=True. `shifts` has a column for every class.
    """

    def __init__(
        self,
        layer: FairLayer,
        labels: Mapping[Name, Sequence[Label]],
        backbone: nn.Module | None = None,
        classes: int = 2,
    ):
        super().__init__(layer, labels, backbone)
        self.shifts = torch.zeros(len(self.shifts), classes, dtype=torch.float64)

    def respond(self, z: Tensor, shift: Tensor) -> Tensor:
        """Probabilities (n, d) moved by shifts, in float64, and as many."""
        if z.shape[-1] != self.shifts.shape[1]:
            raise InputError(
                f"z has shape {tuple(z.shape)}: {self.shifts.shape[1]} probabilities per sample are needed."
            )
        raw = z.double()
        if self.discrepancy.name == "entropy":
            weights = raw * torch.exp(shift.amin(-1, keepdim=True) - shift)
            return (weights / weights.sum(-1, keepdim=True)).to(z.dtype).clamp(min=torch.finfo(z.dtype).tiny)
        # The point of the simplex nearest to z - s: all less a threshold, which those above it share.
        moved = raw - shift
        ordered = torch.sort(moved, dim=-1, descending=True).values
        rank = torch.arange(1, moved.shape[-1] + 1, dtype=moved.dtype, device=moved.device)
        threshold = (torch.cumsum(ordered, -1) - 1.0) / rank
        above = (ordered > threshold).sum(-1, keepdim=True)
        return (moved - threshold.gather(-1, above - 1)).clamp(min=0.0).to(z.dtype)
