"""How ranks begin a projection together: settings compared, labels united, the first sums taken, in one exchange.

Each rank reads its own samples. Then one exchange carries a header of every rank (a digest of its settings, a digest of
its labels, the extent of its outputs) and, in the cells of the last batch, what it has. Of few samples on few ranks
that is the samples themselves: every rank then takes the sums of all, and the solve needs no other exchange. Otherwise
it is counts and the first sums. Both are good where labels are as they were, as a rule; if they are not, a second
exchange carries sums in the cells that were agreed on. The first has the same size whatever the settings, so that ranks
that disagree find out. Sums are whole numbers, so nothing of this shows in the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairlayer.arrays import as_numpy
from fairlayer.binding.bounds import Box
from fairlayer.binding.cells import Levels, counted
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.exact_sums import LIMBS, PRODUCT_LIMBS, accumulate, carry, round_sums
from fairlayer.binding.process_group import Ranks
from fairlayer.binding.shared_labels import digest_of, digits_in, met_labels, moved, place_of, shared_levels
from fairlayer.binding.system import System, as_numbers, bind_plan, cell_plan
from fairlayer.errors import InputError, RankError
from fairlayer.solve.discrepancy import Discrepancy, Logits, check_domain, domain_of
from fairlayer.solve.feasibility import common_extreme, weighted_bounds
from fairlayer.solve.part import Part, Settings
from fairlayer.solve.shares import LoopShare, Share, Sizes, TensorShare, sizes_of
from fairlayer.solve.windows import WIDTH, bottom_below

# Places in the header of a rank.
_SETTINGS, _LABELS, _GUESS, _ROWS, _FAILED, _SAMPLES = range(6)
_LEAST, _GREATEST, _LARGEST, _HEAVIEST, _LOWEST, _HIGHEST = range(6, 12)
_HEADER = 12
_ROOM = 2048  # words for counts and sums that are sent along with the headers
_ROOM_OF_FEW = 4096  # the same for few ranks, which may send their samples
_FIRST_BOTTOM = -200  # of the windows sent along, good for numbers from 2^-60 to 2^60
_MODERATE = 2.0**60
_NONE = np.empty(0)


@lru_cache(maxsize=256)
def _digest(settings: Settings) -> int:
    return digest_of(repr(settings))


class Held:
    """The samples whose sums a rank takes: its own, or those of all ranks where they were sent along.

    cell: of each in the whole batch; rows: all that is known of them, rank by rank, where they are those of all.
    """

    def __init__(self, part: Part, cell: Any, rows: np.ndarray | None = None):
        self.part, self.cell, self.rows = part, cell, rows

    @cached_property
    def share(self) -> Share:
        """Who takes the sums."""
        part = self.part
        return make_share(part.z, self.cell, part.weights, part.box, part.discrepancy, part.compiled)

    def total(self, ranks: Ranks, words: np.ndarray) -> np.ndarray:
        """Sums over all ranks of what was found in these samples."""
        return ranks.total(words) if self.rows is None else words


class _Draft(NamedTuple):
    """What a rank sent along: its samples in the cells of the last batch."""

    levels: Levels
    held: Held


class Whole(NamedTuple):
    """What is known of the whole batch once all ranks have spoken."""

    part: Part
    rules: ConstraintSet
    levels: Levels
    cell: Any  # (n,) of this rank's samples
    system: System | None  # weights and targets of this rank's samples, counts and rows of all; None of soft groups
    held: Held
    counts: list[int]  # samples of every rank
    mine: slice  # of all samples, rank by rank
    sums: np.ndarray  # (3, G, WIDTH) windows of the outputs without a shift
    bottoms: tuple[int, int]  # of outputs and of slopes in these
    least: np.ndarray  # (G,) what each cell sum can be within the bounds
    most: np.ndarray
    extent: tuple[float, float]  # of z
    limits: tuple[float, float]  # the lowest and the highest bound
    largest: float  # absolute value of an output within its bounds
    heaviest: float  # weight


def open_batch(ranks: Ranks, rules: ConstraintSet, read: Callable[[], Part]) -> Whole:
    """Read this rank's samples and find out about the batch they are a part of.

    Whatever goes wrong on one rank is an error on all.
    """
    part, failure, draft = None, None, None
    try:
        part = read()
        words, draft = _first_words(ranks, part)
    except Exception as error:
        failure, words = error, _blank(ranks)
        words[ranks.rank * _HEADER + _FAILED] = 1
    parts, heads_end = ranks.parts(words), ranks.size * _HEADER
    heads = parts[:, :heads_end].sum(axis=0).reshape(ranks.size, _HEADER)
    if part is None or failure is not None or heads[:, _FAILED].any():
        raise _failed(ranks, failure)
    if len(set(heads[:, _SETTINGS].tolist())) > 1:
        raise _disagreement(ranks.from_each({name: repr(value) for name, value in part.settings}))
    return _agreed(ranks, rules, part, draft, heads, parts[:, heads_end:])


def _room(ranks: Ranks) -> int:
    """Words beside the headers in the first exchange."""
    return _ROOM_OF_FEW if ranks.few else _ROOM


def _blank(ranks: Ranks) -> np.ndarray:
    return np.zeros(ranks.size * _HEADER + _room(ranks), dtype=np.int64)


def _first_words(ranks: Ranks, part: Part) -> tuple[np.ndarray, _Draft | None]:
    """This rank's header; and its samples or their sums, in the cells of the last batch with these settings."""
    words = _blank(ranks)
    head, body = words[ranks.rank * _HEADER :][:_HEADER], words[ranks.size * _HEADER :]
    head[_SETTINGS] = settings = _digest(part.settings)
    head[_LABELS] = met_labels(part.cells.levels)[1]
    head[_SAMPLES] = len(part.z)
    head[_LEAST:].view(np.float64)[:] = extents = _extents(part)
    guess = ranks.labels.last.get(settings)
    held = None if guess is None else _placed(part, guess.levels)
    if guess is None or held is None:
        return words, None
    layout, size = _Layout(part), _size(guess.levels)
    if guess.few and ranks.few and len(part.z) * part.width <= len(body):
        part.put_rows(held.cell, _rows_in(body, len(part.z), part.width))
        head[_ROWS] = 1
    elif size * layout.width <= len(body):
        sizes = sizes_of(part.discrepancy, extents[_LARGEST - _LEAST], extents[_HEAVIEST - _LEAST])
        sums = layout.fill(held, size, sizes, (_FIRST_BOTTOM, _FIRST_BOTTOM))
        body[: sums.size] = sums.reshape(-1)
    else:
        return words, None
    head[_GUESS] = guess.digest
    return words, _Draft(guess.levels, held)


def _agreed(
    ranks: Ranks, rules: ConstraintSet, part: Part, draft: _Draft | None, heads: np.ndarray, sent: np.ndarray
) -> Whole:
    """The whole batch, of headers that agree. sent: what came along with them, in parts that add up."""
    own, _ = met_labels(part.cells.levels)
    labels = ranks.labels.unite(own, heads[:, _LABELS].tolist(), ranks.from_each)

    def occupied() -> np.ndarray:
        return digits_in(part.cells.levels, labels)[part.cells.samples > 0]

    levels = shared_levels(labels, occupied, ranks.from_each)
    counts = heads[:, _SAMPLES].tolist()
    few = ranks.few and max(counts) * part.width <= _room(ranks)
    ranks.labels.remember(int(heads[0, _SETTINGS]), levels, few)

    every = heads.view(np.float64).tolist()
    some = [numbers for numbers, count in zip(every, counts, strict=True) if count]
    by_place = list(zip(*some, strict=True)) or [(0.0,)] * _HEADER
    least, lowest = min(by_place[_LEAST]), min(by_place[_LOWEST])
    greatest, highest, largest, heaviest = (max(by_place[at]) for at in (_GREATEST, _HIGHEST, _LARGEST, _HEAVIEST))
    bottoms = (_FIRST_BOTTOM, _FIRST_BOTTOM)
    sizes = sizes_of(part.discrepancy, largest, heaviest)
    moderate = all(1.0 / _MODERATE <= (size or 1.0) <= _MODERATE for size in sizes)
    if not moderate:
        bottoms = bottom_below(sizes[0]), bottom_below(sizes[1])

    size, layout = _size(levels), _Layout(part)
    drafted = draft.held if draft is not None and draft.levels == levels else None
    held = drafted or _placed(part, levels)
    assert held is not None  # the union has the labels of every rank
    cell = held.cell
    as_guessed = drafted is not None and len(set(heads[:, _GUESS].tolist())) == 1
    if as_guessed and heads[:, _ROWS].all():
        rows = np.concatenate([_rows_in(words, n, part.width) for words, n in zip(sent, counts, strict=True)])
        held = Held(*part.with_rows(rows), rows)
        body = layout.fill(held, size, sizes, bottoms)
    elif as_guessed and moderate and not heads[:, _ROWS].any():
        body = sent[:, : size * layout.width].sum(axis=0).reshape(size, layout.width)
    else:
        body = ranks.total(layout.fill(held, size, sizes, bottoms))

    count = body[:, 0].astype(np.float64)
    weight = count if part.weights is None else layout.totals(body, "weight")[0]
    targets = layout.totals(body, "targets") if "targets" in layout.at else None
    system = None
    if not part.soft:
        plan = cell_plan(rules, part.groupings, part.keys, levels, size)
        system = bind_plan(plan, rules, cell, count, weight, part.weights, part.targets, targets)
    return Whole(
        part,
        rules,
        levels,
        cell,
        system,
        held,
        counts,
        slice(sum(counts[: ranks.rank]), sum(counts[: ranks.rank + 1])),
        np.ascontiguousarray(layout.of(body, "sums").reshape(size, 0 if part.gathers else 3, WIDTH).transpose(1, 0, 2)),
        bottoms,
        layout.extreme(body, "least", weight, lowest, -math.inf),
        layout.extreme(body, "most", weight, highest, math.inf),
        (least, greatest),
        (lowest, highest),
        largest,
        heaviest,
    )


def _rows_in(body: np.ndarray, n: int, width: int) -> np.ndarray:
    """The words of a rank that are rows of its samples."""
    return body[: n * width].view(np.float64).reshape(n, width)


def _placed(part: Part, levels: Levels) -> Held | None:
    """The samples of a rank in the cells of the whole batch; None where these lack a label of theirs."""
    place = place_of(part.cells.levels, levels)
    return None if place is None else Held(part, moved(part.cells.cell, place))


def make_share(
    z: Tensor, cell: Any, weights: np.ndarray | None, box: Box, discrepancy: Discrepancy, compiled: bool
) -> Share:
    """Samples, to be summed by compiled loops or in tensor operations."""
    weights = _NONE if weights is None else weights
    if compiled:
        return LoopShare(z, as_numpy(cell).astype(np.int32, copy=False), weights, box, discrepancy)
    return TensorShare(z, cell, weights, box, discrepancy)


class _Layout:
    """What is sent of each cell, one after the other: a count, the first sums, and what the settings ask for."""

    def __init__(self, part: Part):
        weighted = part.weights is not None
        widths = {"count": 1, "sums": 0 if part.gathers else 3 * WIDTH}
        if weighted:
            widths["weight"] = LIMBS
        if part.has_residuals and not part.soft:
            widths["targets"] = PRODUCT_LIMBS if weighted else LIMBS
        for name, per_sample in zip(("least", "most"), part.sides, strict=True):
            if per_sample:
                widths[name] = 1 + LIMBS  # how many are infinite, and the sum of the rest
        self.at: dict[str, slice] = {}
        self.width = 0
        for name, width in widths.items():
            self.at[name] = slice(self.width, self.width + width)
            self.width += width

    def of(self, body: np.ndarray, name: str) -> np.ndarray:
        """The words of one kind."""
        return body[:, self.at[name]]

    def fill(self, held: Held, size: int, sizes: Sizes, bottoms: tuple[int, int]) -> np.ndarray:
        """(size, width) counts and sums of samples, whose cells are numbered as in the whole batch."""
        part, index = held.part, as_numpy(held.cell).astype(np.int32, copy=False)
        body = np.zeros((size, self.width), dtype=np.int64)
        body[:, 0] = counted(index, size)
        if not part.gathers:
            windows = held.share.sums(np.zeros(size), sizes, bottoms, False, True)
            self.of(body, "sums")[:] = windows.transpose(1, 0, 2).reshape(size, 3 * WIDTH)
        weights = _NONE if part.weights is None else part.weights
        if "weight" in self.at:
            self._add(body, "weight", weights, index, _NONE)
        if "targets" in self.at:
            self._add(body, "targets", as_numbers(part.targets), index, weights)
        for name, side in (("least", part.inside.lo), ("most", part.inside.hi)) if any(part.sides) else ():
            if name in self.at:
                values = weighted_bounds(side, weights)
                finite = np.isfinite(values)
                self._add(body, name, np.where(finite, values, 0.0), index, _NONE)
                body[:, self.at[name].start] = np.bincount(index, weights=~finite, minlength=size)
        return body

    def _add(self, body: np.ndarray, name: str, values: np.ndarray, cell: np.ndarray, weights: np.ndarray) -> None:
        limbs = np.zeros((len(body), PRODUCT_LIMBS if len(weights) else LIMBS), dtype=np.int64)
        accumulate(values, cell, weights, limbs)
        carry(limbs)
        self.of(body, name)[:, -limbs.shape[1] :] = limbs

    def totals(self, body: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Sums of the cells, each rounded once, and how far they may be off."""
        sums, error = np.empty(len(body)), np.empty(len(body))
        words = self.of(body, name)
        width = LIMBS if words.shape[1] <= LIMBS + 1 else PRODUCT_LIMBS
        round_sums(np.ascontiguousarray(words[:, -width:]), sums, error)
        return sums, error

    def extreme(self, body: np.ndarray, name: str, weight: np.ndarray, bound: float, infinite: float) -> np.ndarray:
        """(G,) the least or the most that cell sums can be."""
        if name not in self.at:
            return common_extreme(weight, bound)
        return np.where(self.of(body, name)[:, 0] > 0, infinite, self.totals(body, name)[0])


def _size(levels: Levels) -> int:
    """How many cells there are."""
    if levels.digits is not None:
        return len(levels.digit_table())
    return math.prod(len(column) for column in levels.labels)


def _extents(part: Part) -> tuple[float, ...]:
    """Of this rank's samples: the extent of z, the largest output and weight, the extent of the bounds."""
    z, box = part.z, part.inside
    if not len(z):
        return 0.0, 0.0, 0.0, 0.0, math.inf, -math.inf
    if z.ndim == 2:  # class probabilities, which were checked when they were read, and of which no sums are taken here
        return 0.0, 1.0, 1.0, 1.0, box.lowest, box.highest
    exact = z.numpy() if part.compiled else z.double().cpu().numpy()
    least, greatest = float(exact.min()), float(exact.max())
    if not math.isfinite(least) or not math.isfinite(greatest):
        position = int((~torch.isfinite(z)).nonzero()[0, 0])
        raise InputError(f"z[{position}] is {float(z[position])}: outputs must be finite.")
    low, high = domain_of(part.discrepancy)
    if not low < least <= greatest < high:
        check_domain(exact, part.discrepancy)
    if isinstance(part.discrepancy, Logits):  # whose outputs are not of the size of z
        largest = box.highest
    elif any(part.sides):
        largest = float(np.abs(np.clip(exact.astype(np.float64), *box.wide())).max())
    else:
        largest = max(abs(min(max(end, box.lowest), box.highest)) for end in (least, greatest))
    heaviest = 1.0 if part.weights is None else float(part.weights.max())
    return least, greatest, largest, heaviest, box.lowest, box.highest


def _failed(ranks: Ranks, failure: Exception | None) -> Exception:
    """This rank's own error, or what another says of its."""
    said = ranks.from_each(None if failure is None else f"{type(failure).__name__}: {failure}")
    if failure is not None:
        return failure
    where, what = next((rank, text) for rank, text in enumerate(said) if text is not None)
    return RankError(f"Rank {where} cannot take part, and so no rank can. It says: {what}")


def _disagreement(settings: list[dict[str, str]]) -> RankError:
    """What was set otherwise, and where."""
    for rank, other in enumerate(settings):
        for name, value in settings[0].items():
            if other.get(name) != value:
                return RankError(
                    f"Ranks disagree on {name}: rank 0 has {value}, rank {rank} has {other.get(name)}. Give every rank "
                    "the same settings; only the samples may differ."
                )
    return RankError("Ranks disagree on their settings: give every rank the same; only the samples may differ.")
