"""Choosing the strength of a penalty: feasibility first, then one of three rules.

The paper states one rule and its experiments use three, depending on the data set; which one was used matters when
results are compared, so each has a name here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fairlayer.errors import InputError

Rule = Literal["smallest", "best", "descend"]
Fallback = Literal["loss", "gap"]


@dataclass(frozen=True)
class Trial:
    """One strength and what came of it."""

    strength: float
    loss: float
    gap: float
    satisfied: bool


@dataclass(frozen=True)
class Selection:
    """The strength chosen, whether it satisfies the constraints, and all that was tried; `str()` is a table."""

    strength: float
    satisfied: bool
    trials: tuple[Trial, ...]

    def __str__(self) -> str:
        lines = [f"{'strength':>12} {'loss':>12} {'gap':>12}  satisfied"]
        for trial in self.trials:
            chosen = "  <- chosen" if trial.strength == self.strength else ""
            verdict = "yes" if trial.satisfied else "no"
            lines.append(f"{trial.strength:>12g} {trial.loss:>12.6g} {trial.gap:>12.6g}  {verdict}{chosen}")
        return "\n".join(lines)


def select_strength(
    attempt: Callable[[float], Any],
    grid: Iterable[float],
    *,
    rule: Rule = "smallest",
    fallback: Fallback = "loss",
    slack: float = 0.0,
    lazy: bool = False,
) -> Selection:
    """Try strengths and choose one.

    attempt: trains with a strength and returns an `Evaluation`, or anything with `loss`, `gap` and `excess`.
    rule: "smallest": the smallest strength that satisfies the constraints (the paper's); "best": of those that do, the
    one with the lowest loss; "descend": from the largest down, the last before the first that does not.
    fallback: where none satisfies them, the one with the lowest loss, or with the smallest gap.
    slack: excess up to which constraints count as satisfied. lazy: with "smallest", stop at the first that satisfies.
    """
    strengths = sorted({float(strength) for strength in grid})
    if not strengths or strengths[0] < 0:
        raise InputError(f"grid must hold strengths of at least 0; got {strengths}.")
    if rule not in get_args(Rule):
        raise InputError(f"rule must be one of {get_args(Rule)}; got {rule!r}.")
    trials: list[Trial] = []
    for strength in reversed(strengths) if rule == "descend" else strengths:
        outcome = attempt(strength)
        trial = Trial(strength, float(outcome.loss), float(outcome.gap), bool(outcome.excess <= slack))
        trials.append(trial)
        if (rule == "descend" and not trial.satisfied) or (lazy and rule == "smallest" and trial.satisfied):
            break
    chosen = _choose(trials, rule, fallback)
    return Selection(chosen.strength, chosen.satisfied, tuple(sorted(trials, key=lambda trial: trial.strength)))


def _choose(trials: Sequence[Trial], rule: Rule, fallback: Fallback) -> Trial:
    feasible = [trial for trial in trials if trial.satisfied]
    if not feasible:
        return min(trials, key=lambda trial: trial.loss if fallback == "loss" else trial.gap)
    return min(feasible, key=lambda trial: trial.loss if rule == "best" else trial.strength)
