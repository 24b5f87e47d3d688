"""The ledger of decisions: rates within the tolerance and half a decision per group, after every single one."""

import json
import sqlite3

import numpy as np
import pytest
import torch
from arrivals import adversaries, arrivals, some
from hypothesis import given
from hypothesis import strategies as st
from pooled import RatePool

from fairlayer import EqualizedOdds, InputError, MeanParity, RateParity, Stream
from fairlayer.solution import Status

some_promise = st.one_of(
    st.floats(0.0, 0.5).map(lambda tolerance: {"tolerance": tolerance}),
    st.sampled_from([{"tolerance": 0.0}, {"tolerance": 0.02}, {"ratio": 0.8}, {"ratio": 1.0}, {"ratio": 0.1}]),
)


@some
@given(
    adversaries(largest=64, most=20), some_promise, st.sampled_from([0.5, 0.3, 0.7, 0.0]),
    st.sampled_from([np.float64, np.float32]),
)  # fmt: skip
def test_rates_are_kept_after_every_decision(batches, promise, threshold, dtype):
    stream = Stream([RateParity(**promise, threshold=threshold)])
    pool = RatePool(**promise, threshold=threshold)
    for z, groups in batches:
        solution = stream.update((threshold + z).astype(dtype), groups)
        pool.add(solution.value, groups)
        assert solution.value.dtype == dtype
        assert solution.status in (Status.OPTIMAL, Status.VACUOUS, Status.GRANULAR)
        assert pool.broken == 0
    if "tolerance" in promise:
        np.testing.assert_allclose(max(np.abs(solution.gaps), default=0.0), float(pool.largest_gap()), atol=1e-12)
        if solution.status is not Status.GRANULAR:
            assert pool.largest_gap() <= promise["tolerance"] * (1 + 1e-8)
    certificate = stream.certificate()
    assert certificate.kept == (certificate.constraints[0].gap is not None)
    assert certificate.samples == pool.samples


@pytest.mark.parametrize("seed", [18, 121, 122, 217])
def test_cells_that_come_later_in_a_batch_lend_nothing(seed):
    """Half a decision is promised for each cell that has one, not for those whose first is still to come."""
    rng = np.random.default_rng(seed)
    stream, pool = Stream([RateParity(0.02)]), RatePool(0.02, threshold=0.5)
    for n in (1, 1, 64, 64):
        z, groups = rng.normal(0.5, 1.0, n), rng.integers(0, 3, (n, 2))
        pool.add(stream.update(z, groups).value, groups)
    assert pool.broken == 0


def against(stream, groups, rng):
    """The sample that would widen the widest gap: a yes for who has more, a no for who has less."""
    gap = next(iter(stream.gaps().values()), 0.0)
    row = rng.integers(0, groups, groups.size)
    return (1.0 if (gap >= 0) == (row[0] == 0) else -1.0) * rng.choice([0.1, 5.0, 1e12]), row


@pytest.mark.parametrize(
    ("attributes", "promise"),
    [(1, {"tolerance": 0.01}), (4, {"tolerance": 0.01}), (2, {"ratio": 0.9}), (3, {"ratio": 0.9})],
)
def test_an_adversary_who_sees_the_gaps(attributes, promise):
    rng = np.random.default_rng(attributes)
    stream, pool = Stream([RateParity(**promise, threshold=0.0)]), RatePool(**promise, threshold=0.0)
    for _ in range(300):
        z, row = against(stream, np.full(attributes, 2 + attributes % 2), rng)
        pool.add(stream.update(np.array([z]), row[None]).value, row[None])
    assert pool.broken == 0
    assert stream.certificate().overruled > 0


def test_the_half_decision_is_used_and_cannot_be_done_without():
    """The first member of a group gets 0 or 1, whatever the others have."""
    stream, pool = Stream([RateParity(0.0)]), RatePool(0.0)
    for z, g in [(0.9, 0), (0.1, 0), (0.9, 1), (0.1, 0), (0.2, 2)]:
        pool.add(stream.update(np.array([z]), np.array([g])).value, np.array([[g]]))
    assert pool.broken == 0
    assert pool.beyond


def test_a_limit_per_constraint_and_intersections():
    """Attribute a closely, b by ratio, and their combinations loosely: each has a range of its own."""
    rng = np.random.default_rng(2)
    stream = Stream([RateParity(0.01, over="a"), RateParity(ratio=0.5, over="b"), RateParity(0.3, over=("a", "b"))])
    pools = [RatePool(0.01, over="a"), RatePool(ratio=0.5, over="b"), RatePool(0.3, over="both")]
    for _ in range(200):
        n = int(rng.integers(1, 6))
        a, b = rng.integers(0, 2, n), rng.integers(0, 3, n)
        value = stream.update(rng.normal(0.5 + 0.3 * a - 0.2 * b, 0.5), {"a": a, "b": b}).value
        for pool in pools:
            pool.add(value, {"a": a, "b": b, "both": 3 * a + b})
    assert [pool.broken for pool in pools] == [0, 0, 0]
    assert stream.certificate().kept


@pytest.mark.parametrize(
    ("dtype", "threshold"), [(np.float32, 0.7), (np.float64, 0.1), (np.float64, 0.3), (np.float32, 0.5)]
)
def test_emitted_scores_are_raw_ones_or_next_to_the_threshold(dtype, threshold):
    rng = np.random.default_rng(3)
    stream = Stream([RateParity(0.01, threshold=threshold)], bounds=(0, 1))
    for _ in range(60):
        groups = rng.integers(0, 2, (5, 2))
        z = (rng.random(5) * 1.4 - 0.2 + 0.3 * groups[:, 0]).astype(dtype)
        value = stream.update(z, groups).value
        assert ((value >= 0) & (value <= 1)).all()
        within = np.clip(z, 0, 1)
        moved = value[value != within].astype(np.float64)
        assert (np.abs(moved - threshold) <= 4 * np.finfo(dtype).eps * threshold).all()
        # The same decision whether the threshold is rounded to the dtype or not.
        as_is, rounded = value.astype(np.float64) >= threshold, value >= dtype(threshold)
        assert (as_is == rounded).all()
        assert (as_is == (torch.from_numpy(value) >= threshold).numpy()).all()


def test_a_stream_left_to_itself_changes_nothing():
    """Equal rates need no other decisions, and scores come back as they were."""
    stream = Stream([RateParity(0.5)], bounds=(0, 1))
    z, groups = np.tile([0.2, 0.8], 40), np.repeat(np.tile([0, 1], 20), 2)
    for i in range(0, 80, 2):
        np.testing.assert_array_equal(stream.update(z[i : i + 2], groups[i : i + 2]).value, z[i : i + 2])
    assert stream.certificate().changed == 0.0
    assert stream.certificate().overruled == 0


def draw(n, seed, share=0.3):
    rng = np.random.default_rng(seed)
    groups = (rng.random((n, 2)) < (share, 0.5)).astype(np.int64)
    return 0.4 + 0.25 * rng.standard_normal(n) + groups @ (0.25, -0.15), groups


def squared_change(stream, z, groups, size=1):
    values = [stream.update(z[i : i + size], groups[i : i + size]).value for i in range(0, len(z), size)]
    return (np.concatenate(values) - z) ** 2


def test_the_leader_learns_thresholds_and_is_seldom_overruled():
    """The cheapest thresholds are found by trying all: one pair per rate at which two groups meet."""
    z, groups = draw(6000, 1)
    groups = groups[:, :1]
    stream = Stream([RateParity(0.02)])
    change = squared_change(stream, z, groups, size=2)
    rates = np.linspace(0.2, 0.7, 501)
    costs = []
    for rate in rates:
        cost = 0.0
        for group, aim in ((0, rate), (1, rate + 0.02)):
            mine = z[groups[:, 0] == group]
            at = np.quantile(mine, 1.0 - aim)
            cost += ((mine - 0.5) ** 2)[(mine >= min(at, 0.5)) & (mine < max(at, 0.5))].sum()
        costs.append(cost)
    best = min(costs)
    assert change.sum() < 2.0 * best  # early decisions pay for the promise
    assert change[3000:].sum() < 1.3 * best / 2
    assert stream.certificate().overruled < 0.005 * len(z)


def test_past_data_teach_without_entering_the_ledger():
    past, saved = draw(1000, 5), 0.0
    for seed in range(6, 10):
        cold, warm = Stream([RateParity(0.02)]), Stream([RateParity(0.02)], warm_start=past)
        assert warm.certificate().samples == 0
        assert np.ptp(warm.ledger.leader.thresholds()) > 0.2
        z, groups = draw(400, seed)
        saved += squared_change(cold, z, groups).sum() - squared_change(warm, z, groups).sum()
    assert saved > 0.0


def test_thresholds_follow_a_drift():
    z, groups = draw(6000, 8)
    z[3000:] += 0.4
    stream, pool = Stream([RateParity(0.02)]), RatePool(0.02)
    for i in range(0, 6000, 2):
        pool.add(stream.update(z[i : i + 2], groups[i : i + 2]).value, groups[i : i + 2])
    assert pool.broken == 0
    assert stream.certificate().overruled < 0.01 * 6000


def test_the_certificate_says_what_is_promised_and_what_was_overruled():
    stream, pool = Stream([RateParity(0.01)], bounds=(0, 1)), RatePool(0.01)
    overruled = 0
    for i, (z, g) in enumerate(zip(*draw(150, 9), strict=True)):
        cell = stream.ledger.index.number([*g], new=False) if i else -1
        wanted = z >= (stream.ledger.leader.thresholds()[cell] if i > 40 else np.nan)
        value = stream.update(np.array([z]), g[None]).value
        overruled += i > 40 and bool(wanted) != bool(value[0] >= 0.5)
        pool.add(value, g[None])
        if i == 40:
            before = stream.certificate().overruled
        certificate = stream.certificate()
        report = certificate.constraints[0]
        assert report.kept or report.gap is None
        assert report.satisfied == (report.gap is not None and pool.largest_gap() <= 0.01)
        if report.gap is not None:
            assert report.gap <= report.bound
    assert certificate.overruled - before == overruled
    rates = {group.group: (group.count, group.mean) for group in certificate.groups}
    for name in (0, 1):
        for label in (0, 1):
            count, rate = pool.count(name, label)
            assert rates[f"rate parity, {name}: {label}"] == (count, pytest.approx(float(rate)))
    assert (certificate.threshold, certificate.groups[0].measure) == (0.5, "rate")
    assert "thresholds overruled" in str(certificate)
    young = Stream([RateParity(0.01)])
    solution = young.update(np.array([0.9, 0.1]), np.array([0, 1]))
    assert (solution.status, list(solution.gaps)) == (Status.GRANULAR, [1.0])
    assert not solution.satisfied
    assert not young.certificate().satisfied
    assert young.certificate().kept
    assert "within what is promised" in str(young.certificate())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"constraints": [RateParity(0.1), MeanParity(0.1)]}, "about decisions or about means"),
        ({"constraints": [RateParity(0.1, given=1)]}, "given=1"),
        ({"constraints": [RateParity(0.1, given="each"), RateParity(0.1)]}, "given='each'"),
        ({"constraints": [RateParity(0.1), RateParity(0.1, threshold=0.4)]}, "several thresholds"),
        ({"constraints": [RateParity(0.1)], "policy": "primal-dual"}, "policy='ledger' and"),
        ({"constraints": [RateParity(0.1)], "each_batch": True}, "policy='ledger' and"),
        ({"constraints": [RateParity(0.1, threshold=2.0)], "bounds": (0, 1)}, "both sides"),
        ({"constraints": [RateParity(0.1, threshold=0.0)], "bounds": (0, 1)}, "both sides"),
        ({"constraints": [RateParity(0.1), EqualizedOdds(0.1)]}, "about decisions or about means"),
    ],
)
def test_what_cannot_be_promised_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        Stream(**options)


def test_a_dtype_without_room_at_the_threshold_is_refused_and_nothing_is_lost():
    stream = Stream([RateParity(0.1, threshold=0.7)], bounds=(0.0, 0.7))
    stream.update(np.array([0.2, 0.7]), np.array([0, 1]))
    before = stream.ledger.to_bytes()
    with pytest.raises(InputError, match="float32"):
        stream.update(np.array([0.2, 0.6], dtype=np.float32), np.array([0, 1]))
    assert stream.ledger.to_bytes() == before
    with pytest.raises(InputError, match="nothing to observe"):
        stream.observe(["a"], [1.0])


def test_the_log_counts_decisions_and_proves_the_ledger(tmp_path):
    path = tmp_path / "stream.db"
    stream, overruled, yes = Stream([RateParity(0.03)], store=path), 0, 0
    for batch in arrivals(50, seed=4):
        yes += int((stream.update(*batch).value >= 0.5).sum())
    for entry in stream.entries():
        payload = json.loads(entry.payload)
        overruled += payload["overruled"]
        assert all(float(after[1]).is_integer() and after[1] <= after[0] for _, after in payload["cells"].values())
    certificate = stream.certificate()
    assert overruled == certificate.overruled
    assert stream.ledger.state.total.sum() == yes
    steps = stream.timeline().steps
    assert steps[-1].gaps[0] == certificate.constraints[0].gap
    assert [group.mean for group in steps[-1].groups] == [group.mean for group in certificate.groups]
    stream.close()
    with sqlite3.connect(path) as connection:  # one yes more in the log
        text = connection.execute("SELECT payload FROM fairlayer_log WHERE number = 20").fetchone()[0]
        payload = json.loads(text)
        next(iter(payload["cells"].values()))[1][1] += 1.0
        connection.execute("UPDATE fairlayer_log SET payload = ? WHERE number = 20", (json.dumps(payload),))
    assert not Stream.open(path, read_only=True).verify()


def test_the_page_and_the_commands_speak_of_rates(tmp_path):
    pytest.importorskip("duckdb")
    pytest.importorskip("jinja2")
    runner = pytest.importorskip("typer.testing").CliRunner()

    from fairlayer.cli.app import app

    path = tmp_path / "stream.db"
    Stream([RateParity(0.03)], store=path).update(np.array([0.9, 0.1]), {"sex": [0, 1], "age": [0, 0]})
    said = ""
    for command in (["show"], ["certificate", "-o", str(tmp_path / "page.html")]):
        result = runner.invoke(app, ["stream", command[0], str(path), *command[1:]])
        assert result.exit_code == 0, result.stderr
        said += " ".join(result.stdout.split())
    for words in ("GRANULAR", "raw rate", "within what is promised", "thresholds overruled: 0 times"):
        assert words in said
    page = (tmp_path / "page.html").read_text()
    for words in ("Rates of groups", "half a decision of each group, as decisions are whole", "promised now"):
        assert words in page
    data = json.loads((tmp_path / "page.json").read_text())["certificate"]
    assert (data["kept"], data["satisfied"], data["threshold"], data["overruled"]) == (True, False, 0.5, 0)
