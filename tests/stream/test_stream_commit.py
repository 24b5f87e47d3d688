"""A connection that dies while a batch is being committed: what became of the batch is found out, or called unknown."""

import os
import sqlite3

import pytest
from arrivals import arrivals
from wire import wire

from fairlayer import MeanParity, Stream
from fairlayer.errors import StoreError, UncertainError
from fairlayer.stream.database import SqliteDatabase

BATCHES = list(arrivals(6, 8))


@pytest.fixture
def cut(postgres):
    """A stream of one batch, and its wire."""
    with wire(postgres) as (link, url):
        stream = Stream([MeanParity(0.05)], store=url, timeout=0.5)
        stream.update(*BATCHES[0])
        yield stream, link


def same_as_undisturbed(stream, count):
    """Whether the stream is where it would be had nothing happened."""
    expected = Stream([MeanParity(0.05)])
    for batch in BATCHES[:count]:
        expected.update(*batch)
    return bool(stream.verify()) and stream.ledger.to_bytes() == expected.ledger.to_bytes()


def test_a_lost_reply_is_found_in_the_log(cut):
    stream, link = cut
    link.cut = "after"
    emitted = stream.update(*BATCHES[1])
    assert list(stream.gaps().values()) == emitted.gaps.tolist()
    link.cut = "after"
    with stream.transaction():
        for batch in BATCHES[2:4]:
            stream.update(*batch)
    assert link.cuts == 2
    assert same_as_undisturbed(stream, 4)


def test_a_lost_commit_is_not_counted_and_can_be_sent_again(cut):
    stream, link = cut
    link.cut = "before"
    with pytest.raises(StoreError, match="not counted, and can be sent again") as caught:
        stream.update(*BATCHES[1])
    assert not isinstance(caught.value, UncertainError)
    assert link.cuts == 1
    assert stream.certificate().batches == 1
    stream.update(*BATCHES[1])
    assert same_as_undisturbed(stream, 2)


def test_where_nobody_can_be_asked_it_is_unknown(cut):
    stream, link = cut
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
    assert same_as_undisturbed(stream, 3)


def test_another_writer_in_between_does_not_hide_it(cut, postgres):
    """The entry is looked for by its own number, not at the end of the log."""
    stream, link = cut
    other = Stream([MeanParity(0.05)], store=postgres)
    find_out = stream._store._find_out

    def late(*arguments):
        other.update(*BATCHES[2])
        find_out(*arguments)

    stream._store._find_out = late
    link.cut = "after"
    stream.update(*BATCHES[1])
    assert stream.certificate().batches == 3
    assert stream.verify()


@pytest.mark.parametrize("how", ["before", "after"])
def test_what_is_only_asked_does_not_depend_on_a_commit(cut, how):
    stream, link = cut
    before = stream.gaps()
    link.cut = how
    assert stream.gaps() == before
    assert link.cuts == 1


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
    stream = Stream([MeanParity(0.05)], store=tmp_path / "a.db")
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
    stream = Stream([MeanParity(0.05)], store=path)
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
