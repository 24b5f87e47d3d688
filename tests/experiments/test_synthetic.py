"""The synthetic experiment: its parts, and its quick profile from the first unit to the tables."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")

from experiments.claims import Verdict
from experiments.synthetic import EXPERIMENT
from experiments.synthetic.inference import (
    ALGORITHM_1,
    LEDGER,
    PLAIN,
    PROJECTED,
    RAW,
    REGIMES,
    STRATIFIED,
    arrivals,
    emit,
    judge,
    observe,
)
from experiments.synthetic.scores import METHODS, Score, aggregate, published_scores, rank_rows, ranks
from experiments.synthetic.settings import MEDIUM, PAPER, QUICK, SETS
from experiments.synthetic.training import Part, Task, load_task, model_of, network, search_strength
from experiments.tables import read_csv


@pytest.fixture
def home(quick) -> Path:
    return quick("synthetic")


@pytest.fixture
def measured(results_of) -> list[dict[str, Any]]:
    return [row for result in results_of("synthetic") for row in result["rows"]]


def stream_task(rows: int = 3200) -> tuple[np.ndarray, Task]:
    """Raw outputs of two groups two units apart, in the order of a fair coin."""
    random = np.random.default_rng(0)
    group = random.binomial(1, 0.2, rows)
    raw = (2 * group + random.normal(0, 0.5, rows)).astype(np.float32)
    part = Part(np.zeros((rows, 1), np.float32), raw, group)
    return raw, Task(part, part, part, (-3.5, 3.5), seed=0)


# The quick profile


def test_quick_runs_every_method_in_every_regime(measured: list[dict[str, Any]]) -> None:
    rows = [row for row in measured if "regime" in row]
    found = {(row["method"], row["regime"]) for row in rows}
    assert found == {(method, regime) for method in (*METHODS, "Unconstrained") for regime in REGIMES}
    small = {row["inference"] for row in rows if row["method"] == "F-Layer" and row["regime"] != "large/large"}
    assert small == {ALGORITHM_1, LEDGER}
    assert {row["order"] for row in rows} == {STRATIFIED, PLAIN}


def test_everything_promised_is_kept_in_exact_arithmetic(home: Path, measured: list[dict[str, Any]]) -> None:
    promised = [row for row in measured if row["promise_kept"] is not None]
    assert {row["inference"] for row in promised} == {PROJECTED, LEDGER, ALGORITHM_1}
    assert all(row["promise_kept"] for row in promised)
    table = read_csv(home / "promises.csv")
    assert sum(int(row["outputs checked"]) for row in table) == len(promised)
    assert all(row["kept"] == row["outputs checked"] for row in table)


def test_tables_stand_next_to_the_published_ones(home: Path) -> None:
    for regime in REGIMES:
        table = read_csv(home / f"sets_{regime.replace('/', '_')}.csv")
        assert len(table) == len(QUICK.sets) * (len(METHODS) + 1)
        assert all(float(row["published: MSE"]) > 0 and float(row["measured: MSE"]) > 0 for row in table)
    first = read_csv(home / "sets_large_large.csv")[0]
    assert (first["set"], first["method"], float(first["published: MSE"])) == ("0", "F-Layer", 0.7021)
    assert {row["source"] for row in read_csv(home / "ranks.csv")} == {"published", "measured", "measured, ledger"}
    figures = ("relative_loss", "ranks", "gaps", "streams", "attainable")
    assert all((home / f"{name}.svg").stat().st_size > 1000 for name in figures)
    assert "What it shows" in (home / "summary.md").read_text()


def test_every_claim_has_a_finding(results_of) -> None:
    findings = EXPERIMENT.claims(results_of("synthetic"), QUICK)
    claims = read_csv(Path(__file__).parents[2] / "experiments" / "published" / "claims" / "synthetic.csv")
    assert set(findings) == {row["id"] for row in claims}
    assert all(finding.measured and finding.verdict is not Verdict.NOT_RUN for finding in findings.values())


# Settings and sets


def test_the_paper_profile_is_as_published() -> None:
    task = load_task(3, "published", PAPER)
    assert [len(part.y) for part in (task.train, task.validation, task.test)] == [24_000, 10_000, 6_000]
    assert task.bounds == (0.0, 3.5)
    assert task.train.x.shape[1] == 151
    assert (task.train.x[:, 0] == task.train.group).all()
    linear = [layer for layer in network(151, PAPER.hidden, 0) if isinstance(layer, torch.nn.Linear)]
    assert [layer.out_features for layer in linear] == [800, *[600] * 7, 400, 300, 200, 100, 50, 10, 3, 1]
    assert all((layer.bias == 0.01).all() for layer in linear)
    assert len([unit for unit in EXPERIMENT.units(PAPER) if "/F-Layer" in unit.key]) == 64


def test_medium_tries_all_sets_and_the_corrected_ones_in_balance() -> None:
    assert MEDIUM.sets == SETS
    bits = np.array([[index >> bit & 1 for bit in range(5)] for index in MEDIUM.corrected_sets])
    assert (2 * bits - 1).sum(axis=0).tolist() == [0] * 5
    assert np.array_equal((2 * bits - 1).T @ (2 * bits - 1), 8 * np.eye(5))


def test_penalties_stay_within_the_bounds_and_the_search_prefers_what_is_feasible() -> None:
    task = load_task(19, "published", QUICK)
    outputs = model_of("Penalty", task, QUICK, 1.0).raw(torch.from_numpy(task.test.x) * 100)
    assert 0.0 <= float(outputs.detach().min()) <= float(outputs.detach().max()) <= 3.5
    for tolerance, met in ((0.5, True), (1e-9, False)):
        selection = search_strength(task, replace(QUICK, tolerance=tolerance))
        assert len(selection.trials) == len(QUICK.strengths)
        assert selection.satisfied == met
        kept = [trial for trial in selection.trials if trial.satisfied == met]
        assert selection.strength == min(kept, key=lambda trial: trial.loss if met else trial.gap).strength


# Inference


@pytest.mark.parametrize(("order", "differ"), [(STRATIFIED, 1), (PLAIN, 16)])
def test_every_row_is_in_one_batch(order: str, differ: int) -> None:
    group = np.random.default_rng(1).binomial(1, 0.2, 500)
    rows = arrivals(group, 16, order)
    assert np.array_equal(np.sort(np.concatenate(rows)), np.arange(500))
    assert max(map(len, rows)) <= 16
    ones = [int(group[taken].sum()) for taken in rows]
    assert max(ones) - min(ones) <= differ


def test_fair_batches_of_different_shares_leave_a_pooled_gap_and_the_ledger_does_not() -> None:
    raw, task = stream_task()
    rows = arrivals(task.test.group, 16, PLAIN)
    projected, ledger = (observe(raw, task, rows, how, PAPER) for how in (PROJECTED, LEDGER))
    assert projected["promise_kept"]
    assert abs(projected["gap"]) > 0.1  # twice the tolerance
    assert projected["batches_complete"] < projected["batches"]  # and those batches have predictions all the same
    assert ledger["promise_kept"]
    assert abs(ledger["gap"]) <= 0.05


def test_algorithm_1_bounds_the_average_gap_of_batches() -> None:
    raw, task = stream_task(8000)
    found = observe(raw, task, arrivals(task.test.group, 16, STRATIFIED), ALGORITHM_1, PAPER)
    assert found["promise_kept"]
    assert found["mean_batch_gap"] < 0.06
    assert not found["always_within"]  # it begins at a price of 0


def test_raw_outputs_promise_nothing() -> None:
    raw, task = stream_task(160)
    rows = arrivals(task.test.group, 16, STRATIFIED)
    emitted, certificate = emit(raw, task, rows, RAW, PAPER)
    assert emitted is raw
    assert certificate is None
    assert observe(raw, task, rows, RAW, PAPER)["promise_kept"] is None


def test_judging_is_exact() -> None:
    part = Part(np.zeros((4, 1), np.float32), np.zeros(4, np.float32), np.array([0, 1, 0, 1]))
    rows = [np.array([0, 1]), np.array([2, 3])]
    tolerance = PAPER.tolerance
    at = np.array([0.0, tolerance, 0.0, tolerance])
    judged = judge(at, part, rows, (-1.0, 1.0), PAPER)
    assert (judged["gap"], judged["within"], judged["always_within"], judged["batches_within"]) == (0.05, True, True, 2)
    above = at.copy()
    above[1] = np.nextafter(tolerance, 1)  # by the least that a float can tell
    judged = judge(above, part, rows, (-1.0, 1.0), PAPER)
    assert Fraction(above[1]) > Fraction(tolerance)
    assert (judged["within"], judged["always_within"], judged["batches_within"]) == (False, False, 1)
    assert judged["mse"] == pytest.approx(tolerance**2 / 2)
    assert not judge(at - 2, part, rows, (-1.0, 1.0), PAPER)["within_bounds"]


# Scores


def test_what_is_said_of_the_published_results_is_what_they_hold() -> None:
    scores = published_scores()
    found = [aggregate(scores, regime) for regime in REGIMES]
    assert [one["F-Layer first"] for one in found] == [24, 22, 27]
    assert [one["F-Layer first, violators counted"] for one in found] == [15, 14, 18]
    assert [one["reduction of 18 % over the best other"] for one in found] == [6, 4, 8]
    assert [one["F-Layer worse than Projection"] for one in found] == [7, 10, 3]
    table = {(row["regime"], row["method"]): row for row in rank_rows("published", scores)}
    assert [table[regime, "Penalty"]["violations"] for regime in REGIMES] == [11, 11, 11]
    assert table["large/large", "Projection"]["median % over F-Layer"] == pytest.approx(7.07, abs=0.005)


def test_violators_have_no_rank_and_equals_share_one() -> None:
    losses = {"F-Layer": (0.5, 0.05), "Projection": (0.5, None), "Penalty": (0.1, 0.0511), "Strict Penalty": (0.9, 0.0)}
    scores = {method: Score(0, REGIMES[0], method, mse, gap) for method, (mse, gap) in losses.items()}
    assert ranks(scores) == {"F-Layer": 1, "Projection": 1, "Strict Penalty": 3}
