"""What a certificate says, against what was emitted."""

import json

import numpy as np
import pytest
from arrivals import arrivals
from pooled import Pool

from fairlayer import EqualizedOdds, EqualizedResiduals, MeanParity, Stream


def test_its_fields_are_what_was_emitted():
    stream = Stream([MeanParity(0.04, name="fair"), MeanParity(0.3, over="age")], bounds=(0.0, 1.0), name="loans")
    pool, age, changes, largest = Pool(), Pool(), [], 0.0
    emitted, sex = [], []
    for z, groups in arrivals(50, 5):
        value = stream.update(z, groups).value
        pool.add(value, groups)
        age.add(value, {"age": groups["age"]})
        changes += list(value - z)
        emitted += list(value)
        sex += list(groups["sex"])
        largest = max(largest, float(pool.largest_gap()))
    certificate = stream.certificate()
    changes = np.abs(changes)
    assert (certificate.stream, certificate.policy) == ("loans", "ledger")
    assert (certificate.samples, certificate.batches) == (250, 50)
    fair, second = certificate.constraints
    assert (fair.constraint, fair.tolerance, second.constraint) == ("fair", 0.04, "mean parity")
    assert fair.gap == pytest.approx(float(pool.largest_gap()), abs=1e-12)
    assert second.gap == pytest.approx(float(age.largest_gap()), abs=1e-12)
    assert fair.largest_gap == pytest.approx(largest, abs=1e-12)
    assert fair.satisfied
    assert certificate.satisfied
    assert certificate.changed == (changes > 0).mean()
    assert certificate.mean_change == pytest.approx(changes.mean())
    assert certificate.mean_squared_change == pytest.approx((changes**2).mean())
    assert certificate.largest_change == pytest.approx(changes.max())
    assert certificate.excess == 0.0
    assert certificate.hash == list(stream._store.entries())[-1].hash
    means = {group.group: (group.count, group.mean) for group in certificate.groups}
    members = np.array(sex) == 1
    count, mean = means["fair, sex: 1"]
    assert count == members.sum()
    assert mean == pytest.approx(np.array(emitted)[members].mean())
    assert json.loads(json.dumps(certificate.to_dict()))["constraints"][0]["tolerance"] == 0.04
    for part in ("250 decisions in 50 batches", "within tolerance 0.04", "sex: 1", certificate.hash):
        assert part in str(certificate)


def test_a_stream_that_has_decided_little_can_be_asked():
    """Its attributes come with the first batch; one group alone is nothing to compare."""
    stream = Stream([MeanParity(0.1, over=["sex", ("sex", "age")])])
    certificate = stream.certificate()
    assert (certificate.samples, certificate.groups, stream.gaps()) == (0, (), {})
    assert (certificate.constraints[0].gap, certificate.constraints[0].largest_gap) == (None, None)
    assert not certificate.satisfied
    assert "0 decisions" in str(certificate)
    assert "not known yet" in str(certificate)
    assert stream.timeline().steps == ()
    assert stream.verify()
    stream.update([0.5], {"sex": ["f"], "age": [0]})
    certificate = stream.certificate()
    assert not certificate.satisfied
    for part in ("1 decision in 1 batch\n", "f: 1 decision, mean", "The first decision follows"):
        assert part in str(certificate)
    stream.update([0.4], {"sex": ["m"], "age": [0]})
    assert stream.certificate().satisfied


def test_algorithm_1_has_fields_of_its_own():
    names = ("multiplier", "largest_multiplier", "accumulated_excess", "accumulated_excess_bound")
    for policy, kind in (("ledger", type(None)), ("primal-dual", float)):
        stream = Stream([MeanParity(0.1)], policy=policy)
        stream.update(*next(arrivals(1, 12)))
        assert all(isinstance(getattr(stream.certificate(), name), kind) for name in names)


@pytest.mark.parametrize("constraint", [EqualizedOdds(0.1), EqualizedResiduals(0.1)])
def test_rows_that_wait_for_targets_are_not_called_satisfied(constraint):
    stream = Stream([constraint, MeanParity(5.0)])
    stream.update(np.array([0.0, 1.0]), np.array([0, 1]), ids="ab")
    certificate = stream.certificate()
    needs, other = certificate.constraints
    assert (needs.gap, needs.largest_gap, needs.satisfied) == (None, None, False)
    assert other.satisfied
    assert not certificate.satisfied
    assert certificate.waiting == 2
    assert "pooled gap not known yet" in str(certificate)
    assert "2 decisions are waiting for their targets" in str(certificate)
    gaps = stream.observe("ab", [1.0, 1.0])
    assert gaps == stream.gaps()
    assert sorted(abs(gap) for gap in gaps.values()) == [1.0, 1.0]
    after = stream.certificate()
    assert after.waiting == 0
    assert (after.constraints[0].gap, after.constraints[0].largest_gap) == (1.0, 1.0)
    assert not after.satisfied
    assert "wait" not in str(after)


def test_the_timeline_is_what_the_stream_was_at_each_time():
    rng = np.random.default_rng(0)
    past = rng.random(20), {"g": rng.choice(["a", "b"], 20)}
    stream = Stream([EqualizedOdds(0.1), MeanParity(0.05)], bounds=(0, 1), warm_start=past)
    expected = [(None, None)]
    for number in range(30):
        ids = [f"{number}-{i}" for i in range(3)]
        stream.update(rng.random(3), {"g": rng.choice(["a", "b"], 3)}, ids=ids)
        expected.append(tuple(report.gap for report in stream.certificate().constraints))
        if number % 2:
            stream.observe(ids, rng.integers(0, 2, 3))
            expected.append(tuple(report.gap for report in stream.certificate().constraints))
    steps = stream.timeline().steps
    assert [step.gaps for step in steps] == expected
    assert [step.kind for step in steps[:4]] == ["warm start", "batch", "batch", "targets"]
    certificate = stream.certificate()
    assert steps[-1].samples == certificate.samples == 90
    assert [(g.group, g.count) for g in steps[-1].groups] == [(g.group, g.count) for g in certificate.groups]
    assert sum(step.change for step in steps) / 90 == pytest.approx(certificate.mean_change)
    few = stream.timeline().condensed(7)
    assert len(few) == 7
    assert sum(step.decisions for step in few) == 90
    assert few[-1].number == steps[-1].number
    largest = [max(gap[k] or 0.0 for gap in expected) for k in range(2)]
    assert [max(step.gaps[k] or 0.0 for step in few) for k in range(2)] == largest
    assert stream.verify()


def test_groups_that_are_not_drawn_are_told(tmp_path):
    pytest.importorskip("jinja2")
    from fairlayer.report.stream_page import render_stream

    stream = Stream([MeanParity(0.1)])
    for _ in range(3):
        stream.update(np.linspace(0.1, 0.9, 7), list("abcdefg"))
    page = render_stream(stream.certificate(), stream.timeline().steps, stream.verify(), {})
    panel = page[page.index("Means over time") :]
    assert panel.index("The 6 largest of 7 groups.") < panel.index("</figcaption>")
