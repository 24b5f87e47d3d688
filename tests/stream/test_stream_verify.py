"""The log proves the ledger: whatever is changed in the database, `verify` finds it."""

import sqlite3
import struct

import pytest
from arrivals import arrivals

from fairlayer import MeanParity, Stream


def change_state(state, pattern, replacement):
    """A state with other bytes of the same length in its header."""
    assert state.count(pattern) == 1
    assert len(pattern) == len(replacement)
    return state.replace(pattern, replacement)


@pytest.fixture
def written(tmp_path):
    """A stream of 12 batches in SQLite, closed, and its file."""
    stream = Stream([MeanParity(0.05)], store=tmp_path / "stream.db")
    for number, batch in enumerate(arrivals(12, 4)):
        stream.update(*batch, batch_id=number)
    assert stream.verify()
    assert "every one as it was written" in str(stream.verify())
    stream.close()
    return stream, tmp_path / "stream.db"


TAMPERING = {
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
    "removed state": "UPDATE fairlayer_streams SET state = NULL",
}


@pytest.mark.parametrize("kind", TAMPERING)
def test_tampering_is_found(written, kind):
    stream, path = written
    connection = sqlite3.connect(path)
    connection.executescript(TAMPERING[kind])
    connection.close()
    found = stream.verify()
    assert not found
    assert found.problems
    assert str(len(found.problems)) in str(found)


@pytest.mark.parametrize("field", ["sums", "price", "largest gap", "samples"])
def test_a_changed_ledger_is_found(written, field):
    _, path = written
    connection = sqlite3.connect(path)
    (state,) = connection.execute("SELECT state FROM fairlayer_streams").fetchone()
    (length,) = struct.unpack_from("<q", state)
    if field == "sums":
        at = 8 + length + 8  # the sum of the first cell, after its count
        (value,) = struct.unpack_from("<d", state, at)
        state = state[:at] + struct.pack("<d", value - 0.25) + state[at + 8 :]
    elif field == "samples":
        state = change_state(state, b'"samples": 48.0', b'"samples": 47.0')
    else:
        name = {"price": b'"price": {', "largest gap": b'"largest": ['}[field]
        at = state.index(b"0.", state.index(name)) + 2
        state = state[:at] + (b"9" if state[at : at + 1] != b"9" else b"8") + state[at + 1 :]
    connection.execute("UPDATE fairlayer_streams SET state = ?", (state,))
    connection.commit()
    connection.close()
    assert not Stream([MeanParity(0.05)], store=path).verify()


def test_a_whole_log_rewritten_from_its_start_needs_another_hash(written, tmp_path):
    """A consistent forgery verifies, but not with the hash that an earlier certificate shows."""
    stream, _ = written
    forged = Stream([MeanParity(0.05)], store=tmp_path / "forged.db")
    for number, batch in enumerate(arrivals(12, 4, seed=1)):
        forged.update(*batch, batch_id=number)
    assert forged.verify()
    assert forged.certificate().hash != stream.certificate().hash


def test_a_stream_in_memory_can_be_verified_too():
    stream = Stream([MeanParity(0.05)])
    for batch in arrivals(5, 4):
        stream.update(*batch)
    assert stream.verify()
    stream.ledger.account.cells["sums"][0, 1] += 0.5
    assert not stream.verify()
