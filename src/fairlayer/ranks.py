"""One batch over several ranks: every rank gets all samples, projects them all, and keeps its own.

Samples are sorted by all that is known of them, so that the answer is the same to the bit however they are divided.
Backwards, every rank gets the gradients of all, and does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairlayer.constraints.plain_data import Label
from fairlayer.core.classes import check_probabilities
from fairlayer.core.discrepancies import check_domain, native_number
from fairlayer.errors import InputError, RankError
from fairlayer.problem.bounds import Box
from fairlayer.problem.constraint_set import Groupings
from fairlayer.problem.families import Key
from fairlayer.problem.groups import Column, SoftGroup, sorted_labels
from fairlayer.problem.process_group import Message, Ranks, digest_of
from fairlayer.problem.system import as_numbers, bind_columns, read_columns
from fairlayer.request import Data, Request, read_targets, read_weights
from fairlayer.solution import Solution

Labels = tuple[tuple[Label, ...] | None, ...]  # of each column; None where its integers are the labels
Settings = tuple[tuple[str, Hashable], ...]
_SIDES = ("lo", "hi")


class _Share(NamedTuple):
    """What a rank brings: its samples, and what has to be the same on all ranks."""

    arrays: dict[Any, np.ndarray]  # (n, any) float64 or int64: what is known of every sample, by name or key
    labels: Labels  # of the columns that are not soft
    settings: Settings
    groupings: Groupings
    columns: dict[Key, Column | SoftGroup]
    box: Box
    targets: Any

    def words(self) -> np.ndarray:
        """(n, any) int64: one row for each sample, floats as their bits."""
        return np.concatenate([array.view(np.int64) for array in self.arrays.values()], axis=1)

    def unpack(self, rows: np.ndarray) -> dict[Any, np.ndarray]:
        """The arrays of all samples, from their words."""
        widths = [array.shape[1] for array in self.arrays.values()]
        parts = np.split(rows, np.cumsum(widths)[:-1], axis=1)
        return {
            key: np.ascontiguousarray(part).view(array.dtype)
            for (key, array), part in zip(self.arrays.items(), parts, strict=True)
        }


def project_share(z: Tensor, request: Request, data: Data, ranks: Ranks, project: Callable[..., Solution]) -> Solution:
    """Project the samples of this rank, which with those of all others are one batch.

    project: what projects a whole batch, bound to its constraints.
    """
    share, failure, words, digest = None, None, np.zeros((0, 1), dtype=np.int64), 0
    try:
        share = _read(z, request, data)
        words, digest = share.words(), digest_of(repr((share.settings, share.labels)))
    except Exception as error:  # which the others have to hear of, whatever it is
        failure = error
    found, digests = ranks.exchange(Message("projection", words.reshape(-1), digest, failure))
    assert share is not None  # otherwise all ranks have raised
    tables = _tables(ranks, share, digests)
    each = [own.reshape(-1, words.shape[1]) for own in found]
    labels = _united([table for table, own in zip(tables, each, strict=True) if len(own)], share)
    rows = np.concatenate([_renumbered(own, table, labels) for own, table in zip(each, tables, strict=True)])
    first = sum(map(len, each[: ranks.rank]))
    order = _sorted(rows)
    return _project_all(z, request, share, rows[order], labels, order, slice(first, first + len(words)), ranks, project)


def _sorted(rows: np.ndarray) -> np.ndarray:
    """The order of rows, by their columns in turn."""
    order = np.argsort(rows[:, 0], kind="stable")  # which for most samples is all it takes
    tied = order[places := _ties(rows[order, :1])]
    order[places] = tied[np.lexsort(rows[tied].T[::-1])]
    return order


def _ties(rows: np.ndarray) -> np.ndarray:
    """Positions of sorted rows that are equal to another."""
    same = (rows[1:] == rows[:-1]).all(axis=1)
    return np.flatnonzero(np.append(same, False)[: len(rows)] | np.append(False, same)[: len(rows)])


def _read(z: Tensor, request: Request, data: Data) -> _Share:
    request.check(z, data)
    rules, n = request.rules, len(z)
    _check(z, request)
    targets = None if data.targets is None else read_targets(data.targets, n)
    groupings, columns = read_columns(rules, n, data.groups, targets, data.features, request.levels)
    box = request.box(n, z.dtype)
    arrays: dict[Any, Any] = {"z": z.detach().cpu().double().numpy()}
    if data.weights is not None:
        arrays["weights"] = read_weights(data.weights, n)
    if any(constraint.quantity == "residual" for constraint in rules.constraints):
        arrays["targets"] = as_numbers(targets)
    stated = (None, None) if request.bounds is None else request.bounds
    sides = zip(_SIDES, stated, (box.lo, box.hi), strict=True)
    arrays |= {name: numbers for name, side, numbers in sides if side is not None and np.ndim(side)}
    arrays |= {key: column.probabilities for key, column in columns.items() if isinstance(column, SoftGroup)}
    firm = {key: column for key, column in columns.items() if isinstance(column, Column)}
    arrays |= {key: column.values for key, column in firm.items()}  # at the end, where `_renumbered` looks for them
    arrays = {key: _as_table(values, np.int64 if key in firm else np.float64) for key, values in arrays.items()}
    settings = _settings(z, request, arrays, columns, box, targets)
    return _Share(arrays, tuple(c.labels for c in firm.values()), settings, groupings, columns, box, targets)


def _check(z: Tensor, request: Request) -> None:
    """Refuse what is not available over ranks, and outputs whose places only this rank can name."""
    if not request.simplex and z.ndim == 2 and z.shape[1] != 1:
        raise InputError(
            f"z has shape {tuple(z.shape)}: over a process group, project each column by itself, z[:, j], or class "
            "probabilities with simplex=True."
        )
    if request.rules.matrices:
        raise InputError("Affine has a matrix over the outputs of one process: use it with process_group=None.")
    if native_number(request.discrepancy) is None:
        raise InputError(
            f"discrepancy {request.discrepancy.name!r} is not available over a process group: use one by its name, or "
            "process_group=None."
        )
    values = z.detach().cpu().double().numpy()
    if request.simplex:
        check_probabilities(values, request.discrepancy.name, torch.finfo(z.dtype).eps / 2)
        return
    values = values.reshape(-1)
    if not np.isfinite(values).all():
        position = int(np.flatnonzero(~np.isfinite(values))[0])
        raise InputError(f"z[{position}] is {values[position]}: outputs must be finite.")
    check_domain(values, request.discrepancy)


def _settings(
    z: Tensor, request: Request, arrays: dict[Any, Any], columns: dict[Key, Column | SoftGroup], box: Box, targets: Any
) -> Settings:
    """What has to be the same on all ranks, by the name that an error gives it."""
    rules = request.rules
    wanted = {
        "z": z.requires_grad,
        "tolerances": rules.wants_gradient,
        "bounds": box.wants_gradient,
        "targets": isinstance(targets, Tensor) and targets.requires_grad,
    }
    sides = zip(_SIDES, (box.lo, box.hi), strict=True)
    kinds = {key: column.labels if isinstance(column, SoftGroup) else None for key, column in columns.items()}
    return (
        ("constraints", rules.key),
        ("tolerances", tuple(map(float, rules.tolerances()))),
        ("dtype", str(z.dtype)),
        ("bounds", tuple("one per sample" if name in arrays else float(side[0]) for name, side in sides)),
        ("gradients wanted of", tuple(name for name, wants in wanted.items() if wants and torch.is_grad_enabled())),
        ("columns of z", arrays["z"].shape[1]),
        ("attributes", tuple(kinds.items())),
        ("levels", repr(request.levels)),
        ("weights", "some" if "weights" in arrays else "none"),
        ("discrepancy", request.discrepancy.name),
        ("simplex", request.simplex),
        ("surrogate", (request.surrogate, request.temperature)),
        ("absent", request.absent),
        ("infeasible", request.infeasible),
    )


def _tables(ranks: Ranks, share: _Share, digests: list[int]) -> list[Labels]:
    """Labels of every rank, once all have the same settings. Both are sent only where some rank's are new."""
    if len(ranks.known) > 4096:
        ranks.known.clear()
    if any(digest not in ranks.known for digest in digests):  # which is so on all ranks, or on none
        ranks.known.update(zip(digests, ranks.from_each((share.settings, share.labels)), strict=True))
    told = [ranks.known[digest] for digest in digests]
    for rank, (settings, _) in enumerate(told):
        for (name, value), (_, other) in zip(told[0][0], settings, strict=True):
            if repr(value) != repr(other):
                raise RankError(
                    f"Ranks disagree on {name}: rank 0 has {value!r}, rank {rank} has {other!r}. Give every rank the "
                    "same settings; only the samples may differ."
                )
    return [labels for _, labels in told]


def _united(tables: list[Labels], share: _Share) -> Labels:
    """The labels of all ranks that have samples: in their own order where all have the same, otherwise sorted."""
    names = [key[-1] for key, column in share.columns.items() if isinstance(column, Column)]
    united: list[tuple[Label, ...] | None] = []
    for name, *parts in zip(names, *(tables or [share.labels]), strict=True):
        different = list(dict.fromkeys(parts))
        if len(different) > 1:
            kinds = {_kind(part) for part in different}
            if len(kinds) > 1:
                raise RankError(
                    f"Ranks have labels of different kinds in {name!r}: {', '.join(sorted(kinds))}. Give every rank "
                    "labels of one kind, such as words."
                )
            different = [sorted_labels({label for part in different for label in part or ()})]
        united.append(different[0])
    return tuple(united)


def _kind(labels: tuple[Label, ...] | None) -> str:
    """What kind of labels a column has, in words."""
    return "int" if labels is None else " and ".join(sorted({type(label).__name__ for label in labels}))


def _renumbered(rows: np.ndarray, own: Labels, united: Labels) -> np.ndarray:
    """Rows whose codes are those of the labels of all."""
    if own == united or not len(rows):
        return rows
    rows = rows.copy()
    for j, (before, after) in enumerate(zip(own, united, strict=True), start=rows.shape[1] - len(own)):
        if before is not None and before != after:
            place = {label: code for code, label in enumerate(after or ())}
            rows[:, j] = np.array([place[label] for label in before], dtype=np.int64)[rows[:, j]]
    return rows


def _project_all(
    z: Tensor,
    request: Request,
    share: _Share,
    rows: np.ndarray,
    labels: Labels,
    order: np.ndarray,
    mine: slice,
    ranks: Ranks,
    project: Callable[..., Solution],
) -> Solution:
    """Project the whole batch, whose samples are these rows, in this order; keep this rank's."""
    arrays, n, learning = share.unpack(rows), len(rows), torch.is_grad_enabled()
    inputs: list[tuple[Tensor, Tensor]] = []  # what wants gradients: of this rank, and of the whole batch

    def whole_of(name: str, own: Any) -> Tensor:
        tensor = torch.from_numpy(arrays[name][:, 0].copy())
        if learning and isinstance(own, Tensor) and own.requires_grad:
            inputs.append((own, tensor.requires_grad_()))
        return tensor

    targets = whole_of("targets", share.targets) if "targets" in arrays else None
    weights = arrays["weights"][:, 0] if "weights" in arrays else None
    known = iter(labels)
    columns: dict[Key, Column | SoftGroup] = {
        key: SoftGroup(arrays[key], column.labels)
        if isinstance(column, SoftGroup)
        else Column(column.name, arrays[key][:, 0].copy(), next(known))
        for key, column in share.columns.items()
    }
    system = bind_columns(request.rules, share.groupings, columns, n, weights, targets)
    request.refuse_absent(system)
    if not n:
        return project(z, system, share.box, request)
    box, stated = share.box, (share.box.lo_tensor, share.box.hi_tensor)
    tolerances = [getattr(constraint, "tolerance", None) for constraint in request.rules.constraints]
    common = [each for each in tolerances if isinstance(each, Tensor) and each.requires_grad]
    for name, own in zip(_SIDES, stated, strict=True):
        if name in arrays:
            side = whole_of(name, own)
            changed: Any = {name: side.detach().numpy(), f"{name}_tensor": None if own is None else side}
            box = replace(box, **changed)
        elif own is not None:
            common.append(own)
    outputs = torch.from_numpy(arrays["z"]).to(z.dtype)
    outputs = outputs if request.simplex else outputs[:, 0].contiguous()
    if learning and z.requires_grad:
        inputs.append((z, outputs.requires_grad_()))
    solution = project(outputs, system, box, request)
    whole, solution.value = solution.value, _own(solution.value.detach(), order, mine, z)
    if whole.requires_grad:
        everything = _Whole(whole, rows, order, mine, inputs, list({id(t): t for t in common}.values()), ranks)
        solution.value = _Own.apply(solution.value, everything, *(own for own, _ in inputs), *everything.common)
    return solution


def _own(values: Tensor, order: np.ndarray, mine: slice, like: Tensor) -> Tensor:
    """This rank's rows of what has a row for each sample, in its own order, and as the tensor they belong to is."""
    found = torch.empty_like(values)
    found[torch.from_numpy(order)] = values
    return found[mine].reshape(like.shape).to(like)


class _Whole:
    """A projected batch, and which part of it is this rank's."""

    def __init__(
        self,
        value: Tensor,  # of all samples, sorted: a function of the inputs
        rows: np.ndarray,
        order: np.ndarray,
        mine: slice,
        inputs: Sequence[tuple[Tensor, Tensor]],
        common: list[Tensor],  # inputs that every rank has a copy of
        ranks: Ranks,
    ):
        self.value, self.order, self.mine, self.inputs, self.common = value, order, mine, inputs, common
        self.ranks, self.call = ranks, ranks.calls
        self.ties = _ties(rows)  # samples that are equal in everything, and what is known of them
        self.known = np.concatenate([rows[self.ties], _as_words(value)[self.ties]], axis=1)

    def pull_back(self, gradient: Tensor) -> list[Tensor]:
        """Gradients of this rank's inputs, and of the common ones, given that of its output."""
        message = Message(f"backward of call {self.call}", _as_words(gradient).reshape(-1))
        given = np.concatenate(self.ranks.exchange(message)[0]).reshape(len(self.order), -1)
        order = self._ordered(given)
        upstream = torch.from_numpy(given[order].view(np.float64)).reshape(self.value.shape).to(self.value.dtype)
        everything = [whole for _, whole in self.inputs] + self.common
        found = torch.autograd.grad(
            self.value, everything, upstream, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        own = [_own(each, order, self.mine, own) for each, (own, _) in zip(found, self.inputs, strict=False)]
        # The copies' gradients add up to the whole.
        return own + [each / self.ranks.size for each in found[len(own) :]]

    def _ordered(self, given: np.ndarray) -> np.ndarray:
        """The order of the samples; those that are equal in everything else stand in that of their gradients."""
        order, tied = self.order.copy(), self.order[self.ties]
        places = np.lexsort(self.known.T[::-1])
        samples = np.lexsort(np.concatenate([self.known, given[tied]], axis=1).T[::-1])
        order[self.ties[places]] = tied[samples]
        return order


def _as_words(values: Tensor) -> np.ndarray:
    """(n, any) int64: the bits of numbers."""
    return _as_table(values.detach().cpu().double().numpy(), np.float64).view(np.int64)


def _as_table(values: np.ndarray, dtype: Any) -> np.ndarray:
    """(n, any) of what may also be (n,)."""
    return np.ascontiguousarray(values, dtype).reshape(len(values), values.shape[1] if values.ndim == 2 else 1)


class _Own(torch.autograd.Function):
    """This rank's part of a whole batch, as a function of the inputs."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, whole: _Whole, *inputs: Tensor) -> Tensor:
        ctx.whole = whole
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "Double backward over a process group is not available: use create_graph=False, or process_group=None."
            )
        return None, None, *ctx.whole.pull_back(gradient)
