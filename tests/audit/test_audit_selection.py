"""Who is selected: rates, impact ratios, tests and tables, against figures computed another way."""

from __future__ import annotations

from fractions import Fraction
from math import comb, sqrt

import numpy as np
import pandas as pd
import pytest

from fairlayer import MeanParity, RateParity, audit
from fairlayer.audit import Audit
from fairlayer.audit.selection import fisher, shortfall, standard_deviations
from fairlayer.audit.summary import DECISIONS, summarize
from fairlayer.report.bias_audit import bias_audit, is_decision


def people(n: int = 2000, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m", None], n, p=[0.4, 0.55, 0.05])
    race = rng.choice(["a", "b", "c"], n, p=[0.5, 0.49, 0.01])
    p = np.round(rng.random(n) * np.where(sex == "f", 0.75, 1.0), 2)
    return pd.DataFrame({"sex": sex, "race": race, "p": p, "w": rng.integers(1, 4, n)})


def made(data: pd.DataFrame, **more) -> Audit:
    return audit(data.p, data[["sex", "race"]], [MeanParity(0.5)], tradeoff=False, **more)


def test_rates_and_ratios_are_those_of_counting() -> None:
    data = people()
    found = {one.name: one for one in made(data).selections}
    yes, median = data.p >= 0.5, data.p.median()
    rates = {label: Fraction(int(yes[data.sex == label].sum()), int((data.sex == label).sum())) for label in ("f", "m")}
    women, men, unknown = (found[f"sex: {label}"].selection for label in ("f", "m", "missing"))
    assert women.selected == yes[data.sex == "f"].sum()
    assert found["sex: f"].decision_rate.value == pytest.approx(float(rates["f"]), abs=1e-15)
    assert women.impact_ratio == pytest.approx(float(rates["f"] / max(rates.values())), abs=1e-15)
    assert (men.impact_ratio, men.p_value) == (1.0, None)
    assert women.scoring_rate.value == pytest.approx((data.p[data.sex == "f"] > median).mean(), abs=1e-15)
    assert unknown.missing
    assert unknown.impact_ratio is None
    assert found["sex: missing"].count == data.sex.isna().sum()
    assert found["race: c"].selection.small
    assert found["sex & race: f & a"].selection.selected == (yes & (data.sex == "f") & (data.race == "a")).sum()


@pytest.mark.parametrize(("n", "weighted"), [(2000, False), (1999, True), (7, False)])
def test_files_say_what_arrays_say(tmp_path, n: int, weighted: bool) -> None:
    data = people(n, seed=n)
    data.to_csv(tmp_path / "people.csv", index=False)
    columns = {"weight": "w"} if weighted else {}
    path = str(tmp_path / "people.csv")
    file = audit(path, ["sex", "race"], [MeanParity(0.5)], prediction="p", tradeoff=False, **columns)
    arrays = made(data, weights=data.w if weighted else None)
    for one, other in zip(arrays.selections, file.selections, strict=True):
        assert (one.name, one.decision_rate, one.selection) == (other.name, other.decision_rate, other.selection)
    assert Audit.from_dict(arrays.to_dict()).selections == arrays.selections


def test_fisher_is_the_sum_of_tables_no_likelier() -> None:
    rng = np.random.default_rng(1)
    for _ in range(40):
        n, m = rng.integers(1, 15, 2).tolist()
        a, b = int(rng.integers(0, n + 1)), int(rng.integers(0, m + 1))
        chance = {k: Fraction(comb(n, k) * comb(m, a + b - k), comb(n + m, a + b)) for k in range(a + b + 1)}
        exact = sum(p for p in chance.values() if p <= chance[a])
        assert fisher(a, n, b, m) == pytest.approx(float(exact), rel=1e-9)


def test_shortfall_and_deviations() -> None:
    assert shortfall(30, 100, 60, 100) == pytest.approx(15.0)
    assert standard_deviations(30, 100, 60, 100) == pytest.approx(-0.3 / sqrt(0.45 * 0.55 * 0.02))
    assert standard_deviations(0, 10, 0, 10) is None


def test_one_ratio_has_one_interval() -> None:
    data = people()
    known = data[data.sex.notna()]
    result = audit(known.p, known[["sex"]], [RateParity(ratio=0.8), MeanParity(0.5)], tradeoff=False)
    women = next(group for group in result.groups if group.label == "f").selection
    finding = next(f for f in result.findings if f.kind == "RateParity")
    assert finding.groups == ("f", "m")
    assert women.ratio_interval == pytest.approx([1.0 + end for end in finding.interval], abs=1e-6)
    assert women.ratio_interval[0] < women.impact_ratio < women.ratio_interval[1]


def test_a_kept_promise_does_not_hide_a_failing_ratio() -> None:
    data = people()
    result = made(data)
    assert result.satisfied
    assert result.least_selected.selection.impact_ratio < 0.8
    assert "below four fifths" in result.headline
    summary = summarize(result)
    assert "less than four fifths" in summary.headline
    assert summary.questions[DECISIONS].words == "Below four fifths"


def test_bias_audit_of_scores_and_of_decisions() -> None:
    data = people()
    scores = made(data)
    assert not is_decision(scores)
    tables, notes = bias_audit(scores)
    assert [table.caption for table in tables] == ["sex", "race", "Intersections: sex & race"]
    assert list(tables[0].columns)[3] == "scoring rate"
    assert any("whose sex is unknown" in note for note in notes)
    decided = made(data.assign(p=(data.p >= 0.5).astype(float)))
    assert is_decision(decided)
    tables, _ = bias_audit(decided)
    assert list(tables[0].columns)[3] == "selection rate"
    assert tables[0].rows[0][1] == f"{(data.sex == 'f').sum():,}"
