"""The table of claims comes from stored results alone, and says so where there are none."""

from __future__ import annotations

import json

import pytest

from experiments import claims, record, runner, tables
from fairlayer.errors import FairlayerError


def test_verdicts():
    assert claims.verdict(True) == "holds"
    assert claims.verdict(False, partly=True) == "holds in part"
    assert claims.verdict(False) == "does not hold"


def test_claims_without_results_are_listed_as_not_run(tmp_path):
    runner.refresh_claims(tmp_path)
    rows = tables.read_csv(tmp_path / "claims.csv")
    assert {row["experiment"] for row in rows} >= {"loan", "employee", "beyond"}
    assert {row["verdict"] for row in rows} == {"not run"}
    assert (tmp_path / "claims.md").read_text().count("\n") == len(rows) + 2


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
