"""The projection onto rates: the nearest scores whose decisions are nearly as often yes in every group."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairlayer.arrays import as_numpy
from fairlayer.constraints.constraint import as_written
from fairlayer.decisions.branching import Best, best_counts, least_excess
from fairlayer.decisions.parts import Comparison, Part, exact_rates, split
from fairlayer.decisions.scores import Turns, binding_rows, follow, read_turns, threshold_in, write_scores
from fairlayer.errors import InfeasibleError, InputError, rounded_down, rounded_up
from fairlayer.problem.bounds import Box
from fairlayer.problem.constraint_set import ConstraintSet
from fairlayer.problem.rows import RATIO
from fairlayer.problem.system import System
from fairlayer.solution import Solution


def read_threshold(rules: ConstraintSet) -> float:
    """The threshold that all constraints share; refuse lists that are not about decisions alone."""
    others = [type(c).__name__ for c in rules.constraints if c.quantity != "decision"]
    names = [type(c).__name__ for c in rules.constraints if c.quantity == "decision"]
    if others:
        raise InputError(
            f"constraints mixes {names[0]}, which is about decisions, with {others[0]}, which is about means: no "
            f"nearest output of both can be found exactly. Project onto {others[0]} first and onto {names[0]} after "
            "it, and measure the first again."
        )
    found = sorted({float(c.threshold) for c in rules.constraints})  # type: ignore[attr-defined]
    if len(found) > 1:
        raise InputError(f"constraints have different thresholds, {found}: all must decide at the same one.")
    if any(isinstance(tolerance, Tensor) for tolerance in rules.tolerances()):
        raise InputError("the tolerance of a decision must be a number: gradients do not flow to it.")
    return found[0]


def project_decisions(
    z: Tensor,  # (n,)
    system: System,
    rules: ConstraintSet,
    box: Box,
    relax: bool = False,
    surrogate: str | None = None,
    temperature: float = 0.1,
) -> Solution:
    """Project scores. relax: where bounds leave no answer, take the least excess instead of raising.

    Where z requires a gradient, overlapping attributes are solved by rounding alone: the rates hold as exactly, and the
    distance to the optimum is bounded.
    """
    threshold = read_threshold(rules)
    if any(family.member.ndim == 2 for family in system.view.plan.families):
        raise InputError("groups holds probabilities: decisions are counted by group, so pass labels.")
    learning = torch.is_grad_enabled() and z.requires_grad
    turns = read_turns(z, box, threshold)
    answer = _solve(turns, system, relax, quick=learning)
    moved = answer.decided != turns.yes
    value = write_scores(z, box, moved, turns.target)
    at, _ = threshold_in(threshold, z.dtype)
    rates, missed = measure_rates(value.detach().double().cpu().numpy() >= at, system)
    scores = z.detach().double().cpu().numpy()
    ties = sum(part.ties(scores, count) for part, count in answer.parts)
    if surrogate is not None and learning:
        rows = binding_rows(system, turns.yes, answer.decided, rates)
        value = follow(z, value, rows, system.weights, at, temperature)
    elif not torch.is_grad_enabled():
        value = value.detach()
    return Solution(value, system.view, rates, np.zeros(len(rates)), missed, answer.excess, answer.gap, ties)


def fit_thresholds(z: Tensor, system: System, rules: ConstraintSet, box: Box) -> np.ndarray:
    """(G,) from which raw score on each cell says yes in the nearest batch; the stated threshold where nobody moved."""
    threshold, scores = read_threshold(rules), z.double().numpy()
    answer = _solve(read_turns(z, box, threshold), system, relax=False, quick=False)
    of_cell = np.full(len(system.weight), threshold)
    for part, count in answer.parts:
        found = part.thresholds(scores, count)[part.of_cell]
        turned = (part.of_cell >= 0) & ~np.isnan(found)
        of_cell[turned] = found[turned]
    return of_cell


def measure_rates(yes: np.ndarray, system: System) -> tuple[np.ndarray, np.ndarray]:
    """(K,) rates of decisions, and (F,) by how much each family of rows is missed, its sign exact."""
    cell, count = as_numpy(system.cell).astype(np.int64), yes.astype(np.int64)
    everyone: np.ndarray = np.ones_like(count)
    weights: np.ndarray | None = system.weights
    if not len(system.weights):  # then cells are all that matters
        size, weights = len(system.weight), None
        count, everyone, cell = (
            np.bincount(cell[yes], minlength=size),
            np.bincount(cell, minlength=size),
            np.arange(size),
        )
    rates, missed = [], []
    for comparison, family in zip(_comparisons(system), system.view.plan.families, strict=True):
        of_group = exact_rates(comparison.member[cell], len(family.groups), count, everyone, weights)
        present = [rate for rate in of_group if rate is not None]
        rates += [float(rate or 0) for rate in of_group]
        missed.append(float(comparison.excess(present)) if len(present) > 1 else -np.inf)
    return np.array(rates), np.array(missed)


def _comparisons(system: System) -> list[Comparison]:
    """What is compared, family by family; tolerances and ratios mean the decimals that were written."""
    listed = []
    for family, tolerance in zip(system.view.plan.families, system.stated[1].tolist(), strict=True):
        ratio = family.kind == RATIO
        member = np.where(system.weight > 0, family.member, -1)
        listed.append(Comparison(member, as_written(family.coefficient if ratio else tolerance), ratio))
    return listed


class _Answer(NamedTuple):
    decided: np.ndarray  # (n,)
    parts: list[tuple[Part, np.ndarray]]  # with the yeses of each unit
    gap: float = 0.0  # to the optimum
    excess: float = 0.0  # by which the tolerances had to grow


def _solve(turns: Turns, system: System, relax: bool, quick: bool) -> _Answer:
    """Decisions that keep every comparison, the nearest ones that are found."""
    if (measure_rates(turns.yes, system)[1] <= 0.0).all():
        return _Answer(turns.yes, [])
    stated, weights = _comparisons(system), system.weights if len(system.weights) else np.ones(1)
    several = [f for f, one in enumerate(stated) if len(np.unique(one.member[one.member >= 0])) > 1]
    differ = weights if weights.min() < weights.max() else None
    cell, excess, proved = as_numpy(system.cell).astype(np.int64), Fraction(0), True
    found: list[tuple[Part, Best]] = []
    smallest: dict[int, Comparison] = {}
    for part in split([stated[f] for f in several], turns.change, turns.yes, cell, differ):
        best = best_counts(part, quick=quick)
        if best.yeses is None:
            known, wider, least = least_excess(part)
            smallest |= {several[at]: one.wider(wider) for at, one in zip(part.position, part.comparisons, strict=True)}
            proved = proved and least and best.least == np.inf
            best, excess = best._replace(yeses=known), max(excess, wider)
        found.append((part, best))
    if smallest and not relax:
        raise _infeasible(system, smallest, excess, proved)
    decided, parts, gap = turns.yes.copy(), [], 0.0
    for part, best in found:
        if excess:  # which all comparisons may make use of
            best = best_counts(part.wider(excess), best.yeses, quick)
        assert best.yeses is not None
        part.decide(decided, best.yeses)
        parts.append((part, best.yeses))
        gap += best.cost - best.least
    scale = turns.unit * (1.0 if differ is not None else float(weights[0]))
    bound = max(gap * scale, 5e-324) if gap else 0.0  # even where squared scores are beyond the range of floats
    return _Answer(decided, parts, bound, rounded_up(excess))


def _infeasible(system: System, smallest: dict[int, Comparison], excess: Fraction, proved: bool) -> InfeasibleError:
    """The error that names the rows of families that cannot be kept, and limits that can."""
    view = system.view
    limits = {f: 1.0 - rounded_down(c.limit) if c.ratio else rounded_up(c.limit) for f, c in smallest.items()}
    listed = [(name, limits[f]) for name, f in zip(view.names, view.family.tolist(), strict=True) if f in limits]
    names, least = zip(*listed, strict=True)
    return InfeasibleError(names, rounded_up(excess), least, all(c.ratio for c in smallest.values()), proved)
