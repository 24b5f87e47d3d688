"""One batch over several ranks: every rank gets all samples, projects them all, and keeps its own.

Samples are sorted by all that is known of them, so that the answer is the same to the bit however they are divided.
Backwards, every rank gets the gradients of all, and does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairlayer.binding.bounds import Box
from fairlayer.binding.conditions import Key
from fairlayer.binding.groups import Column, SoftGroup, sorted_labels
from fairlayer.binding.process_group import Message, Ranks, digest_of
from fairlayer.binding.system import as_numbers, bind_columns, read_columns
from fairlayer.constraints.plain_data import Label
from fairlayer.core.discrepancies import native_number
from fairlayer.errors import InputError, RankError
from fairlayer.request import Data, Request, read_targets, read_weights
from fairlayer.solution import Solution

Labels = tuple[tuple[Label, ...] | None, ...]  # of each column; None where its integers are the labels


class _Share(NamedTuple):
    """What a rank brings: its samples, one row of words each, and what has to be the same on all ranks."""

    words: np.ndarray  # (n, width) int64: floats as their bits, and labels as their codes
    labels: Labels
    settings: tuple[tuple[str, Hashable], ...]
    groupings: Any
    columns: dict[Key, Column | SoftGroup]
    box: Box
    per_sample: tuple[bool, bool]  # whether each bound is one number per sample
    weighted: bool
    residuals: bool
    targets: Any


def project_share(z: Tensor, request: Request, data: Data, ranks: Ranks, project: Callable[..., Solution]) -> Solution:
    """Project the samples of this rank, which with those of all others are one batch.

    project: what projects a whole batch, bound to its constraints.
    """
    share, failure = None, None
    try:
        share = _read(z, request, data)
    except Exception as error:
        failure = error
    words = np.zeros(0, dtype=np.int64) if share is None else share.words.reshape(-1)
    settings = () if share is None else share.settings
    found, digests = ranks.exchange(
        Message("projection", words, digest_of(repr((settings, share and share.labels))), failure)
    )
    assert share is not None  # otherwise all ranks have raised
    told = _told(ranks, share, digests)
    width = share.words.shape[1]
    each = [own.reshape(-1, width) for own in found]
    labels = _united([labels for (_, labels), own in zip(told, each, strict=True) if len(own)], share)
    rows = np.concatenate(
        [_renumbered(own, own_labels, labels) for own, (_, own_labels) in zip(each, told, strict=True)]
    )
    first = sum(map(len, each[: ranks.rank]))
    mine = slice(first, first + len(share.words))
    order = np.lexsort(rows.T[::-1]) if len(rows) else np.zeros(0, dtype=np.int64)
    return _project_all(z, request, ranks, share, rows[order], labels, order, mine, list(map(len, each)), project)


def _read(z: Tensor, request: Request, data: Data) -> _Share:
    request.check(z, data)
    rules, n, simplex = request.rules, len(z), request.simplex
    if not simplex and z.ndim == 2 and z.shape[1] != 1:
        raise InputError(
            f"z has shape {tuple(z.shape)}: over a process group, project each column by itself, z[:, j], or class "
            "probabilities with simplex=True."
        )
    if rules.matrices:
        raise InputError("Affine has a matrix over the outputs of one process: use it with process_group=None.")
    if native_number(request.discrepancy) is None:
        raise InputError(
            f"discrepancy {request.discrepancy.name!r} is not available over a process group: use one by its name, or "
            "process_group=None."
        )
    host = z.detach().cpu()
    if not bool(torch.isfinite(host).all()):
        position = tuple((~torch.isfinite(host)).nonzero()[0].tolist())
        at = ", ".join(map(str, position[:1] if z.ndim == 1 else position))
        raise InputError(f"z[{at}] is {float(host[position])}: outputs must be finite.")
    targets = None if data.targets is None else read_targets(data.targets, n)
    weights = None if data.weights is None else read_weights(data.weights, n)
    groupings, columns = read_columns(rules, n, data.groups, targets, data.features, request.levels)
    box = request.box(n, z.dtype)
    sides = (None, None) if request.bounds is None else request.bounds
    lo, hi = (side is not None and np.ndim(side) > 0 for side in sides)
    per_sample = (lo, hi)
    residuals = any(constraint.quantity == "residual" for constraint in rules.constraints)
    floats = [*host.double().numpy().reshape(n, z.shape[1] if simplex else 1).T]
    floats += [] if weights is None else [weights]
    floats += [as_numbers(targets)] if residuals else []
    floats += [side for side, per in zip((box.lo, box.hi), per_sample, strict=True) if per]
    firm = [column for column in columns.values() if isinstance(column, Column)]
    for soft in columns.values():
        floats += [*soft.probabilities.T] if isinstance(soft, SoftGroup) else []
    words = np.empty((n, len(floats) + len(firm)), dtype=np.int64)
    for j, values in enumerate(floats):
        words[:, j] = np.ascontiguousarray(values, dtype=np.float64).view(np.int64)
    for j, column in enumerate(firm):
        words[:, len(floats) + j] = column.values
    wanted = {
        "z": z.requires_grad,
        "tolerances": rules.wants_gradient,
        "bounds": box.wants_gradient,
        "targets": isinstance(targets, Tensor) and targets.requires_grad,
    }
    numbers = [
        "one per sample" if per else float(side[0]) for side, per in zip((box.lo, box.hi), per_sample, strict=True)
    ]
    settings = (
        ("constraints", rules.key),
        ("tolerances", tuple(map(float, rules.tolerances()))),
        ("dtype", str(z.dtype)),
        ("bounds", tuple(numbers)),
        ("gradients wanted of", tuple(name for name, wants in wanted.items() if wants and torch.is_grad_enabled())),
        ("columns", z.shape[1] if simplex else 1),
        ("attributes", tuple((key, getattr(column, "labels", None) if isinstance(column, SoftGroup) else None)
                             for key, column in columns.items())),
        ("levels", None if request.levels is None else repr(request.levels)),
        ("weights", "some" if weights is not None else "none"),
        ("discrepancy", request.discrepancy.name),
        ("surrogate", (request.surrogate, request.temperature)),
        ("absent", request.absent),
        ("infeasible", request.infeasible),
    )  # fmt: skip
    labels = tuple(column.labels for column in firm)
    return _Share(words, labels, settings, groupings, columns, box, per_sample, weights is not None, residuals, targets)


def _told(ranks: Ranks, share: _Share, digests: list[int]) -> list[tuple[Any, Labels]]:
    """Settings and labels of every rank, which are sent only where some rank does not know them yet."""
    if len(ranks.known) > 4096:
        ranks.known.clear()
    if any(digest not in ranks.known for digest in digests):
        ranks.known.update(zip(digests, ranks.from_each((share.settings, share.labels)), strict=True))
    told = [ranks.known[digest] for digest in digests]
    for rank, (settings, _) in enumerate(told):
        for (name, value), (_, other) in zip(told[0][0], settings, strict=True):
            if repr(value) != repr(other):
                raise RankError(
                    f"Ranks disagree on {name}: rank 0 has {value!r}, rank {rank} has {other!r}. Give every rank the "
                    "same settings; only the samples may differ."
                )
    return told


def _united(tables: list[Labels], share: _Share) -> Labels:
    """The labels of all ranks that have samples: in their own order where all have the same, otherwise sorted."""
    names = [key[-1] for key, column in share.columns.items() if isinstance(column, Column)]
    united: list[tuple[Label, ...] | None] = []
    for name, *parts in (
        zip(names, *tables, strict=True)
        if tables
        else [(name, own) for name, own in zip(names, share.labels, strict=True)]
    ):
        different = list(dict.fromkeys(parts))
        if len(different) == 1:
            united.append(different[0])
            continue
        kinds = {"whole numbers" if part is None else type(part[0]).__name__ for part in different if part != ()}
        if len(kinds) > 1:
            raise RankError(
                f"Ranks have labels of different kinds in {name!r}: {', '.join(sorted(kinds))}. Give every rank labels "
                "of one kind, such as words."
            )
        united.append(sorted_labels({label for part in different for label in part or ()}))
    return tuple(united)


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
    ranks: Ranks,
    share: _Share,
    rows: np.ndarray,
    labels: Labels,
    order: np.ndarray,
    mine: slice,
    counts: list[int],
    project: Callable[..., Solution],
) -> Solution:
    """Project the whole batch, whose samples are these rows, in this order; keep this rank's."""
    n, columns = len(rows), iter(np.ascontiguousarray(rows.T))
    width = z.shape[1] if request.simplex else 1
    outputs = np.stack([next(columns).view(np.float64) for _ in range(width)], axis=1)
    whole = torch.from_numpy(outputs if request.simplex else outputs[:, 0].copy()).to(z.dtype)
    weights = next(columns).view(np.float64) if share.weighted else None
    inputs: list[tuple[Tensor, Tensor]] = []  # what wants gradients: of this rank, and of the whole batch
    targets: Any = torch.from_numpy(next(columns).view(np.float64).copy()) if share.residuals else None
    own = share.targets
    if share.residuals and isinstance(own, Tensor) and own.requires_grad:
        inputs.append((own, targets.requires_grad_()))
    sides, tensors = [], []
    for side, tensor, per in zip(
        (share.box.lo, share.box.hi), (share.box.lo_tensor, share.box.hi_tensor), share.per_sample, strict=True
    ):
        sides.append(next(columns).view(np.float64).copy() if per else side)
        tensors.append(tensor)
        if tensor is not None and per:
            whole_side = torch.from_numpy(sides[-1].copy()).requires_grad_()
            tensors[-1] = whole_side
            inputs.append((tensor, whole_side))
    lowest, highest = float(sides[0].min(initial=np.inf)), float(sides[1].max(initial=-np.inf))
    box = replace(share.box, lo=sides[0], hi=sides[1], lowest=lowest, highest=highest, lo_tensor=tensors[0],
                  hi_tensor=tensors[1])  # fmt: skip
    read: dict[Key, Column | SoftGroup] = {}
    for key, column in share.columns.items():
        if isinstance(column, SoftGroup):
            read[key] = SoftGroup(
                np.stack([next(columns).view(np.float64) for _ in column.labels], axis=1), column.labels
            )
    known = iter(labels)
    for key, column in share.columns.items():
        if isinstance(column, Column):
            read[key] = Column(column.name, next(columns), next(known))
    read = {key: read[key] for key in share.columns}
    system = bind_columns(request.rules, share.groupings, read, n, weights, targets)
    request.refuse_absent(system)
    if z.requires_grad and torch.is_grad_enabled():
        inputs.insert(0, (z, whole.requires_grad_()))
    if not n:
        none = np.zeros(len(system.rows.offset))
        return Solution(z.clone(), system.view, none, none, none[:0])
    solution = project(whole, system, box, request)
    common = [
        limit
        for constraint in request.rules.constraints
        for limit in (getattr(constraint, "tolerance", None),)
        if isinstance(limit, Tensor) and limit.requires_grad
    ]
    common += [side for side, per in zip(tensors, share.per_sample, strict=True) if side is not None and not per]
    part = _Part(solution.value, inputs, common, order, mine, counts, ranks)
    value = part.own(solution.value.detach()).reshape(z.shape).to(z.device)
    if solution.value.requires_grad:
        value = _OfAll.apply(value, part, *(given for given, _ in inputs), *common)
    solution.value = value
    return solution


class _Part(NamedTuple):
    """This rank's part of a whole batch."""

    value: Tensor  # of all samples, sorted: a function of the inputs
    inputs: list[tuple[Tensor, Tensor]]
    common: list[Tensor]  # inputs that every rank has a copy of
    order: np.ndarray
    mine: slice
    counts: list[int]
    ranks: Ranks

    def own(self, values: Tensor) -> Tensor:
        """This rank's rows of what has a row for each sample, in its own order."""
        found = torch.empty_like(values)
        found[torch.from_numpy(self.order)] = values
        return found[self.mine]


class _OfAll(torch.autograd.Function):
    """A part of a whole batch. Backwards, too, every rank does the whole, given the gradients of all."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, part: _Part, *inputs: Tensor) -> Tensor:
        ctx.part = part
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "Double backward over a process group is not available: use create_graph=False, or process_group=None."
            )
        part: _Part = ctx.part
        words = np.ascontiguousarray(gradient.detach().cpu().double().numpy()).reshape(-1).view(np.int64)
        found, _ = part.ranks.exchange(Message("backward", words))
        upstream = np.concatenate(found).view(np.float64).reshape(len(part.order), -1)[part.order]
        given = torch.from_numpy(upstream).reshape(part.value.shape).to(part.value.dtype)
        everyones = [whole for _, whole in part.inputs] + part.common
        gradients = torch.autograd.grad(part.value, everyones, given, retain_graph=True)
        own = [
            part.own(of_all).reshape(mine.shape).to(mine)
            for (mine, _), of_all in zip(part.inputs, gradients, strict=False)
        ]
        # Every rank has a copy of what is common: their gradients add up to the whole.
        shared = [of_all / part.ranks.size for of_all in gradients[len(own) :]]
        return None, None, *own, *shared
