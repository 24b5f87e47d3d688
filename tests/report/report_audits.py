"""Audits to write reports of: an ordinary one, one with hostile names, a crowded one, one with a single group."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np

from fairlayer import MeanParity, project
from fairlayer.audit import Audit, Verdict, audit

SCRIPT = "<script>window.hacked = true</script>"
IMAGE = '<img src=x onerror="window.hacked = true">'
ENTITY = "&lt;b&gt; & co"
HOSTILE = (
    SCRIPT,
    IMAGE,
    ENTITY,
    "'\"><svg onload=alert(1)>",
    "$x_1$ and `code` | **bold** [link](javascript:alert(1))",
    "{{ 7 * 7 }} {% raw %}",
    "line\nbreak\tand tab",
    "a very long name without end " * 8,
    "unbroken" * 30,
    "\u202eright to left \U0001f600",
)


def samples(labels: tuple[str, ...], n: int = 3000, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores in [0, 1], targets that are 0 and 1, and labels; each label has at least two samples."""
    random = np.random.default_rng(seed)
    position = np.concatenate([np.repeat(np.arange(len(labels)), 2), random.integers(0, len(labels), n)])
    target = (random.random(len(position)) < 0.25 + 0.3 * position / len(labels)).astype(float)
    score = 1.0 / (1.0 + np.exp(-(random.normal(0.0, 1.2, len(position)) + 1.8 * target - 1.4)))
    return score, target, np.array(labels, dtype=object)[position]


@cache
def ordinary() -> Audit:
    """Projected scores with everything that a report can show."""
    score, target, sex = samples(("female", "male"))
    race = samples(("white", "black", "asian", "other"), n=len(score) - 8, seed=1)[2]
    groups = {"sex": sex, "race": race}
    fair = project(score, groups, [MeanParity(0.03)], bounds=(0.0, 1.0)).value
    epochs = np.arange(1, 31)
    history = {
        f"{part}_{what}": (high * np.exp(-epochs / 8) + low).tolist()
        for part, low in (("train", 0.1), ("validation", 0.12))
        for what, high in (("loss", 0.4), ("gap", 0.1))
    }
    return audit(fair, groups, [MeanParity(0.03)], target, raw=score, history=history)


@cache
def hostile() -> Audit:
    """Names of groups, columns, constraints, methods and metrics that are markup of every kind."""
    score, target, label = samples(HOSTILE)
    other = samples(("x", SCRIPT), n=len(score) - 4, seed=2)[2]
    groups = {IMAGE: label, "b": other}
    found = audit(score, groups, [MeanParity(0.02, name=SCRIPT)], target, raw=score**1.1)
    return replace(
        found,
        notes=(*found.notes, SCRIPT),
        not_compared=(SCRIPT,),
        history={SCRIPT: (1.0, 0.5, 0.25), f"train_{IMAGE}": (1.0, math.nan, 0.5)},
    )


@cache
def crowded() -> Audit:
    """Forty groups, some of two samples, and an intersection."""
    score, target, label = samples(tuple(f"district {k}" for k in range(40)), n=6000)
    sex = samples(("f", "m"), n=len(score) - 4, seed=3)[2]
    return audit(score, {"district": label, "sex": sex}, [MeanParity(0.05)], target)


@cache
def alone() -> Audit:
    """A single group: nothing to compare."""
    score, _, label = samples(("only",), n=300)
    return audit(score, {"group": label}, [MeanParity(0.05)])


@cache
def few() -> Audit:
    """Two groups of three samples, exactly alike: fair in these data, undecided for the population."""
    score = np.tile([0.2, 0.5, 0.8], 2)
    return audit(score, {"sex": np.repeat(["f", "m"], 3)}, [MeanParity(0.05)], bounds=(0.0, 1.0))


@cache
def unfair() -> Audit:
    """Two large groups far apart."""
    score = np.concatenate([np.linspace(0.0, 0.4, 500), np.linspace(0.6, 1.0, 500)])
    return audit(score, {"sex": np.repeat(["f", "m"], 500)}, [MeanParity(0.05)], bounds=(0.0, 1.0))


@cache
def incomplete() -> Audit:
    """Numbers that are missing wherever they can be, as in a result read back from JSON."""
    found = ordinary()
    nan = math.nan
    finding = replace(found.findings[0], interval=None, verdict=Verdict.UNDECIDED)
    change = replace(found.groups[0].change, mean=nan, lowest=nan, highest=nan, quantiles={"0.05": nan, "0.95": nan})
    first, *bins = found.groups[0].calibration
    calibration = (replace(first, mean_target=nan, interval=None), *bins)
    lacking = {"mean": nan, "mean_interval": None, "deviation": nan, "calibration_error": None}
    group = replace(found.groups[0], **lacking, change=change, calibration=calibration)
    point = replace(found.tradeoff[0], mean_change=nan, accuracy=None)
    return replace(
        found,
        findings=(finding, *found.findings[1:]),
        groups=(group, *found.groups[1:]),
        tradeoff=(point, *found.tradeoff[1:]),
        history={"train_loss": (nan, nan, nan), "train_gap": (0.1, nan, 0.05)},
    )


EVERY = {
    "ordinary": ordinary,
    "hostile": hostile,
    "crowded": crowded,
    "alone": alone,
    "few": few,
    "unfair": unfair,
    "incomplete": incomplete,
}
