"""A margin for the population: tolerances aimed at, and what the data are too few for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fairlayer import FairLayer, InputError, MeanParity, RateParity, RatioParity, ResidualMean, audit, project
from fairlayer.audit import Verdict


def people(n: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n, p=[0.4, 0.6])
    return np.clip(rng.normal(0.5 + 0.1 * (sex == "m"), 0.15), 0, 1), {"sex": sex}


@pytest.mark.parametrize("constraint", [MeanParity(0.05), RatioParity(0.9), RateParity(0.12), ResidualMean(0.05)])
def test_the_verdict_is_settled(constraint) -> None:
    z, groups = people(4000)
    targets = np.clip(z - 0.1 + np.random.default_rng(1).normal(0, 0.1, len(z)), 0, 1)
    data = {"targets": targets} if constraint.needs_targets else {}
    plain = project(z, groups, [constraint], (0, 1), **data)
    solution = project(z, groups, [constraint], (0, 1), confidence=0.95, **data)
    assert solution.satisfied
    assert solution.margin.settled
    assert solution.margin.aimed[0] < solution.margin.stated[0]
    before, after = (
        audit(one.value, groups, [constraint], targets=data.get("targets"), bounds=(0, 1), tradeoff=False)
        for one in (plain, solution)
    )
    assert before.verdict is Verdict.UNDECIDED  # right at the tolerance
    assert after.verdict is Verdict.SATISFIED
    assert "keeps the tolerance" in str(solution.margin)


def test_it_is_not_tighter_than_it_must_be() -> None:
    z, groups = people(4000)
    aim = project(z, groups, [MeanParity(0.05)], (0, 1), confidence=0.95).margin.aimed[0]
    looser = project(z, groups, [MeanParity(1.2 * aim)], (0, 1))
    assert audit(looser.value, groups, [MeanParity(0.05)], bounds=(0, 1), tradeoff=False).verdict is Verdict.UNDECIDED


def test_too_few_samples_are_counted() -> None:
    z, groups = people(60)
    solution = project(z, groups, [MeanParity(0.02)], (0, 1), confidence=0.95)
    assert not solution.margin.settled
    assert solution.margin.aimed == (0.02,)  # left as stated: tightening would cost, and settle nothing
    (name, needed), *_ = solution.margin.needed
    assert "f - m" in name
    assert "too few samples" in str(solution.margin)
    enough = project(*people(int(needed / 0.4)), [MeanParity(0.02)], (0, 1), confidence=0.95)
    assert enough.margin.settled


def test_what_is_settled_anyway_is_left_alone() -> None:
    z, groups = people(4000)
    solution = project(z, groups, [MeanParity(0.5)], (0, 1), confidence=0.95)
    assert solution.margin.aimed == (0.5,)
    assert (solution.value == z).all()


def test_only_in_evaluation() -> None:
    z, groups = people(2000)
    layer = FairLayer([MeanParity(0.05)], (0, 1), confidence=0.95)
    layer(torch.from_numpy(z), groups=groups)
    assert layer.solution.margin is None
    layer.eval()(torch.from_numpy(z), groups=groups)
    assert layer.solution.margin.settled


def test_refusals() -> None:
    z, groups = people(20)
    with pytest.raises(InputError, match="between 0 and 1"):
        project(z, groups, [MeanParity(0.05)], (0, 1), confidence=95)
    with pytest.raises(InputError, match="bounds"):
        project(z * 10, groups, [MeanParity(0.05)], confidence=0.95)


def test_estimators_take_it() -> None:
    sklearn = pytest.importorskip("sklearn.linear_model")
    from fairlayer.sklearn import FairClassifier

    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], 3000)
    X = rng.normal(size=(3000, 3)) + 0.5 * (sex == "m")[:, None]
    y = (X.sum(axis=1) + rng.normal(size=3000) > 0.7).astype(int)
    model = FairClassifier([MeanParity(0.05)], estimator=sklearn.LogisticRegression(), confidence=0.95)
    model.fit(X, y, sensitive_features=sex)
    p = model.predict_proba(X, sensitive_features=sex)[:, 1]
    assert audit(p, sex, [MeanParity(0.05)], tradeoff=False).verdict is Verdict.SATISFIED
