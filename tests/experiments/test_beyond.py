"""Applications beyond fairness: they learn, and no output breaks a limit in exact arithmetic."""

from __future__ import annotations

import pytest
import torch

from experiments import beyond, claims


def test_no_limit_is_broken_and_every_network_learns(quick, results_of):
    assert all((quick("beyond") / f"{name}.svg").stat().st_size > 1000 for name in beyond.PROBLEMS)
    results = results_of("beyond")
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


def test_every_claim_has_a_finding(results_of):
    findings = beyond.EXPERIMENT.claims(results_of("beyond"), beyond.PROFILES["quick"])
    assert set(findings) == {claim["id"] for claim in claims.published_claims("beyond")}
    assert all(finding.verdict == "holds" for finding in findings.values())
