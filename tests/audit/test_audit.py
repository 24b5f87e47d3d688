"""`audit` on arrays: rows as everywhere, exact verdicts about the data, honest ones about the population."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch

from conformance import CASES
from fairlayer import (
    Affine,
    ConditionalParity,
    EqualizedOdds,
    EqualizedResiduals,
    InputError,
    MeanParity,
    RateParity,
    ResidualMean,
    SoftGroup,
    audit,
    project,
)
from fairlayer.audit import Audit, Verdict
from fairlayer.gaps import measure
from fairlayer.problem.constraint_set import ConstraintSet


def has_labels(case: dict) -> bool:
    """Whether a case is about groups with labels, which is what can be audited."""
    groups = case.get("groups")
    columns = groups.values() if isinstance(groups, dict) else [groups]
    affine = any(isinstance(constraint, Affine) for constraint in case["constraints"])
    return not affine and not any(isinstance(column, SoftGroup) for column in columns)


AUDITABLE = [name for name, make in CASES.items() if has_labels(make(np.random.default_rng(0), 300))]


def quick(*arguments, **more) -> Audit:
    return audit(*arguments, **{"tradeoff": False, **more})


def people(n: int = 4000, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    sex, race = rng.choice(["f", "m"], n), rng.choice(["a", "b", "c"], n, p=[0.2, 0.3, 0.5])
    p = np.clip(rng.beta(2, 3, n) + 0.08 * (sex == "m"), 0, 1)
    return pd.DataFrame({"sex": sex, "race": race, "age": rng.integers(18, 80, n), "p": p, "y": rng.random(n) < p})


@pytest.mark.parametrize("name", AUDITABLE)
def test_rows_are_those_of_the_projection(name: str) -> None:
    rng = np.random.default_rng(3)
    case = CASES[name](rng, 300)
    y = rng.uniform(0.2, 0.8, 300)
    data = {key: case.get(key) for key in ("groups", "targets", "features", "weights")}
    expected = measure(y, ConstraintSet(case["constraints"]), **data)
    result = quick(
        y, data["groups"], case["constraints"], data["targets"], features=data["features"], weights=data["weights"]
    )
    found = sorted((finding.name, finding.gap) for finding in result.findings)
    wanted = sorted(zip(expected.names, expected.values.tolist(), strict=True))
    assert [row for row, _ in found] == [row for row, _ in wanted]
    assert [gap for _, gap in found] == pytest.approx([gap for _, gap in wanted], abs=1e-14)
    assert result.satisfied == expected.satisfied


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "constraint", [MeanParity(0.02), EqualizedOdds(0.02), EqualizedResiduals(0.02), ResidualMean(0.02)]
)
def test_what_was_projected_holds(constraint, dtype) -> None:
    """The gap is at its tolerance to the last bit: rounding in the audit must not break it."""
    for seed in range(2):
        data = people(500, seed)
        groups, targets = data[["sex", "race"]], data["y"].to_numpy(dtype=float)
        y = project(data["p"].to_numpy(dtype), groups, [constraint], bounds=(0, 1), targets=targets).value
        result = quick(y, groups, constraint, targets)
        assert result.satisfied
        assert result.worst.gap != 0


def test_verdicts_about_the_population() -> None:
    rng = np.random.default_rng(1)
    group = np.repeat([0, 1], 5000)
    even = rng.uniform(0, 1, 10_000)
    fair = quick(even, group, MeanParity(0.1))
    assert fair.satisfied
    assert fair.verdict is Verdict.SATISFIED
    biased = quick(np.clip(even + 0.3 * group, 0, 1), group, MeanParity(0.1))
    assert not biased.satisfied
    assert biased.verdict is Verdict.VIOLATED
    strict = quick(even, group, MeanParity(abs(fair.findings[0].gap) + 1e-6))
    assert strict.satisfied
    assert strict.verdict is Verdict.UNDECIDED  # within here, by too little to say more


@pytest.mark.parametrize("constraint", [MeanParity(0.05), RateParity(0.05), EqualizedResiduals(0.05)])
@pytest.mark.parametrize(("size", "value"), [(1, 0.0), (3, 0.5), (10, 1.0), (1, 1.0)])
def test_a_tiny_group_is_never_fair(size: int, value: float, constraint) -> None:
    """Equal to all the others, without any variance: the gap is 0, and it says nothing."""
    group, y = np.array(["many"] * 1000 + ["few"] * size), np.full(1000 + size, value)
    result = quick(y, group, constraint, y)
    finding = result.findings[0]
    assert (finding.gap, finding.holds) == (0.0, True)
    assert result.verdict is finding.verdict is Verdict.UNDECIDED
    assert finding.interval[1] - finding.interval[0] > 0.1
    assert "undecided" in result.table()
    assert "satisfied" not in result.table()
    assert finding.samples_to_decide > size


@pytest.mark.parametrize("constraint", [MeanParity(5), EqualizedResiduals(5), ResidualMean(5)])
def test_a_few_samples_of_unknown_range_are_never_fair(constraint) -> None:
    wage = np.array([101.0, 102.0, 101.0, 102.0])
    result = audit(wage, ["a", "a", "b", "b"], constraint, wage + 0.1, tradeoff=False)
    assert result.satisfied
    assert {finding.verdict for finding in result.findings} == {Verdict.UNDECIDED}
    assert {finding.interval for finding in result.findings} == {None}


def test_a_single_group_is_not_satisfied() -> None:
    result = quick(np.full(10, 0.5), ["x"] * 10, MeanParity(0.05))
    assert result.findings == ()
    assert not result.satisfied
    assert result.verdict is Verdict.UNDECIDED
    assert result.empty == ("mean parity",)
    assert "Nothing can be compared" in result.table()


def test_a_target_that_nobody_has_is_nothing_to_compare() -> None:
    result = quick([0.2, 0.6, 0.7, 0.3], [0, 1, 0, 1], RateParity(0.1, given=1), np.zeros(4))
    assert (result.satisfied, result.verdict, result.empty) == (False, Verdict.UNDECIDED, ("rate parity",))


def test_an_absent_group_is_named_and_keeps_the_verdict_open() -> None:
    sex = pd.Categorical(["f", "m"] * 5000, categories=["f", "m", "x"])
    result = quick(np.tile([0.2, 0.8], 5000)[np.random.default_rng(0).permutation(10_000)], {"sex": sex}, MeanParity(1))
    assert result.satisfied
    assert result.not_compared == ("mean parity, sex: x is absent",)
    assert result.verdict is Verdict.UNDECIDED


def test_groups_are_plain_shares() -> None:
    data = people()
    result = quick(data["p"], data[["sex", "race"]], MeanParity(0.05), data["y"])
    group = next(group for group in result.groups if group.labels == ("f",))
    here = data[data["sex"] == "f"]
    decided, residual = here["p"] >= 0.5, here["p"] - here["y"]
    rates = {
        "decision_rate": decided,
        "accuracy": decided == here["y"],
        "true_positive_rate": decided[here["y"]],
        "false_positive_rate": decided[~here["y"]],
        "precision": here["y"][decided],
    }
    for name, of in rates.items():
        assert (getattr(group, name).value, getattr(group, name).count) == (pytest.approx(of.mean()), len(of)), name
    assert group.count == len(here)
    figures = [group.share, group.mean, group.deviation, group.target_mean, group.bias, group.root_mean_squared_error]
    means = [here["p"].mean(), here["p"].std(ddof=0), here["y"].mean(), residual.mean(), np.sqrt((residual**2).mean())]
    assert figures == pytest.approx([len(here) / len(data), *means])
    assert result.overall.count == sum(group.count for group in result.intersections) == len(data)
    assert {group.labels for group in result.intersections} == {(s, r) for s in "fm" for r in "abc"}
    both = next(group for group in result.intersections if group.labels == ("m", "b"))
    assert both.mean == pytest.approx(data[(data["sex"] == "m") & (data["race"] == "b")]["p"].mean())
    assert both.name == "sex & race: m & b"


def test_calibration_and_histograms_count_everybody() -> None:
    data = people()
    result = quick(data["p"], data[["sex"]], MeanParity(0.05), data["y"])
    men = next(group for group in result.groups if group.label == "m")
    here = data[data["sex"] == "m"]
    inside = here[(here["p"] >= 0.3) & (here["p"] < 0.4)]
    third = next(one for one in men.calibration if one.lower == pytest.approx(0.3))
    assert third.count == len(inside)
    assert third.mean_target == pytest.approx(inside["y"].mean())
    assert third.mean_prediction == pytest.approx(inside["p"].mean())
    assert third.interval is not None
    assert third.interval[0] < third.mean_target < third.interval[1]
    assert sum(result.overall.histogram.after) == len(data)
    assert men.histogram.before is None
    assert list(men.histogram.after) == np.histogram(here["p"], bins=40, range=(0, 1))[0].tolist()
    assert len(result.edges) == 41


def test_changes_say_who_was_changed() -> None:
    data = people()
    raw = data["p"].to_numpy()
    moved = np.where(data["sex"] == "m", raw - 0.08, raw)
    result = quick(moved, data[["sex"]], MeanParity(0.05), raw=raw)
    changes = {group.label: group.change for group in (result.overall, *result.groups)}
    assert changes["f"].changed == changes["f"].mean_absolute == changes["f"].flipped == 0.0
    assert set(changes["f"].quantiles.values()) == {0.0}
    assert changes["m"].changed == 1.0
    assert changes["m"].mean == pytest.approx(-0.08)
    assert changes["m"].quantiles["0.5"] == pytest.approx(-0.08)
    assert changes["m"].lowest == pytest.approx(-0.08)
    flips = (moved >= 0.5) != (raw >= 0.5)
    assert changes["everybody"].flipped == pytest.approx(flips.mean())
    assert changes["everybody"].changed == pytest.approx((data["sex"] == "m").mean())
    everybody = result.overall.histogram
    assert sum(everybody.after) == sum(everybody.before) == len(data)
    assert everybody.after != everybody.before
    change = np.random.default_rng(5).normal(0, 0.1, len(raw))
    spread = quick(raw + change, data[["sex"]], MeanParity(0.05), raw=raw).overall.change
    for name, value in spread.quantiles.items():
        assert value == pytest.approx(np.quantile(change, float(name)), abs=np.abs(change).max() / 250)


def test_tradeoff_pays_more_for_less_tolerance() -> None:
    data = people(2000)
    result = audit(data["p"], data[["sex"]], MeanParity(0.03), data["y"])
    points = result.tradeoff
    assert 0.03 in [point.tolerance for point in points]
    assert points[-1].tolerance == 0.0
    for point, following in pairwise(points):
        assert point.mean_change <= following.mean_change
        assert following.gap <= following.tolerance + 1e-8
    first = points[0]
    assert first.tolerance is None
    assert (first.gap, first.mean_change) == (pytest.approx(abs(result.worst.gap)), 0.0)
    assert first.accuracy == pytest.approx(result.overall.accuracy.value)
    assert first.root_mean_squared_error == pytest.approx(result.overall.root_mean_squared_error)


def test_tradeoff_starts_at_the_unconstrained_model() -> None:
    data = people(2000)
    groups, better = data[["sex"]], np.clip(data["p"] + 0.2 * (data["y"] - 0.5), 0, 1)
    fair = project(data["p"].to_numpy(), groups, MeanParity(0.03), bounds=(0, 1)).value
    for start, outputs, more in (
        ("predictions", fair, {}),
        ("raw outputs", data["p"], {"raw": data["p"]}),
        ("unconstrained model", better, {"raw": data["p"], "unconstrained": better}),
    ):
        result = audit(fair, groups, MeanParity(0.03), data["y"], **more)
        assert result.settings.start == start
        first = result.tradeoff[0]
        assert first.accuracy == pytest.approx(((outputs >= 0.5) == data["y"]).mean())
        assert first.root_mean_squared_error == pytest.approx(np.sqrt(((outputs - data["y"]) ** 2).mean()))
    with pytest.raises(InputError, match="unconstrained has 3 entries"):
        audit(fair, groups, MeanParity(0.03), unconstrained=[0.1, 0.2, 0.3])


@pytest.mark.parametrize(("dtype", "threshold"), [(np.float16, 0.3), (np.float32, 0.7), (np.float64, 0.9)])
def test_decisions_are_made_in_the_dtype_of_the_scores(dtype, threshold: float) -> None:
    score = np.random.default_rng(0).integers(0, 11, 400).astype(dtype) / dtype(10)
    sex = np.tile(["f", "m"], 200)
    groups, constraint = {"sex": sex}, RateParity(0.02, threshold=threshold)
    y = project(score, groups, [constraint]).value
    result = quick(y, groups, constraint)
    assert result.satisfied
    expected = [(y[sex == s] >= dtype(threshold)).mean() for s in "fm"]
    assert [group.decision_rate.value for group in result.groups] == pytest.approx(expected)


def test_weights_count_as_repetitions_in_means() -> None:
    data = people(500)
    weights = np.random.default_rng(0).integers(1, 4, 500)
    weighted = quick(data["p"], data[["sex"]], MeanParity(0.05), data["y"], weights=weights)
    repeated = data.loc[data.index.repeat(weights)]
    plain = quick(repeated["p"], repeated[["sex"]], MeanParity(0.05), repeated["y"])
    assert weighted.findings[0].gap == pytest.approx(plain.findings[0].gap)
    assert weighted.findings[0].counts == tuple(int((data["sex"] == s).sum()) for s in "fm")
    for group, other in zip(weighted.groups, plain.groups, strict=True):
        assert group.accuracy.value == pytest.approx(other.accuracy.value)
        assert group.share == pytest.approx(other.share)
        # A weight is no further sample: the interval stays as wide as that of 500.
        assert group.accuracy.upper - group.accuracy.lower > other.accuracy.upper - other.accuracy.lower


def test_missing_labels_are_a_group() -> None:
    sex = np.array(["f", "m", None, float("nan")] * 25, dtype=object)
    result = quick(np.linspace(0, 1, 100), {"sex": sex}, MeanParity(0.05))
    assert [(group.labels, group.count) for group in result.groups] == [
        (("f",), 25),
        (("m",), 25),
        (("missing",), 50),
    ]


@pytest.mark.parametrize(
    "form",
    [
        lambda p, s: (torch.tensor(p), torch.tensor(s)),
        lambda p, s: (p[:, None], s[:, None]),
        lambda p, s: (p.tolist(), s.tolist()),
        lambda p, s: (pd.Series(p), pd.DataFrame({0: s})),
        lambda p, s: (torch.tensor(p, dtype=torch.float64, requires_grad=True), {0: pd.Series(s)}),
    ],
)
def test_any_form_of_data(form) -> None:
    rng = np.random.default_rng(2)
    p, s = rng.random(200), rng.integers(0, 3, 200)
    expected = quick(p, s, MeanParity(0.05))
    assert quick(*form(p, s), MeanParity(0.05)).findings == expected.findings


def test_targets_that_are_classes() -> None:
    data = people()
    names = np.where(data["y"], "good", "bad")
    result = quick(data["p"], data[["sex"]], EqualizedOdds(0.1), names)
    assert {finding.where for finding in result.findings} == {
        "equalized odds, sex within target bad",
        "equalized odds, sex within target good",
    }
    assert result.overall.accuracy is None
    assert result.overall.calibration == ()
    assert any("classes" in note for note in result.notes)


def test_outputs_beyond_the_unit_interval() -> None:
    rng = np.random.default_rng(0)
    wage, group = rng.normal(50_000, 9_000, 2000), rng.choice(["a", "b"], 2000)
    result = quick(wage, group, [MeanParity(2000), ResidualMean(2000)], wage + rng.normal(0, 500, 2000))
    assert result.verdict is Verdict.SATISFIED
    assert result.settings.bounds == (wage.min(), wage.max())
    assert result.overall.accuracy is None
    assert result.overall.root_mean_squared_error == pytest.approx(500, rel=0.1)
    wider = quick(wage, group, MeanParity(2000), bounds=(0, 1e6))
    assert wider.findings[0].interval[0] < result.findings[-1].interval[0]


def test_json_there_and_back(tmp_path) -> None:
    data = people(300)
    names = np.where(data["sex"] == "f", "<script>alert(1)</script>", 'a"b & c')
    result = audit(
        data["p"], {"sex": names, "race": data["race"]}, [MeanParity(0.05), EqualizedOdds(0.1)], data["y"],
        raw=data["p"] * 0.9, history={"loss": [0.5, 0.25]},
    )  # fmt: skip
    text = result.to_json(tmp_path / "audit.json")
    assert Audit.from_json(tmp_path / "audit.json") == result
    plain = json.loads(text)
    assert plain["satisfied"] is result.satisfied
    assert plain["verdict"] == result.verdict.value
    assert "<script>alert(1)</script>" in result.table(rows=1000)
    assert replace(result, history={}).history == {}


def test_control_characters_do_not_reach_the_terminal() -> None:
    result = quick(np.linspace(0, 1, 40), ["\x1b[2Jx", "b\n"] * 20, MeanParity(0.05))
    assert "\x1b" not in result.table()
    assert "\\x1b[2Jx" in result.table()
    alone = quick(np.linspace(0, 1, 40), ["\x1b[2Jx"] * 40, MeanParity(0.05))
    assert alone.not_compared
    assert "\x1b" not in alone.table()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"predictions": [0.1, np.nan, 0.3, 0.4]}, "predictions has 1 of 4 entries that are missing"),
        ({"predictions": ["a", "b", "c", "d"]}, "predictions must be numbers"),
        ({"predictions": []}, "predictions is empty"),
        ({"predictions": np.zeros((4, 2))}, "predictions has shape"),
        ({"groups": ["a", "b"]}, "groups\\[0\\] has 2 entries for 4 outputs"),
        ({"groups": None}, "groups is missing"),
        ({"groups": {"g": SoftGroup(np.full((4, 2), 0.5))}}, "pass labels"),
        ({"constraints": []}, "constraints is empty"),
        ({"constraints": [Affine(np.ones((1, 4)), 0, 1)]}, "Affine is about single outputs"),
        ({"constraints": [MeanParity(0.1, over="age")]}, "over names attribute 'age'"),
        ({"constraints": [EqualizedOdds(0.1)]}, "targets is missing"),
        ({"constraints": [ConditionalParity(0.1, regions={"age": [(None, 40)]})]}, "features is missing"),
        ({"targets": [0, 1, 1]}, "targets has 3 entries for 4"),
        ({"constraints": [ResidualMean(0.1)], "targets": list("abab")}, "targets are not numbers"),
        ({"targets": [0, 1, 1, np.nan]}, "targets has 1 of 4 entries"),
        ({"weights": [1, 1, 1, -1]}, "weights must be at least 0"),
        ({"raw": [0.1]}, "raw has 1 entries for 4"),
        ({"confidence": 95}, "confidence must be between 0 and 1"),
        ({"threshold": float("nan")}, "threshold must be"),
        ({"bounds": (1, 0)}, "bounds must be two"),
        ({"bounds": (0, 0.2)}, "predictions range from"),
        ({"target": "y"}, "target names a column of a file"),
        ({"predictions": np.linspace(0, 1, 500), "groups": np.arange(500)}, "500 labels"),
    ],
)
def test_bad_input_is_refused(change, message) -> None:
    arguments = {"predictions": [0.1, 0.2, 0.3, 0.4], "groups": ["a", "b", "a", "b"], "constraints": [MeanParity(0.1)]}
    with pytest.raises(InputError, match=message):
        quick(**{**arguments, **change})
