"""A connection that dies while a batch is being committed: what became of the batch is found out, or called unknown."""

import os
import sqlite3

import numpy as np
import pytest
from arrivals import arrivals
from wire import wire

from fairlayer import EqualizedOdds, MeanParity, Stream
from fairlayer.errors import StoreError, UncertainError
from fairlayer.stream.database import SqliteDatabase

BATCHES = list(arrivals(6, 8))


@pytest.fixture
def cut(postgres):
    """The stream's wire, and its URL through it."""
    with wire(postgres) as made:
        yield made


def make(store, **options):
    return Stream([MeanParity(0.05)], store=store, **{"timeout": 2.0, **options})


def same_as_undisturbed(stream, count):
    """Whether the stream is where it would be had nothing happened."""
    expected = Stream([MeanParity(0.05)])
    for batch in BATCHES[:count]:
        expected.update(*batch)
    return bool(stream.verify()) and stream.ledger.to_bytes() == expected.ledger.to_bytes()


@pytest.mark.parametrize("batch_id", [None, "one"])
def test_a_lost_reply_is_found_in_the_log(cut, batch_id):
    link, url = cut
    stream = make(url)
    stream.update(*BATCHES[0])
    link.cut = "after"
    emitted = stream.update(*BATCHES[1], batch_id=batch_id)
    assert link.cuts == 1
    assert stream.certificate().batches == 2
    assert list(stream.gaps().values()) == emitted.gaps.tolist()
    assert same_as_undisturbed(stream, 2)


def test_a_lost_commit_is_not_counted_and_can_be_sent_again(cut):
    link, url = cut
    stream = make(url)
    stream.update(*BATCHES[0])
    link.cut = "before"
    with pytest.raises(StoreError, match="not counted, and can be sent again") as caught:
        stream.update(*BATCHES[1])
    assert not isinstance(caught.value, UncertainError)
    assert link.cuts == 1
    assert stream.certificate().batches == 1
    stream.update(*BATCHES[1])
    assert same_as_undisturbed(stream, 2)


def test_where_nobody_can_be_asked_it_is_unknown(cut):
    link, url = cut
    stream = make(url, timeout=0.3)
    stream.update(*BATCHES[0])
    link.cut = "for good"
    with pytest.raises(
        UncertainError, match=r"unknown whether the batch was counted. Before you send it again"
    ) as caught:
        stream.update(*BATCHES[1])
    link.mend()
    kept = str(caught.value).split("hash='")[1].split("'")[0]
    assert stream.verify(hash=kept)  # as the message says: it was counted
    assert same_as_undisturbed(stream, 2)
    link.cut = "for good"
    with pytest.raises(UncertainError, match=r"same batch_id, 'two': it counts once"):
        stream.update(*BATCHES[2], batch_id="two")
    link.mend()
    stream.update(*BATCHES[2], batch_id="two")
    assert stream.certificate().batches == 3
    assert same_as_undisturbed(stream, 3)


def test_a_whole_transaction_is_found(cut):
    link, url = cut
    stream = make(url)
    link.cut = "after"
    with stream.transaction():
        for batch in BATCHES[:3]:
            stream.update(*batch)
    assert link.cuts == 1
    assert same_as_undisturbed(stream, 3)


def test_another_writer_in_between_does_not_hide_it(cut, postgres):
    """The entry is looked for by its own number, not at the end of the log."""
    link, url = cut
    stream, other = make(url), make(postgres)
    stream.update(*BATCHES[0])
    find_out = stream._store._find_out

    def late(*arguments):
        other.update(*BATCHES[2])
        find_out(*arguments)

    stream._store._find_out = late
    link.cut = "after"
    stream.update(*BATCHES[1])
    assert stream.certificate().batches == 3
    assert stream.verify()


def test_targets_are_found_too(cut):
    link, url = cut
    stream = Stream([EqualizedOdds(0.1)], store=url, timeout=2.0)
    stream.update(np.array([0.25, 0.75]), {"g": [0, 1]}, ids="ab")
    link.cut = "after"
    gaps = stream.observe("ab", [1, 1])
    assert link.cuts == 1
    assert stream.gaps() == gaps
    assert stream.certificate().waiting == 0
    assert stream.verify()


@pytest.mark.parametrize("how", ["before", "after"])
def test_what_is_only_asked_does_not_depend_on_a_commit(cut, how):
    link, url = cut
    stream = make(url)
    stream.update(*BATCHES[0])
    before = stream.gaps()
    link.cut = how
    assert stream.gaps() == before
    assert link.cuts == 1
    assert stream.gaps() == before


class FailingOnce:
    """A connection to SQLite whose next COMMIT ends in an error, before or after it is carried out."""

    def __init__(self, connection, how):
        self.connection = connection
        self.how = how

    def execute(self, statement, parameters=()):
        if statement == "COMMIT" and self.how:
            how, self.how = self.how, None
            if how == "after":
                self.connection.execute(statement)
            raise sqlite3.OperationalError("disk I/O error")
        return self.connection.execute(statement, parameters)

    def close(self):
        self.connection.close()


@pytest.mark.parametrize("how", ["before", "after"])
def test_a_commit_of_sqlite_that_ends_in_an_error(tmp_path, how):
    stream = make(tmp_path / "a.db")
    stream.update(*BATCHES[0])
    stream._store.database.connection = FailingOnce(stream._store.database.connection, how)
    if how == "before":
        with pytest.raises(StoreError, match="not counted"):
            stream.update(*BATCHES[1])
        stream.update(*BATCHES[1])
    else:
        stream.update(*BATCHES[1])
    assert same_as_undisturbed(stream, 2)


def test_a_commit_of_sqlite_to_a_file_that_is_gone_is_unknown(tmp_path, monkeypatch):
    path = tmp_path / "a.db"
    stream = make(path, timeout=0.3)
    stream.update(*BATCHES[0])
    commit = SqliteDatabase.commit

    def lose(database):
        commit(database)
        os.rename(path, tmp_path / "b.db")
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(SqliteDatabase, "commit", lose)
    with pytest.raises(UncertainError, match="unknown whether the batch was counted"):
        stream.update(*BATCHES[1])
    monkeypatch.undo()
    os.rename(tmp_path / "b.db", path)
    assert stream.certificate().batches == 2
    assert same_as_undisturbed(stream, 2)
