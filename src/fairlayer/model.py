"""`FairModel`: any network, followed by a fairness layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fairlayer.errors import InputError

Hidden = str | int | Sequence[str | int] | None


class FairModel(nn.Module):
    """A backbone whose outputs pass through a layer.

    backbone: any module that maps its input to one output per sample, shape (n,) or (n, 1). layer: a `FairLayer`,
    any module that is called like one, or None to leave the outputs as they are. hide: what of the input the backbone
    must not see: names where the input is a mapping or a frame, columns (of any sign) where it is a matrix.

    Outputs have shape (n,), whatever the backbone's.
    """

    def __init__(self, backbone: nn.Module, layer: nn.Module | None = None, hide: Hidden = None):
        super().__init__()
        self.backbone = backbone
        self.layer = layer
        listed = [] if hide is None else [hide] if isinstance(hide, str | int) else list(hide)
        for entry in listed:
            if not isinstance(entry, str | int) or isinstance(entry, bool):
                raise InputError(f"hide holds {entry!r}: give names or column numbers.")
        self.hide: tuple[str | int, ...] = tuple(listed)

    def raw(self, x: Any) -> Tensor:
        """The backbone's outputs, of shape (n,), or (n, d) of several, before the layer."""
        z = self.backbone(without(x, self.hide))
        if not isinstance(z, Tensor):
            raise InputError(
                f"The backbone returned {type(z).__name__}: it must return a tensor, one output per sample."
            )
        if z.ndim not in (1, 2):
            raise InputError(f"The backbone returned shape {tuple(z.shape)}: it must be (n,) or (n, d).")
        return z if z.ndim == 2 and z.shape[1] != 1 else z.reshape(-1)

    def forward(
        self, x: Any, groups: Any = None, targets: Any = None, features: Any = None, weights: Any = None
    ) -> Tensor:
        """Outputs for one batch, with whatever data the layer's constraints look at."""
        z = self.raw(x)
        return z if self.layer is None else self.layer(z, groups, targets, features, weights)


def without(x: Any, hide: Sequence[str | int]) -> Any:
    """An input less the named or numbered columns."""
    if not hide:
        return x
    if isinstance(x, Mapping):
        _refuse_absent([name for name in hide if name not in x], list(x))
        return {name: value for name, value in x.items() if name not in hide}
    if hasattr(x, "columns") and hasattr(x, "drop"):
        _refuse_absent([name for name in hide if name not in x.columns], list(x.columns))
        return x.drop(columns=list(hide))
    if not isinstance(x, Tensor) or x.ndim != 2:
        what = f"a tensor of shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise InputError(f"hide applies to a mapping, a frame or a matrix of columns; the input is {what}.")
    width = x.shape[1]
    _refuse_absent([column for column in hide if not isinstance(column, int) or not -width <= column < width], width)
    gone = {int(column) % width for column in hide}
    kept = [column for column in range(width) if column not in gone]
    return x[:, torch.tensor(kept, device=x.device, dtype=torch.long)]


def _refuse_absent(absent: list[Any], present: Any) -> None:
    if absent:
        has = f"{present} columns" if isinstance(present, int) else f"{present}"
        raise InputError(f"hide names {absent}, which the input does not have; it has {has}.")
