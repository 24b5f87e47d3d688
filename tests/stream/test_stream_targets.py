"""Targets that come with a batch, later, or never."""

import numpy as np
import pytest
from pooled import Pool

from fairlayer import ConditionalParity, EqualizedOdds, EqualizedResiduals, InputError, MeanParity, ResidualMean, Stream
from fairlayer.solution import Status


def people(count, size, seed=0):
    """Outputs, groups and binary targets; both the outputs and the targets differ by group."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        groups = rng.integers(0, 2, size)
        targets = (rng.random(size) < 0.4 + 0.2 * groups).astype(float)
        yield rng.normal(0.3 + 0.2 * groups + 0.3 * targets, 0.15), groups, targets


def odds_gap(emitted, groups, targets):
    """The largest gap among samples of one class, over everything."""
    pools = [Pool(), Pool()]
    for label, pool in enumerate(pools):
        pool.add(emitted[targets == label], {"a": groups[targets == label]})
    return float(max(pool.largest_gap() for pool in pools))


def joined(parts):
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))


@pytest.mark.parametrize(
    ("constraint", "gap"),
    [
        (EqualizedOdds(0.02), odds_gap),
        (EqualizedResiduals(0.02), lambda y, g, t: abs((y - t)[g == 0].mean() - (y - t)[g == 1].mean())),
        (ResidualMean(0.02), lambda y, g, t: max(abs((y - t)[g == 0].mean()), abs((y - t)[g == 1].mean()))),
    ],
)
def test_with_targets_the_pooled_rows_hold(constraint, gap):
    """Without a box there is always an output that meets them."""
    stream, parts = Stream([constraint]), []
    for z, groups, targets in people(60, 5):
        solution = stream.update(z, groups, targets=targets)
        parts.append((solution.value, groups, targets))
        if solution.status in (Status.OPTIMAL, Status.VACUOUS):
            assert np.abs(solution.gaps).max(initial=0.0) <= 0.02
    assert solution.status is Status.OPTIMAL
    assert gap(*joined(parts)) <= 0.02 + 1e-12


def test_targets_that_come_later_give_the_same_ledger_as_targets_at_once():
    stream, parts = Stream([EqualizedOdds(0.05)]), []
    for number, (z, groups, targets) in enumerate(people(40, 6)):
        ids = [f"{number}-{i}" for i in range(6)]
        solution = stream.update(z, groups, ids=ids)
        assert solution.status is Status.UNCERTIFIED
        stream.observe(ids[::-1], targets[::-1])
        parts.append((solution.value, groups, targets))
    emitted, groups, targets = joined(parts)
    gaps = stream.gaps()
    assert max(map(abs, gaps.values())) == pytest.approx(odds_gap(emitted, groups, targets), abs=1e-12)
    assert len(gaps) == 2
    certificate = stream.certificate()
    assert sum(group.count for group in certificate.groups) == 40 * 6
    assert certificate.samples == 40 * 6
    assert stream.verify()


def test_the_leader_learns_from_late_targets():
    """Uncertified, yet the shift learned from labels brings the gap down, as a stream without labels cannot."""
    parts, blind = [], []
    stream = Stream([EqualizedOdds(0.02)])
    for number, (z, groups, targets) in enumerate(people(200, 4)):
        ids = [f"{number}-{i}" for i in range(4)]
        parts.append((stream.update(z, groups, ids=ids).value, groups, targets))
        blind.append((z, groups, targets))
        stream.observe(ids, targets)
    assert odds_gap(*joined(parts[100:])) < 0.4 * odds_gap(*joined(blind[100:]))


def test_rows_that_need_no_targets_hold_meanwhile():
    stream, pool = Stream([MeanParity(0.03), EqualizedOdds(0.1)]), Pool()
    for number, (z, groups, targets) in enumerate(people(40, 3)):
        ids = [f"{number}-{i}" for i in range(3)]
        solution = stream.update(z, groups, ids=ids)
        pool.add(solution.value, {"a": groups})
        assert pool.keeps(0.03)
        assert solution.status is Status.UNCERTIFIED
        if number % 5 == 4:
            stream.observe(ids, targets)


def test_what_cannot_be_observed_is_refused_and_changes_nothing(location):
    for options in ({}, {"store": location}):
        stream = Stream([EqualizedOdds(0.05)], **options)
        z, groups, targets = next(iter(people(1, 4)))
        stream.update(z, groups, ids="abcd")
        before = stream.gaps(), stream.certificate()
        for keys, values, message in [
            (["a", "x"], [0.0, 1.0], "'x'"), (["a", "a"], [0.0, 1.0], "no two alike"), (["a"], [np.nan], "finite"),
            (["a", "b"], [1.0], "names"),
        ]:  # fmt: skip
            with pytest.raises(InputError, match=message):
                stream.observe(keys, values)
        with pytest.raises(InputError, match="'b'"):  # it is still waiting
            stream.update(z, groups, ids="befg")
        assert stream.observe([], []) == before[0]
        assert (stream.gaps(), stream.certificate()) == before
        stream.observe("abcd", targets)
        with pytest.raises(InputError, match="observed before"):
            stream.observe(["a"], [1.0])
        assert stream.verify().entries == 2
        stream.update(z, groups, ids="befg")
        stream.observe("befg", targets)
        assert stream.verify()


def test_targets_too_many_to_be_classes_leave_the_decisions_waiting():
    stream = Stream([EqualizedOdds(0.05)])
    rng = np.random.default_rng(0)
    ids = [str(i) for i in range(60)]
    stream.update(rng.random(60), rng.integers(0, 2, 60), ids=ids)
    with pytest.raises(InputError, match="too many to be classes"):
        stream.observe(ids, rng.permutation(60))
    stream.observe(ids, rng.integers(0, 2, 60))
    assert stream.verify()


@pytest.mark.parametrize(
    ("options", "known", "message"),
    [
        ({}, {}, "ids is missing"),
        ({}, {"ids": ["a", "a", "b"]}, "no two alike"),
        ({}, {"ids": 5}, "ids must be 3 names"),
        ({}, {"ids": ["a", "b", "\ud800"]}, "not valid text"),
        ({}, {"targets": [0, 1]}, "targets has 2"),
        ({}, {"targets": ["a", "b", "c"]}, "targets of a stream must be numbers"),
        ({"policy": "primal-dual"}, {"ids": "abc"}, "targets is missing"),
    ],
)
def test_targets_and_ids_of_the_wrong_form_are_refused(options, known, message):
    with pytest.raises(InputError, match=message):
        Stream([EqualizedOdds(0.05)], **options).update(np.zeros(3), np.array([0, 1, 1]), **known)


def test_conflicting_rows_reach_the_least_violation_and_say_so():
    """Means of 0 and 1 are wanted within [0.4, 0.6]: 0.4 short on either side is the best there is."""
    stream = Stream([ResidualMean(0.0)], bounds=(0.4, 0.6))
    solution = stream.update(np.array([0.5, 0.5]), np.array([0, 1]), targets=np.array([0.0, 1.0]))
    assert solution.status is Status.RELAXED
    assert solution.excess == pytest.approx(0.4, abs=1e-3)
    np.testing.assert_allclose(solution.value, [0.4, 0.6], atol=1e-3)
    assert stream.certificate().excess == solution.excess


@pytest.mark.parametrize(
    "constraint",
    [
        EqualizedOdds(0.1),
        EqualizedOdds(0.1, regions=[(None, 0.5), (0.5, None)]),
        ConditionalParity(0.05, regions={"age": [(None, 40), (40, None)]}),
        ConditionalParity(0.05, regions={"age": [(None, 50), (30, None)]}),
    ],
)
def test_conditions_and_late_targets_continue_after_reopening(tmp_path, constraint):
    memory, rng = Stream([constraint]), np.random.default_rng(3)
    for number, (z, groups, targets) in enumerate(people(12, 4)):
        more = {"features": {"age": rng.integers(20, 70, 4)}}
        if constraint.needs_targets:
            more = {"ids": [f"{number}-{i}" for i in range(4)]}
        stream = Stream([constraint], store=tmp_path / "a.db")
        assert stream.update(z, groups, **more).value.tobytes() == memory.update(z, groups, **more).value.tobytes()
        stream.close()
        stream = Stream([constraint], store=tmp_path / "a.db")
        for one in (stream, memory) if "ids" in more else ():
            one.observe(more["ids"], targets)
        assert stream.gaps() == memory.gaps()
        assert stream.verify()
        stream.close()


def test_past_data_bring_the_features_that_constraints_need():
    constraint, rng = ConditionalParity(0.05, regions={"age": [(None, 40), (40, None)]}), np.random.default_rng(0)
    with pytest.raises(InputError, match="3 entries for 2"):
        Stream([constraint]).update(np.array([0.0, 1.0]), np.array([0, 1]), features={"age": [1, 2, 3]})
    groups, age = rng.integers(0, 2, 200), rng.integers(20, 60, 200)
    raw = rng.random(200) + groups
    with pytest.raises(InputError, match=r"warm_start must be \(raw, groups, features\)"):
        Stream([constraint], warm_start=(raw, groups))
    stream = Stream([constraint], warm_start=(raw, groups, {"age": age}))
    assert np.ptp(stream.ledger.leader.shift()) > 0.5
    assert stream.verify()
