"""RatioParity, wherever a constraint goes: the projection, gradients, training, streams, frozen layers and audits."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlayer import FairLayer, InfeasibleError, InputError, MeanParity, RatioParity, Status, Stream, audit, freeze
from fairlayer import project as project_batch
from fairlayer.constraints import read_constraint


def people(n: int, seed: int = 0) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Scores in [0, 1] that differ by sex and by race."""
    rng = np.random.default_rng(seed)
    groups = {"sex": rng.choice(["f", "m"], n), "race": rng.choice(["a", "b", "c"], n)}
    z = rng.normal(0.35 + 0.25 * (groups["sex"] == "m") - 0.1 * (groups["race"] == "c"), 0.2)
    return np.clip(z, 0, 1), groups


class Ratios:
    """The least ratio of two group means of one attribute, over all that was added, in rational arithmetic."""

    def __init__(self) -> None:
        self._groups: dict[Any, dict[Any, list[Any]]] = defaultdict(lambda: defaultdict(lambda: [0, Fraction(0)]))

    def add(self, values: Any, groups: Any) -> Ratios:
        columns = groups if isinstance(groups, dict) else dict(enumerate(np.asarray(groups).T))
        for name, column in columns.items():
            for label, value in zip(column, values, strict=True):
                self._groups[name][label][0] += 1
                self._groups[name][label][1] += Fraction(float(value))
        return self

    def keep(self, ratio: float) -> bool:
        means = [[total / count for count, total in groups.values()] for groups in self._groups.values()]
        return all(min(each) >= Fraction(ratio) * max(each) for each in means)


@pytest.mark.parametrize("ratio", [0.65, 0.8, 0.95, 1.0])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_no_mean_is_below_its_share_of_another(ratio, dtype):
    z, groups = people(400)
    z = z.astype(dtype)
    assert not Ratios().add(z, groups).keep(ratio)
    solution = project_batch(z, groups, RatioParity(ratio), (0, 1))
    if ratio < 1.0:
        assert solution.status is Status.OPTIMAL
        assert Ratios().add(solution.value, groups).keep(ratio)
    assert abs(np.abs(solution.gaps).max() - (1 - ratio)) < 1e-5


def test_gaps_are_relative_and_multipliers_those_of_the_rows():
    z, groups = np.array([0.2, 0.4, 0.6, 1.0]), np.array([0, 0, 1, 1])
    solution = project_batch(z, groups, RatioParity(0.8), (0, 10))
    low, high = solution.value[:2].mean(), solution.value[2:].mean()
    assert low == pytest.approx(0.8 * high)
    assert solution.rows == ("ratio parity, 0: 0 - 1, relative",)
    assert solution.gaps == pytest.approx([(low - high) / high])
    # y = z - shift, and the shifts are 0.8 mu / 2 of the greater group and -mu / 2 of the lesser.
    mu = -solution.multipliers[0]
    np.testing.assert_allclose(z - solution.value, [-mu / 2, -mu / 2, 0.4 * mu, 0.4 * mu])


def test_outputs_that_are_all_zero_have_no_gap():
    solution = project_batch(np.zeros(4), np.array([0, 0, 1, 1]), RatioParity(0.8), (0, 1))
    assert solution.status is Status.OPTIMAL
    assert solution.gaps.tolist() == [0.0]


@pytest.mark.parametrize("bounds", [None, (-0.1, 1.0), (None, 1.0), (np.array([0.0, -1e-9, 0.0]), None)])
def test_outputs_that_may_be_negative_are_refused(bounds):
    with pytest.raises(InputError, match=r"RatioParity compares means by their ratio.*bounds=\(0, 1\)"):
        project_batch(np.array([0.1, 0.2, 0.3]), np.array([0, 1, 1]), RatioParity(0.8), bounds)


def test_streams_and_audits_refuse_them_too():
    with pytest.raises(InputError, match="RatioParity compares means by their ratio"):
        Stream([RatioParity(0.8)], bounds=(-1, 1))
    with pytest.raises(InputError, match=r"predictions goes down to -0\.5"):
        audit(np.array([-0.5, 0.5]), np.array([0, 1]), RatioParity(0.8))


def test_bounds_that_leave_no_room_are_named():
    bounds = (np.array([0.0, 0.0, 0.9, 0.9]), np.array([0.1, 0.1, 1.0, 1.0]))
    z, groups = np.array([0.1, 0.1, 0.9, 0.9]), {"sex": np.array(["f", "f", "m", "m"])}
    with pytest.raises(InfeasibleError, match="ratio parity, sex: f - m"):
        project_batch(z, groups, RatioParity(0.8), bounds)
    relaxed = project_batch(z, groups, RatioParity(0.8), bounds, infeasible="relax")
    assert relaxed.status is Status.RELAXED
    np.testing.assert_allclose(relaxed.value, z)
    assert relaxed.excess == pytest.approx(0.8 * 0.9 - 0.1, abs=1e-6)


def test_reads_and_writes_itself():
    one = RatioParity(0.8, over=("sex", "race"), name="four fifths")
    again = read_constraint(one.to_data())
    assert again.to_data() == one.to_data()
    assert read_constraint("RatioParity(0.8)").ratio == 0.8
    assert one.words() == "RatioParity(0.8, over=('sex', 'race'), name='four fifths')"
    assert RatioParity(0.8).allowing(0.1).ratio == 0.9
    for wrong in (0.0, -0.1, 1.2, "much", None):
        with pytest.raises(InputError, match="ratio must be one number above 0 and at most 1"):
            RatioParity(wrong)


def test_trains_in_a_layer():
    torch.manual_seed(0)
    sex = torch.randint(0, 2, (300,))
    x = torch.randn(300, 3) + sex[:, None]
    network = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Sigmoid())
    layer = FairLayer([RatioParity(0.9)], bounds=(0.0, 1.0))
    optimiser = torch.optim.SGD(network.parameters(), 1.0)
    losses = []
    for _ in range(30):
        y = layer(network(x)[:, 0], groups=sex)
        loss = (y - (x[:, 1] > 0).float()).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        assert Ratios().add(y.detach().numpy(), sex[:, None].numpy()).keep(0.9)
    assert losses[-1] < 0.9 * losses[0]


@st.composite
def adversaries(draw):
    """One-sided, late, lonely and extreme arrivals of outputs that are not negative."""
    levels = [draw(st.integers(2, 4)) for _ in range(draw(st.integers(1, 3)))]
    box = draw(st.sampled_from([(0.0, 1.0), (0.0, None), (0.2, 3.0)]))
    dtype = draw(st.sampled_from([np.float64, np.float32]))
    ratio = draw(st.one_of(st.floats(0.05, 0.99), st.sampled_from([0.8, 0.9])))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    batches = []
    for number in range(draw(st.integers(1, 14))):
        n = draw(st.one_of(st.just(1), st.integers(1, 20)))
        groups = np.stack([rng.integers(0, count, n) for count in levels], axis=1)
        if draw(st.booleans()):  # all alike, perhaps never seen before
            groups[:] = [draw(st.integers(0, count)) for count in levels]
        far = draw(st.sampled_from([0.0, 1.0, -1.0, 100.0]))
        z = rng.normal(0.0, 1.0, n) + far * (1.0 if number % 2 else groups.sum(axis=1))
        batches.append((z.astype(dtype), groups))
    return batches, ratio, box


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(adversaries())
def test_pooled_ratios_are_kept_after_every_batch(adversary):
    batches, ratio, box = adversary
    stream, emitted = Stream([RatioParity(ratio)], bounds=box), Ratios()
    for z, groups in batches:
        solution = stream.update(z, groups)
        emitted.add(solution.value, groups)
        assert solution.status in (Status.OPTIMAL, Status.VACUOUS)
        assert solution.value.min() >= box[0]
        assert emitted.keep(ratio)


def test_a_long_stream_one_at_a_time_costs_little_more_than_the_optimum():
    rng = np.random.default_rng(3)
    n, ratio = 1500, 0.8
    sex = rng.integers(0, 2, n)
    z = np.clip(rng.normal(0.35 + 0.25 * sex, 0.15), 0, 1)
    stream, emitted, values = Stream([RatioParity(ratio)], bounds=(0, 1)), Ratios(), []
    for i in range(n):
        value = stream.update(z[i : i + 1], sex[i : i + 1]).value
        emitted.add(value, sex[i : i + 1, None])
        values.append(value[0])
        if i % 100 == 0:
            assert emitted.keep(ratio)
    assert emitted.keep(ratio)
    half = slice(n // 2, None)
    best = project_batch(z, sex, RatioParity(ratio), (0, 1)).value
    assert np.sum((np.array(values) - z)[half] ** 2) < 1.3 * np.sum((best - z)[half] ** 2)
    report = stream.certificate().constraints[0]
    assert report.satisfied
    assert "pooled ratio 0.8" in str(report)


def test_a_stream_goes_on_from_its_store(tmp_path):
    z, groups = people(300)
    whole, stored = Stream([RatioParity(0.8)], bounds=(0, 1)), tmp_path / "ratio.db"
    for start in range(0, 300, 30):
        some = {name: column[start : start + 30] for name, column in groups.items()}
        expected = whole.update(z[start : start + 30], some).value
        stream = Stream([RatioParity(0.8)], bounds=(0, 1), store=str(stored))
        np.testing.assert_array_equal(stream.update(z[start : start + 30], some).value, expected)
        stream.close()
    stream = Stream([RatioParity(0.8)], bounds=(0, 1), store=str(stored))
    assert stream.verify()
    stream.close()


def test_algorithm_1_prices_the_excess():
    z, groups = people(400)
    stream = Stream([RatioParity(0.9, over="sex")], bounds=(0, 1), policy="primal-dual", b_tau=50)
    for start in range(0, 400, 20):
        stream.update(z[start : start + 20], {"sex": groups["sex"][start : start + 20]})
    means = sorted(z[groups["sex"] == label].mean() for label in "fm")
    before = 1.0 - means[0] / means[1]
    assert stream.certificate().multiplier > 0
    assert stream.certificate().constraints[0].gap < before


def test_frozen_shifts_come_with_a_statement_about_the_ratio():
    z, groups = people(20_000)
    frozen = freeze(FairLayer([RatioParity(0.8, over="sex")], bounds=(0, 1)), z, groups, tighten=True)
    assert frozen.certificate.satisfied
    assert frozen.certificate.rows[0].tolerance == pytest.approx(0.2)
    fresh, fresh_groups = people(20_000, seed=1)
    served = frozen(torch.tensor(fresh), frozen.encode(fresh_groups))
    assert Ratios().add(served, {"sex": fresh_groups["sex"]}).keep(0.8)
    loose = freeze(FairLayer([RatioParity(0.8, over="sex")], bounds=(0, 1)), z, groups)
    row = loose.certificate.rows[0]
    assert row.measured < row.bound < row.measured + 0.1


def test_too_small_a_sample_is_told_how_many_are_needed():
    z, groups = people(300)
    with pytest.raises(InputError, match=r"sample of 300 is too small .* Remedy: about \d+ samples"):
        freeze(FairLayer([RatioParity(0.95, over="sex")], bounds=(0, 1)), z, groups, tighten=True)


def test_an_audit_judges_the_ratio():
    z, groups = people(4000)
    result = audit(z, groups, [RatioParity(0.8, over="sex"), MeanParity(0.5, over="sex")])
    found = next(finding for finding in result.findings if finding.kind == "RatioParity")
    means = sorted(found.means)
    assert found.ratio == pytest.approx(means[0] / means[1])
    assert found.tolerance == pytest.approx(0.2)
    assert not found.holds
    assert found.verdict.name == "VIOLATED"
    fair = project_batch(z, groups, RatioParity(0.8), (0, 1)).value
    (kept,) = audit(fair, groups, RatioParity(0.8, over="sex")).findings
    assert kept.holds
    assert kept.ratio == pytest.approx(0.8)
    assert kept.interval[0] < kept.gap < kept.interval[1]


def test_intervals_of_the_ratio_cover_it():
    rng, hits, ratio = np.random.default_rng(0), 0, 0.3 / 0.4
    for _ in range(100):
        sex = np.repeat([0, 1], [60, 90])
        y = (rng.random(150) < np.where(sex == 0, 0.3, 0.4)).astype(float)
        low, high = audit(y, sex, RatioParity(0.8), tradeoff=False).findings[0].interval
        hits += low <= ratio - 1.0 <= high
    assert hits >= 90
