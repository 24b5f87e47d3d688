"""Group commit: batches of callers that wait at the same time share a transaction, and each gets its own outcome."""

import threading
from contextlib import suppress

import numpy as np
import pytest
from arrivals import arrivals
from wire import wire

from fairlayer import InputError, MeanParity, Stream
from fairlayer.errors import StoreError, UncertainError
from fairlayer.solution import Solution
from fairlayer.stream.group_commit import GroupCommit

BATCHES = list(arrivals(12, 4))


def make(store, **options):
    return Stream([MeanParity(0.05)], store=store, levels={"sex": [0, 1], "age": [0, 1, 2]}, **options)


class Crowd:
    """Callers that come while another one holds the stream, so that one group takes them all."""

    def __init__(self, stream, monkeypatch):
        self.stream = stream
        self.groups = []
        decide = GroupCommit._decide

        def noted(group, works):
            self.groups.append(len(works))
            decide(group, works)

        monkeypatch.setattr(GroupCommit, "_decide", noted)

    def call(self, batches):
        """The outcome of each, in their order."""
        outcomes = [None] * len(batches)

        def one(number):
            try:
                outcomes[number] = self.stream.update(*batches[number], batch_id=f"batch {number}")
            except Exception as error:
                outcomes[number] = error

        threads = [threading.Thread(target=one, args=(number,)) for number in range(len(batches))]
        with self.stream._turn:  # the first to come leads, and waits here
            for thread in threads:
                thread.start()
            while len(self.stream._group._queue) < len(batches) - 1 + (not self.groups):
                pass
        for thread in threads:
            thread.join()
        return outcomes


def bad(number):
    z, groups = BATCHES[number]
    return z, {**groups, "sex": np.full(len(z), 7)}


def test_callers_who_wait_share_a_transaction(location, monkeypatch):
    stream = make(location)
    crowd = Crowd(stream, monkeypatch)
    outcomes = crowd.call(BATCHES[:9])
    assert sorted(crowd.groups) == [1, 8]
    order = [entry.batch_id for entry in stream.entries()]
    assert sorted(order) == sorted(f"batch {number}" for number in range(9))
    undisturbed = Stream([MeanParity(0.05)])  # decided one after another, in the order of the log
    for label in order:
        number = int(label.split()[1])
        assert (undisturbed.update(*BATCHES[number]).value == outcomes[number].value).all()
    assert stream.certificate().batches == 9
    assert stream.verify()


def test_a_batch_that_is_refused_fails_alone(location, monkeypatch):
    stream = make(location)
    stream.update(*BATCHES[0])
    crowd = Crowd(stream, monkeypatch)
    outcomes = crowd.call([BATCHES[1], bad(2), BATCHES[3], bad(4), BATCHES[5]])
    assert [type(outcome) for outcome in outcomes] == [Solution, InputError, Solution, InputError, Solution]
    assert "not among its levels" in str(outcomes[1])
    assert stream.certificate().batches == 4
    assert stream.verify()


@pytest.mark.parametrize("how", ["before", "after", "for good"])
def test_a_connection_lost_in_a_group_is_everybody_s(postgres, monkeypatch, how):
    with wire(postgres) as (link, url):
        stream = make(url, timeout=0.5)
        stream.update(*BATCHES[0])
        batches = [{"z": z, "groups": groups} for z, groups in BATCHES[1:4]]
        batches[1]["batch_id"] = "named"
        link.cut = how
        outcomes = stream.update_many(batches)
        link.mend()
        if how == "after":
            assert all(isinstance(outcome, Solution) for outcome in outcomes)
        elif how == "before":
            assert all(type(outcome) is StoreError and "not counted" in str(outcome) for outcome in outcomes)
        else:
            assert all(isinstance(outcome, UncertainError) for outcome in outcomes)
            assert "same batch_id, 'named': it counts once" in str(outcomes[1])
            kept = [str(outcome).split("hash='")[1].split("'")[0] for outcome in (outcomes[0], outcomes[2])]
            assert kept[0] != kept[1]
            assert all(stream.verify(hash=one) for one in kept)  # each its own entry, as the message says
        assert stream.certificate().batches == (1 if how == "before" else 4)
        assert stream.verify()


def test_batches_of_several_callers_at_once(location):
    for store in (None, location):
        stream = make(store)
        batches = [{"z": z, "groups": groups, "batch_id": number} for number, (z, groups) in enumerate(BATCHES[:4])]
        batches.insert(1, dict(zip(("z", "groups"), bad(5), strict=True)))
        batches.append({"z": np.array([np.nan]), "groups": {"sex": [0], "age": [0]}})
        batches.append(batches[0])  # sent again
        outcomes = stream.update_many(batches)
        refused = [isinstance(outcome, InputError) for outcome in outcomes]
        assert refused == [False, True, False, False, False, True, False]
        assert (outcomes[6].value == outcomes[0].value).all()
        one_by_one = Stream([MeanParity(0.05)])
        for number, place in enumerate((0, 2, 3, 4)):
            assert (one_by_one.update(*BATCHES[number]).value == outcomes[place].value).all()
        assert stream.certificate().batches == 4
        assert stream.verify()
        assert stream.update_many([]) == []
        with pytest.raises(TypeError, match="unexpected keyword"):
            stream.update_many([{"z": np.array([0.5]), "group": {}}])


def test_a_transaction_takes_its_own_updates(location):
    """Within a transaction of the thread, nothing waits for anybody; and all is undone with it."""
    stream = make(location)
    with suppress(RuntimeError), stream.transaction():
        stream.update(*BATCHES[0])
        assert len(stream.update_many([{"z": z, "groups": groups} for z, groups in BATCHES[1:3]])) == 2
        raise RuntimeError("undo")
    assert stream.certificate().batches == 0
    stream.update(*BATCHES[0])
    assert stream.verify()


def test_who_is_interrupted_keeps_nobody_waiting(tmp_path, monkeypatch):
    """The leader gets Ctrl-C in the middle: the others are told, and the next callers are served."""
    stream = make(tmp_path / "a.db")
    crowd = Crowd(stream, monkeypatch)
    catch_up, calls = type(stream)._catch_up, []

    def interrupted(self):
        calls.append(threading.current_thread())
        if len(calls) == 2:
            raise KeyboardInterrupt
        catch_up(self)

    monkeypatch.setattr(type(stream), "_catch_up", interrupted)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    outcomes = crowd.call(BATCHES[:5])
    told = [outcome for outcome in outcomes if isinstance(outcome, StoreError)]
    assert len([outcome for outcome in outcomes if isinstance(outcome, Solution)]) == 1
    assert len(told) == 3
    assert all("interrupted" in str(error) for error in told)
    stream.update(*BATCHES[6])
    assert stream.certificate().batches == 2
    assert stream.verify()
