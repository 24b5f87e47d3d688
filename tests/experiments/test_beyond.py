"""Applications beyond fairness: they learn, and no output breaks a limit in exact arithmetic."""

from __future__ import annotations

import json

import pytest
import torch

from experiments import beyond, claims, runner


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    home = runner.run("beyond", "quick", jobs=1, folder=tmp_path_factory.mktemp("results"), progress=False)
    for name in beyond.PROBLEMS:
        assert (home / f"{name}.svg").stat().st_size > 1000
    return [json.loads(line) for line in (home / "units.jsonl").read_text().splitlines()]


def test_no_limit_is_broken_and_every_network_learns(results):
    assert {result["application"] for result in results} == set(beyond.PROBLEMS)
    for result in results:
        for method in ("F-Layer", "Projection"):
            assert result[method]["broken"] == 0
            assert result[method]["checked"] > 0
            assert result[method]["largest_excess"] <= 0
        assert result["F-Layer"]["loss"] < result["F-Layer"]["curve"][0][1]


@pytest.mark.parametrize("name", list(beyond.PROBLEMS))
def test_the_check_sees_raw_outputs_break_limits(name):
    torch.manual_seed(0)
    problem = beyond.PROBLEMS[name]()
    check = beyond.Check(problem)
    check(5.0 * problem.raw(*problem.test).detach(), problem.test)
    assert check.broken > 0


def test_every_claim_has_a_finding(results):
    findings = beyond.EXPERIMENT.claims(results, beyond.PROFILES["quick"])
    assert set(findings) == {claim["id"] for claim in claims.published_claims("beyond")}
    assert all(finding.verdict == "holds" for finding in findings.values())
