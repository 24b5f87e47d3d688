"""The simulator: seeds without a broken invariant, bugs planted by hand found, and what fails fails again."""

import pytest
from simulate import main, simulate
from simulator.bugs import BUGS

SEEDS = 60


def test_no_seed_breaks_an_invariant():
    results = [simulate(seed) for seed in range(SEEDS)]
    assert [(result.seed, result.broken) for result in results if result.broken] == []
    assert sum(result.faults for result in results) > SEEDS
    happened = "\n".join(line for result in results for line in result.trace)
    for fault in (
        "the server dies; version",
        "comes back with a stale copy",
        "comes back with half a write",
        "dies",
        "statements arrive, no reply",
        "no reply",
    ):
        assert fault in happened


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name):
    with BUGS[name]():
        first = next((result for seed in range(1000) if (result := simulate(seed)).broken), None)
        assert first is not None
        again = simulate(first.seed)
    assert (again.broken, again.digest, again.trace) == (first.broken, first.digest, first.trace)
    assert simulate(first.seed).broken is None  # without the bug


def test_one_seed_is_always_the_same():
    for seed in range(3):
        assert simulate(seed) == simulate(seed)


def test_the_command(capsys):
    assert main(["--seed", "3"]) == 0
    assert "broken=None" in capsys.readouterr().out
    assert main(["--seeds", "20", "--workers", "1"]) == 0
    assert "20 seeds" in capsys.readouterr().out
    assert main(["--seeds", "1", "--first", "3", "--workers", "1"]) == 0
