"""The table of claims comes from stored results alone, and says so where there are none."""

from __future__ import annotations

import json

import pytest

from experiments import claims, record, runner, tables
from fairlayer.errors import FairlayerError

HOLDS, PARTLY, FAILS = claims.Verdict.HOLDS, claims.Verdict.PARTLY, claims.Verdict.FAILS


def test_verdicts_follow_one_set_of_rules():
    assert [claims.in_all(cases, 4) for cases in (4, 3, 2, 1)] == [HOLDS, PARTLY, PARTLY, FAILS]
    assert [claims.at_least(measured, 2.0) for measured in (2.0, 1.0, 0.9, -3.0)] == [HOLDS, PARTLY, FAILS, FAILS]
    assert [claims.at_most(measured, 2.0) for measured in (1.0, 2.0, 4.0, 5.0)] == [HOLDS, HOLDS, PARTLY, FAILS]
    assert claims.together([HOLDS, HOLDS]) is HOLDS
    assert claims.together([HOLDS, PARTLY]) is claims.together([PARTLY, FAILS]) is PARTLY
    assert claims.together([PARTLY, FAILS, FAILS]) is FAILS
    assert claims.at_least(41, claims.about(45)) is HOLDS


def test_claims_without_results_are_listed_as_not_run(tmp_path):
    runner.refresh_claims(tmp_path)
    rows = tables.read_csv(tmp_path / "claims.csv")
    assert {row["experiment"] for row in rows} >= {"loan", "employee", "beyond"}
    assert {row["verdict"] for row in rows} == {"not run"}
    text = (tmp_path / "claims.md").read_text()
    assert text.startswith(claims.RULES)
    assert text.removeprefix(claims.RULES).strip().count("\n") == len(rows) + 1


def test_findings_are_put_beside_what_was_published(tmp_path):
    finding = claims.Finding("measured | so", claims.Verdict.HOLDS, stored="stored so")
    claims.write_claims(tmp_path, ["beyond"], {"beyond": ("paper", {"portfolio": finding})})
    row = next(row for row in tables.read_csv(tmp_path / "claims.csv") if row["verdict"] == "holds")
    assert (row["measured"], row["stored"], row["profile"]) == ("measured | so", "stored so", "paper")
    assert "measured \\| so" in (tmp_path / "claims.md").read_text()
    with pytest.raises(FairlayerError, match="nonsense"):
        claims.write_claims(tmp_path, ["beyond"], {"beyond": ("paper", {"nonsense": finding})})


def test_ids_are_unique():
    for name in runner.NAMES:
        ids = [claim["id"] for claim in claims.published_claims(name)]
        assert len(ids) == len(set(ids))


def test_markdown():
    assert (
        tables.markdown([{"a": 1.23456, "b": None}, {"a": "x", "b": True}])
        == "| a | b |\n| --- | --- |\n| 1.235 |  |\n| x | True |"
    )


KEPT = [
    (name, path.parent.name) for name in runner.NAMES for path in sorted((runner.RESULTS / name).glob("*/meta.json"))
]


@pytest.mark.parametrize(("name", "profile"), KEPT)
def test_kept_results_were_made_with_the_settings_of_today(name, profile):
    chosen = runner.experiment(name)
    kept = record.Record(runner.RESULTS / name / profile, name, profile, chosen.profiles[profile])
    assert kept.load(), "the results are of other settings: run the experiment again"
    meta = json.loads(kept.meta.read_text())
    if meta.get("units_done") != meta.get("units", 0):
        pytest.skip(f"{name} ({profile}) has not been run to its end")
    assert set(kept.results) == {unit.key for unit in chosen.units(chosen.profiles[profile])}


@pytest.mark.skipif(not KEPT, reason="there are no results yet")
def test_kept_claims_follow_from_kept_results(tmp_path):
    runner.refresh_claims(runner.RESULTS, to=tmp_path)
    for file in ("claims.csv", "claims.md"):
        assert (tmp_path / file).read_text() == (runner.RESULTS / file).read_text()


@pytest.mark.skipif(runner.stored("synthetic") is None, reason="there are no results yet")
def test_percentages_over_the_bound_are_those_of_the_table():
    home = runner.RESULTS / "synthetic" / runner.stored("synthetic")[0]
    constant = next(row for row in tables.read_csv(home / "attainable_summary.csv") if row["model"] == "constant")
    assert f"a constant, {float(constant['mean % over the bound']):.1f} %" in (home / "summary.md").read_text()
