"""A pretended accelerator: tensors that say they are elsewhere, whose data are on the host, and a log of what is done.

A wait is what makes the host stand still until the device has done all it was asked to: a copy to the host that blocks,
a number that is read (`item`, `nonzero`, a boolean mask), or a synchronisation. A second copy right after the first
finds the device idle, and is none. Tensors of host and device do not mix, as on any accelerator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("pretended")
DEVICE = torch.device("pretended:0")
_READ = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "_unique", "unique_dim", "bincount", "equal"}
_COPIES = {"_to_copy", "to", "_copy_from", "_copy_from_and_resize"}


@dataclass
class Log:
    """What was done: waits and copies to the device by name, and whether float64 is refused, as Apple's devices do."""

    waits: list[str] = field(default_factory=list)
    uploads: list[str] = field(default_factory=list)
    busy: bool = True
    without_float64: bool = False

    def clear(self) -> None:
        """Begin anew, with a device that is busy."""
        self.waits.clear()
        self.uploads.clear()
        self.busy = True

    def wait(self, what: str) -> None:
        """The host waits until the device is idle."""
        if self.busy:
            self.waits.append(what)
        self.busy = False


_log = Log()


class Pretended(torch.Tensor):
    """A tensor of the pretended device. inner: its data, on the host."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Pretended:
        if _log.without_float64 and inner.dtype == torch.float64:
            raise TypeError("this device has no float64")
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device=DEVICE
        )

    def __init__(self, inner: torch.Tensor):
        self.inner = inner

    def __repr__(self, **_: Any) -> str:
        return f"Pretended({self.inner})"

    def tolist(self) -> Any:
        """A list, which takes a copy to the host."""
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(function, args, kwargs or {})


def _there(value: Any) -> Any:
    return Pretended(value) if isinstance(value, torch.Tensor) and not isinstance(value, Pretended) else value


def _here(value: Any) -> Any:
    return value.inner if isinstance(value, Pretended) else value


def _is_there(device: Any) -> bool:
    return device is not None and torch.device(device).type == DEVICE.type


def _run(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    name, leaves = function.overloadpacket.__name__, tree_leaves((args, kwargs))
    device, inner_args, inner_kwargs = kwargs.get("device"), *tree_map(_here, (args, kwargs))
    if name in _COPIES and isinstance(args[0], torch.Tensor):
        later = inner_kwargs.pop("non_blocking", False)
        inner_kwargs.pop("device", None)
        source = isinstance(args[0], Pretended)
        goal = source if device is None else _is_there(device)
        if source and not goal and not later:
            _log.wait("copy to the host")
        if goal and not source:
            _log.uploads.append("copy to the device")
        copied = function(*inner_args, **inner_kwargs)
        return _there(copied) if goal else copied
    if name == "copy_" and isinstance(args[0], torch.Tensor):
        goal, source = (isinstance(one, Pretended) for one in args[:2])
        later = inner_kwargs.get("non_blocking", False) or (len(args) > 2 and args[2])
        if source and not goal and not later:
            _log.wait("copy to the host")
        if goal and not source:
            _log.uploads.append("copy to the device")
        function(*inner_args, **inner_kwargs)
        return args[0]
    if _is_there(device):
        return tree_map(_there, function(*inner_args, **{**inner_kwargs, "device": torch.device("cpu")}))
    if not any(isinstance(leaf, Pretended) for leaf in leaves):
        return function(*args, **kwargs)
    if any(isinstance(leaf, torch.Tensor) and not isinstance(leaf, Pretended) and leaf.dim() for leaf in leaves):
        raise RuntimeError(f"Expected all tensors to be on the same device: {name}")
    boolean = name == "index" and any(leaf.dtype == torch.bool for leaf in leaves[1:] if isinstance(leaf, torch.Tensor))
    if name in _READ or boolean:
        _log.busy = True  # with what is read
        _log.wait(name)
    elif not function.is_view:
        _log.busy = True
    found = function(*inner_args, **inner_kwargs)
    if name == "_local_scalar_dense":
        return found
    return args[0] if name.endswith("_") and not name.startswith("_") else tree_map(_there, found)


class _Mode(TorchDispatchMode):
    """For what is made on the device by functions that take no tensor."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(function, args, kwargs or {})


def _maker(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`torch.tensor` and its like, which ask the device itself for memory."""

    def made(data: Any, *given: Any, device: Any = None, **named: Any) -> torch.Tensor:
        if not _is_there(device) or isinstance(data, Pretended):
            return make(data, *given, device=device, **named)
        _log.uploads.append("copy to the device")
        return Pretended(make(data, *given, **named))

    return made


@contextmanager
def pretended_device(*, without_float64: bool = False) -> Iterator[Log]:
    """The device, for as long as this lasts, and its log."""
    _log.clear()
    with ExitStack() as stack:
        for module, name, instead in (
            (torch.accelerator, "synchronize", lambda *_: _log.wait("synchronize")),
            (torch, "tensor", _maker(torch.tensor)),
            (torch, "as_tensor", _maker(torch.as_tensor)),
        ):
            stack.enter_context(patch.object(module, name, instead))
        stack.enter_context(_Mode())
        stack.enter_context(patch.object(_log, "without_float64", without_float64))
        yield _log


def to_device(values: Any) -> torch.Tensor:
    """A tensor of the device."""
    return Pretended(torch.as_tensor(values).detach().clone())


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """Its data."""
    assert isinstance(tensor, Pretended), f"on {tensor.device}, not on the device"
    return tensor.inner.detach()
