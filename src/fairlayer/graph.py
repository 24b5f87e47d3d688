"""The layer as an operator of torch, so that torch.compile can take it into a graph (`fullgraph=True`).

A graph holds tensors and plain values alone: labels that are integers in tensors, and a number by which the operator
finds the layer. The operator runs the layer as it runs without a graph; its derivative solves the batch again, as a
graph cannot hold what the solver found.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

_LAYERS: WeakValueDictionary[int, nn.Module] = WeakValueDictionary()
_NUMBERS = count(1)
_BETWEEN = "\0"  # names of attributes: an operator takes no list of words


def number_of(layer: nn.Module) -> int:
    """A number by which the operator finds a layer, as long as there is one."""
    number = next(_NUMBERS)
    _LAYERS[number] = layer
    return number


def fits_graph(z: Any, groups: Any, targets: Any, features: Any, weights: Any) -> bool:
    """Whether a batch can go through the operator: all tensors, labels in columns by name or in a table."""
    labels = list(groups.values()) if isinstance(groups, Mapping) else [groups]
    names = list(groups) if isinstance(groups, Mapping) else []
    return (
        features is None
        and isinstance(z, Tensor)
        and all(isinstance(label, Tensor) for label in labels)
        and all(isinstance(name, str) for name in names)
        and (targets is None or (isinstance(targets, Tensor) and not targets.requires_grad))
        and (weights is None or isinstance(weights, Tensor))
    )


def project_in_graph(number: int, z: Tensor, groups: Any, targets: Tensor | None, weights: Tensor | None) -> Tensor:
    """The output of a layer, by the operator."""
    named = isinstance(groups, Mapping)
    labels, names = (list(groups.values()), _BETWEEN.join(groups)) if named else ([groups], None)
    return torch.ops.fairlayer.project(z, labels, names, targets, weights, number)


def _output(
    z: Tensor, groups: list[Tensor], names: str | None, targets: Tensor | None, weights: Tensor | None, layer: int
) -> Tensor:
    given = groups[0] if names is None else dict(zip(names.split(_BETWEEN), groups, strict=True))
    return _LAYERS[layer].forward(z, given, targets, None, weights).contiguous()


def _run(z: Tensor, *rest: Any) -> Tensor:
    with torch.no_grad():
        return _output(z, *rest)


def _run_back(gradient: Tensor, z: Tensor, *rest: Any) -> Tensor:
    with torch.enable_grad():
        again = z.detach().requires_grad_()
        return torch.autograd.grad(_output(again, *rest), again, gradient)[0].contiguous()


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    z, groups, names, targets, weights, layer = inputs
    ctx.save_for_backward(z, targets, weights, *groups)
    ctx.plain = names, layer


def _differentiate(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    (z, targets, weights, *groups), (names, layer) = ctx.saved_tensors, ctx.plain
    back = torch.ops.fairlayer.project_backward(gradient, z, groups, names, targets, weights, layer)
    return back, [None] * len(groups), None, None, None, None


_LIBRARY = torch.library.Library("fairlayer", "DEF")
_DATA = "Tensor z, Tensor[] groups, str? names, Tensor? targets, Tensor? weights, int layer"
_LIBRARY.define(f"project({_DATA}) -> Tensor")
_LIBRARY.define(f"project_backward(Tensor gradient, {_DATA}) -> Tensor")
_LIBRARY.impl("project", _run, "CompositeExplicitAutograd")
_LIBRARY.impl("project_backward", _run_back, "CompositeExplicitAutograd")


@torch.library.register_fake("fairlayer::project", lib=_LIBRARY)
@torch.library.register_fake("fairlayer::project_backward", lib=_LIBRARY)
def _shape(given: Tensor, *_: Any) -> Tensor:
    """What comes out is of the shape of z, as is a gradient."""
    return torch.empty_like(given, memory_format=torch.contiguous_format)


torch.library.register_autograd("fairlayer::project", _differentiate, setup_context=_save, lib=_LIBRARY)
