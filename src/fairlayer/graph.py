"""What torch.compile sees of the layer: one operator, which it can take into a graph (`fullgraph=True`).

A graph holds tensors and plain values alone: labels that are integers in tensors, and a number by which the operator
finds the layer, in a tensor as well: a number of Python's would be part of the graph, and make one for every layer. The
operator runs the layer as it runs without a graph. Its second output stands for what the derivative needs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import wraps
from itertools import count
from typing import Any, ParamSpec, TypeVar
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

from fairlayer.core.gradient import ProjectionNode
from fairlayer.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")

_LAYERS: WeakValueDictionary[int, nn.Module] = WeakValueDictionary()
_NUMBERS = count(1)
_BETWEEN = "\0"  # names of attributes: an operator takes no list of words


def eager(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function, and all it calls, outside of torch.compile's graphs.

    `torch.compiler.disable` does that, but loads the compiler for it, which takes as long as the rest of torch. Here
    it is asked only once somebody has loaded the compiler: without it there are no graphs.
    """
    disabled: Callable[P, R] | None = None

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal disabled
        if disabled is None:
            if "torch._dynamo" not in sys.modules:
                return function(*args, **kwargs)
            disabled = torch.compiler.disable(function)
        return disabled(*args, **kwargs)

    run._torchdynamo_disable = True  # type: ignore[attr-defined]  # what the compiler itself looks for
    return run


def number_of(layer: nn.Module) -> Tensor:
    """A number by which the operator finds a layer, as long as there is one."""
    number = next(_NUMBERS)
    _LAYERS[number] = layer
    return torch.tensor(number)


def refuse_files(way: str) -> None:
    """Refuse to be written to a file: the constraints are Python objects, and no part of a graph."""
    raise InputError(
        f"{way} cannot hold a fairness layer: its constraints are Python objects. Apply {way} to the network without "
        "the layer, and use fairlayer.freeze for what is to follow it; or speed the whole up with torch.compile."
    )


def fits_graph(z: Any, groups: Any, targets: Any, features: Any, weights: Any) -> bool:
    """Whether a batch can go through the operator: all tensors, labels in columns by name or in a table."""
    labels = list(groups.values()) if isinstance(groups, Mapping) else [groups]
    return (
        features is None
        and all(isinstance(one, Tensor) for one in (z, *labels))
        and (not isinstance(groups, Mapping) or all(isinstance(name, str) for name in groups))
        and (targets is None or (isinstance(targets, Tensor) and not targets.requires_grad))
        and (weights is None or isinstance(weights, Tensor))
    )


def project_in_graph(number: Tensor, z: Tensor, groups: Any, targets: Tensor | None, weights: Tensor | None) -> Tensor:
    """The output of a layer, by the operator."""
    named = isinstance(groups, Mapping)
    labels, names = (list(groups.values()), _BETWEEN.join(groups)) if named else ([groups], None)
    return torch.ops.fairlayer.project(number, z, labels, names, targets, weights)[0]


def _project(
    number: Tensor, z: Tensor, groups: list[Tensor], names: str | None, targets: Tensor | None, weights: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The output, and a tensor whose memory has the output's own graph as an attribute: both are freed together."""
    given = groups[0] if names is None else dict(zip(names.split(_BETWEEN), groups, strict=True))
    # Autograd takes part again, which torch leaves out while it runs a graph.
    include, exclude = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    recording = torch._C._ForceDispatchKeyGuard(include, exclude & torch._C._after_ADInplaceOrView_keyset)
    with torch.enable_grad(), recording:
        leaf = z.detach().requires_grad_()
        y = _LAYERS[int(number)].forward(leaf, given, targets, None, weights).contiguous()
    found = torch.empty(())
    found.untyped_storage().graph = leaf, y  # type: ignore[attr-defined]
    return y.detach(), found


def _pull_back(found: Tensor, gradient: Tensor) -> Tensor:
    try:
        leaf, y = found.untyped_storage().graph  # type: ignore[attr-defined]
    except AttributeError:
        raise RuntimeError(
            "What was saved for backward has been copied, as hooks on saved tensors do: call the layer outside them, "
            "or without torch.compile."
        ) from None
    if isinstance(y.grad_fn, ProjectionNode):  # as a rule there is nothing else: no need of torch's engine
        with torch.no_grad():
            return y.grad_fn.apply(gradient)[3]
    return torch.autograd.grad(y, leaf, gradient, retain_graph=True)[0].contiguous()


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.groups = len(inputs[2])
    ctx.save_for_backward(output[1])


def _differentiate(ctx: Any, gradient: Tensor, _: Any) -> tuple[Any, ...]:
    back = torch.ops.fairlayer.project_backward(*ctx.saved_tensors, gradient)
    return None, back, [None] * ctx.groups, None, None, None


_LIBRARY = torch.library.Library("fairlayer", "DEF")
_DATA = "Tensor layer, Tensor z, Tensor[] groups, str? names, Tensor? targets, Tensor? weights"
_HOST = (torch.Tag.cudagraph_unsafe,)  # it runs on the host, which a recorded graph of kernels would leave out
_LIBRARY.define(f"project({_DATA}) -> (Tensor, Tensor)", tags=_HOST)
_LIBRARY.define("project_backward(Tensor found, Tensor gradient) -> Tensor", tags=_HOST)
_LIBRARY.impl("project", _project, "CompositeExplicitAutograd")
_LIBRARY.impl("project_backward", _pull_back, "CompositeExplicitAutograd")


@torch.library.register_fake("fairlayer::project", lib=_LIBRARY)
def _shapes(number: Tensor, z: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(z, memory_format=torch.contiguous_format), torch.empty((), device="cpu")


@torch.library.register_fake("fairlayer::project_backward", lib=_LIBRARY)
def _shape(found: Tensor, gradient: Tensor) -> Tensor:
    return torch.empty_like(gradient, memory_format=torch.contiguous_format)


torch.library.register_autograd("fairlayer::project", _differentiate, setup_context=_save, lib=_LIBRARY)
