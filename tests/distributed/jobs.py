"""What the processes of the pool are asked to do. Every job takes a process group and arguments of its own."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from fairlayer import EqualizedResiduals, FairLayer, MeanParity, project

COLLECTIVES = [
    name
    for name in (
        *("allreduce", "allgather", "_allgather_base", "alltoall", "alltoall_base", "broadcast", "barrier"),
        *("gather", "scatter", "reduce", "reduce_scatter", "_reduce_scatter_base", "send", "recv"),
    )
    if hasattr(dist.ProcessGroup, name)
]


@contextmanager
def before_exchanges(act: Callable[[], None]) -> Iterator[None]:
    """Does something before every exchange between ranks, whichever function of torch asks for it."""
    real = {name: vars(dist.ProcessGroup)[name] for name in COLLECTIVES}

    def watched(name: str) -> Callable[..., Any]:
        def call(group: Any, *given: Any, **named: Any) -> Any:
            act()
            return real[name].__get__(group)(*given, **named)

        return call

    for name in COLLECTIVES:
        setattr(dist.ProcessGroup, name, watched(name))
    try:
        yield
    finally:
        for name, function in real.items():
            setattr(dist.ProcessGroup, name, function)


@contextmanager
def counted() -> Iterator[list[None]]:
    """A list that has an entry for every exchange between ranks."""
    found: list[None] = []
    with before_exchanges(lambda: found.append(None)):
        yield found


def project_share(group: Any, own: dict[str, Any]) -> dict[str, Any]:
    """Project a share; its outputs, what is known of them, and all gradients for an upstream gradient."""
    arguments = dict(own)
    upstream = arguments.pop("upstream", None)
    z = arguments.pop("z").clone().requires_grad_(upstream is not None)
    wanted = {name: value for name, value in own.items() if isinstance(value, Tensor) and value.requires_grad}
    for k, constraint in enumerate(own["constraints"]):
        if isinstance(getattr(constraint, "tolerance", None), Tensor):
            wanted[f"tolerance {k}"] = constraint.tolerance
    for side, bound in enumerate(own.get("bounds") or ()):
        if isinstance(bound, Tensor) and bound.requires_grad:
            wanted[f"bound {side}"] = bound
    for tensor in wanted.values():
        tensor.grad = None
    with counted() as forward:
        solution = project(z, process_group=group, **arguments)
    found = {
        "value": solution.value.detach().clone(),
        "gaps": solution.gaps,
        "rows": solution.rows,
        "multipliers": solution.multipliers,
        "status": solution.status.name,
        "vacuous": solution.vacuous,
        "excess": solution.excess,
        "forward": len(forward),
    }
    if upstream is not None:
        with counted() as backward:
            solution.value.backward(upstream)
        found |= {"gradient": z.grad, "backward": len(backward)}
        found |= {name: tensor.grad for name, tensor in wanted.items()}
    return found


def warm_up(group: Any, own: None) -> None:
    """Compile."""
    for dtype, weights in product((torch.float64, torch.float32), (None, torch.ones(4))):
        z = torch.tensor([0.1, 0.9, 0.4, 0.3], dtype=dtype)
        constraints = [MeanParity(0.1), EqualizedResiduals(0.5)]
        arguments = {"z": z, "upstream": z, "groups": torch.tensor([0, 1, 0, 1]), "targets": z, "weights": weights}
        project_share(group, {**arguments, "constraints": constraints})
        project(z, torch.tensor([0, 1, 0, 1]), constraints, targets=z, weights=weights)


def project_many(group: Any, own: list[dict[str, Any]]) -> list[Any]:
    """Project several batches, one after the other; errors are results too."""
    results: list[Any] = []
    for one in own:
        try:
            results.append(project_share(group, one))
        except ValueError as error:
            results.append((type(error).__name__, str(error)))
    return results


def double_backward(group: Any, own: dict[str, Any]) -> str:
    """The message that a second derivative gives."""
    arguments = dict(own)
    z = arguments.pop("z").clone().requires_grad_()
    y = project(z, process_group=group, **arguments).value
    try:
        torch.autograd.grad((y**2).sum(), z, create_graph=True)
    except RuntimeError as error:
        return str(error)
    return ""


def step(group: Any, own: dict[str, Any]) -> Any:
    """Make calls: f for forward, b for backward of the last forward, a digit for backward of that forward."""
    arguments = dict(own)
    steps, raw = arguments.pop("steps"), arguments.pop("z")
    outputs = [raw.clone().requires_grad_()]
    try:
        for call in steps:
            if call == "f":
                outputs.append(project(raw.clone().requires_grad_(), process_group=group, **arguments).value)
            else:
                outputs[-1 if call == "b" else 1 + int(call)].sum().backward()
    except ValueError as error:
        return type(error).__name__, str(error)
    return None


def die(group: Any, own: dict[str, Any]) -> Any:
    """Project two batches; a rank with a fate dies or hangs as it comes to its first exchange of a stage."""
    arguments = dict(own)
    fate, stage, seconds = arguments.pop("fate", None), arguments.pop("stage"), arguments.pop("seconds")
    upstream, raw = arguments.pop("upstream"), arguments.pop("z")
    group = dist.new_group(timeout=datetime.timedelta(seconds=seconds))

    def end() -> None:
        if fate is not None:
            os._exit(1) if fate == "dies" else time.sleep(60)

    started = time.monotonic()
    try:
        for batch in ("first", "second"):  # of the second the labels are known
            z = raw.clone().requires_grad_()
            with before_exchanges(end if stage == f"{batch} forward" else lambda: None):
                y = project(z, process_group=group, **arguments).value
            with before_exchanges(end if stage == f"{batch} backward" else lambda: None):
                y.backward(upstream)
    except ValueError as error:
        return type(error).__name__, str(error), time.monotonic() - started
    return None


class Network(nn.Module):
    """A small network that ends in the layer."""

    def __init__(self, layer: FairLayer, inputs: int, dtype: torch.dtype):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.first, self.second = nn.Linear(inputs, 8, dtype=dtype), nn.Linear(8, 1, dtype=dtype)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.3)
        self.layer = layer

    def forward(self, x: Tensor, groups: Any) -> Tensor:
        """Fair scores."""
        return self.layer(torch.sigmoid(self.second(torch.tanh(self.first(x)))).reshape(-1), groups)


def train(group: Any, own: dict[str, Any]) -> dict[str, Any]:
    """Train on batches, of which this rank has a share of each. wrap: how the ranks' gradients are put together."""
    batches, wrap, rate = own["batches"], own["wrap"], own.get("rate", 0.5)
    x = batches[0]["x"]
    layer = FairLayer(own["constraints"], bounds=own["bounds"], process_group=None if wrap == "alone" else group)
    network: Any = Network(layer, x.shape[1], x.dtype)
    size = dist.get_world_size(group)
    if wrap == "ddp":
        network = nn.parallel.DistributedDataParallel(network, process_group=group)
    elif wrap == "fsdp":
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.fsdp import fully_shard

        network = fully_shard(network, mesh=DeviceMesh.from_group(group, "cpu"))
    optimizer = torch.optim.SGD(network.parameters(), lr=rate)
    outputs, losses = [], []
    for batch in batches:
        y = network(batch["x"], batch["groups"])
        errors = nn.functional.binary_cross_entropy(y, batch["targets"], reduction="sum")
        # The mean over the whole batch, times the number of ranks, as gradients are averaged over these.
        loss = errors * (1 if wrap == "alone" else size) / batch["total"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        outputs.append(y.detach().clone())
        losses.append(float(errors.detach()))
    full = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in network.parameters()]
    return {"outputs": outputs, "losses": losses, "parameters": [p.detach().clone() for p in full]}
