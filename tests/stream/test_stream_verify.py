"""The log proves the ledger: whatever is changed in the database, `verify` finds it."""

import sqlite3
from contextlib import closing, suppress

import numpy as np
import pytest
from arrivals import arrivals

from fairlayer import EqualizedOdds, MeanParity, Stream
from fairlayer.errors import StoreError


def change(path, script):
    """Write to a database past the stream."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


@pytest.fixture
def written(tmp_path):
    """A stream of 12 batches in SQLite, closed, and its file."""
    stream = Stream([MeanParity(0.05)], store=tmp_path / "stream.db")
    for number, batch in enumerate(arrivals(12, 4)):
        stream.update(*batch, batch_id=number)
    assert stream.verify()
    assert "12 entries, as written" in str(stream.verify())
    return stream, tmp_path / "stream.db"


TAMPERING = {
    "cells of another form": """UPDATE fairlayer_log SET payload = '{"cells":{"a":[1]},"emitted":null,"state":null}'
        WHERE number = 5""",
    "deep payload": f"UPDATE fairlayer_log SET payload = '{'[' * 100_000}' WHERE number = 5",
    "changed payload": "UPDATE fairlayer_log SET payload = replace(payload, 'OPTIMAL', 'ROUNDED') WHERE number = 5",
    "payload of another kind": "UPDATE fairlayer_log SET payload = 'gone' WHERE number = 5",
    "payload without cells": "UPDATE fairlayer_log SET payload = '{}' WHERE number = 5",
    "removed entry": "DELETE FROM fairlayer_log WHERE number = 5",
    "removed first entry": "DELETE FROM fairlayer_log WHERE number = 1",
    "removed tail": "DELETE FROM fairlayer_log WHERE number >= 11",
    "removed log": "DELETE FROM fairlayer_log",
    "added entry": "INSERT INTO fairlayer_log SELECT stream, 13, 'more', payload, emitted, hash, hash "
    "FROM fairlayer_log WHERE number = 12",
    "changed batch id": "UPDATE fairlayer_log SET batch_id = 'other' WHERE number = 5",
    "changed hash": "UPDATE fairlayer_log SET hash = previous WHERE number = 5",
    "changed previous hash": "UPDATE fairlayer_log SET previous = hash WHERE number = 5",
    "changed emitted": "UPDATE fairlayer_log SET emitted = zeroblob(length(emitted)) WHERE number = 5",
    "removed emitted": "UPDATE fairlayer_log SET emitted = NULL WHERE number = 5",
    "two entries exchanged": "UPDATE fairlayer_log SET number = CASE number WHEN 5 THEN -6 ELSE -5 END "
    "WHERE number IN (5, 6); UPDATE fairlayer_log SET number = -number WHERE number < 0",
    "changed head": "UPDATE fairlayer_streams SET hash = 'ab'",
    "changed number": "UPDATE fairlayer_streams SET number = 99",
    "removed state": "UPDATE fairlayer_streams SET state = NULL",
    "changed settings": "UPDATE fairlayer_streams SET configuration = replace(configuration, '0.05', '9.95')",
    "added decision": "INSERT INTO fairlayer_pending VALUES ('default', 'x', 0, 0.5, 0.5)",
}


@pytest.mark.parametrize("kind", TAMPERING)
def test_tampering_is_found(written, kind):
    stream, path = written
    change(path, TAMPERING[kind])
    found = stream.verify()
    assert not found
    assert found.problems
    assert str(len(found.problems)) in str(found)


@pytest.mark.parametrize("share", [0.01, 0.03, 0.1, 0.3, 0.9])
def test_a_changed_state_is_found(written, share):
    """One bit of it, in its header or in its arrays."""
    _, path = written
    with closing(sqlite3.connect(path)) as connection, connection:
        (state,) = connection.execute("SELECT state FROM fairlayer_streams").fetchone()
        at = int(share * len(state))
        state = state[:at] + bytes([state[at] ^ 1]) + state[at + 1 :]
        connection.execute("UPDATE fairlayer_streams SET state = ?", (state,))
    with suppress(StoreError):  # it cannot even be read
        assert not Stream([MeanParity(0.05)], store=path).verify()


def test_a_whole_log_rewritten_from_its_start_needs_another_hash(written, tmp_path):
    """A consistent forgery verifies, but not with the hash that an earlier certificate shows."""
    stream, _ = written
    forged = Stream([MeanParity(0.05)], store=tmp_path / "forged.db")
    for number, batch in enumerate(arrivals(12, 4, seed=1)):
        forged.update(*batch, batch_id=number)
    assert forged.verify()
    assert forged.certificate().hash != stream.certificate().hash
    assert stream.verify(hash=stream.certificate().hash)
    found = forged.verify(hash=stream.certificate().hash)
    assert not found
    assert "rewritten" in str(found)


def test_a_kept_hash_stays_in_the_chain_of_a_stream_in_memory_too():
    stream, kept = Stream([MeanParity(0.05)]), []
    for batch in arrivals(5, 4):
        kept.append(stream.certificate().hash)
        stream.update(*batch)
    assert len(set(kept)) == 5
    assert all(stream.verify(hash=one) for one in kept)
    assert not stream.verify(hash="ab")
    assert kept[0] != Stream([MeanParity(0.06)]).certificate().hash  # the settings are the beginning of the chain
    stream.ledger.state.cells["total"][0, 0] += 0.5
    assert not stream.verify()


def test_other_settings_are_found_by_whoever_opens_with_them(written):
    stream, path = written
    stream.close()
    change(path, TAMPERING["changed settings"])
    found = Stream([MeanParity(9.95)], store=path).verify()
    assert not found
    assert "settings" in str(found)


@pytest.mark.parametrize("change_to", ["output = output + 100", "raw = 0", "cell = 1 - cell", "id = id || 'x'"])
def test_a_changed_decision_that_waits_is_found(tmp_path, change_to):
    path = tmp_path / "a.db"
    stream = Stream([EqualizedOdds(0.1)], store=path)
    stream.update(np.array([0.25, 0.75]), {"g": [0, 1]}, ids="ab")
    stream.update(np.array([0.25, 0.75]), {"g": [0, 1]}, ids="cd")
    stream.observe("ab", [0, 1])
    assert stream.verify()
    change(path, f"UPDATE fairlayer_pending SET {change_to}")
    assert "waits for its target" in str(stream.verify())
    if not change_to.startswith("id"):
        stream.observe("cd", [0, 1])  # too late to tell from what waits, but the log remembers
        assert "changed before" in str(stream.verify())


def test_a_state_that_cannot_be_read_is_told(written):
    stream, path = written
    stream.close()
    change(path, "UPDATE fairlayer_streams SET state = X'0102'")
    with pytest.raises(StoreError, match=r"state of stream 'default' in .* damaged"):
        Stream([MeanParity(0.05)], store=path).gaps()
    change(path, "UPDATE fairlayer_streams SET configuration = '{'")
    with pytest.raises(StoreError, match=r"settings of stream 'default' in .* damaged"):
        Stream([MeanParity(0.05)], store=path)


EXCHANGE = """
    UPDATE fairlayer_streams SET name = 'aside' WHERE name = 'a';
    UPDATE fairlayer_streams SET name = 'a' WHERE name = 'b';
    UPDATE fairlayer_streams SET name = 'b' WHERE name = 'aside';
    UPDATE fairlayer_log SET stream = CASE stream WHEN 'a' THEN 'b' ELSE 'a' END, number = -number;
    UPDATE fairlayer_log SET number = -number;
"""


@pytest.mark.parametrize("batches", [0, 3])
def test_two_streams_that_were_exchanged_are_found(tmp_path, batches):
    """They have the same settings, and each is whole in itself."""
    for seed, name in enumerate("ab"):
        stream = Stream([MeanParity(0.05)], store=tmp_path / "a.db", name=name)
        for batch in arrivals(batches, 4, seed=seed):
            stream.update(*batch)
        assert stream.verify()
        stream.close()
    change(tmp_path / "a.db", EXCHANGE)
    for name in "ab":
        found = Stream([MeanParity(0.05)], store=tmp_path / "a.db", name=name).verify()
        assert not found
        assert "name and settings" in str(found)
