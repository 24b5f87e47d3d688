"""The database goes away for a while, hangs, or comes back as an older copy: what a stream says, and how it goes on."""

import signal
import time

import pytest
from arrivals import arrivals

from fairlayer import MeanParity, Stream
from fairlayer.errors import StoreError
from postgres import NoServerError, controlled_server

BATCHES = list(arrivals(12, 8))


@pytest.fixture(scope="module")
def server():
    """A server of our own, which may be stopped."""
    try:
        context = controlled_server()
        made = context.__enter__()
    except NoServerError as error:
        pytest.skip(f"no PostgreSQL: {error}")
    yield made
    context.__exit__(None, None, None)


def make(server, name, timeout=2.0):
    return Stream([MeanParity(0.05)], store=server.url, name=name, timeout=timeout)


def notice(*streams):
    """Let them find out that their connections are lost."""
    for stream in streams:
        with pytest.raises(StoreError, match="not counted"):
            stream.gaps()


def test_a_server_that_is_away_for_a_while(server):
    stream = make(server, "away")
    told = [stream.update(*BATCHES[0], batch_id=0).value]
    server.stop(signal.SIGQUIT)
    began = time.monotonic()
    for _ in range(2):
        with pytest.raises(StoreError, match="not counted, and can be sent again"):
            stream.update(*BATCHES[1], batch_id=1)
    assert time.monotonic() - began < 2 * (stream.timeout + 3)
    server.start()
    told += [stream.update(*batch, batch_id=number).value for number, batch in enumerate(BATCHES[1:4], 1)]
    assert stream.certificate().batches == 4
    assert stream.verify()
    undisturbed = Stream([MeanParity(0.05)])
    assert all((undisturbed.update(*batch).value == value).all() for batch, value in zip(BATCHES, told, strict=False))


def test_a_server_that_hangs_is_not_waited_for_without_end(server):
    stream = make(server, "hangs", timeout=0.5)
    stream.update(*BATCHES[0], batch_id=0)
    server.hang(True)
    try:
        began = time.monotonic()
        with pytest.raises(StoreError, match=r"no answer within 1\.5 s"):
            stream.update(*BATCHES[1], batch_id=1)
        assert time.monotonic() - began < 10
    finally:
        server.hang(False)
    stream.update(*BATCHES[1], batch_id=1)
    assert stream.certificate().batches == 2
    assert stream.verify()


def test_a_copy_without_the_last_commits_is_refused(server):
    """As when a standby takes over that lacks them. A stream that has seen more says so, until they are back."""
    stream, other = make(server, "failover"), make(server, "failover")
    stream.update(*BATCHES[0])
    server.stop()
    copy = server.copy("older")
    server.start()
    notice(stream, other)
    stream.update(*BATCHES[1], batch_id="lost")
    other.gaps()
    server.stop()
    server.put_back(copy)
    server.start()
    notice(stream, other)
    for one in (stream, other):
        for _ in range(2):
            with pytest.raises(
                StoreError, match=r"Entry 2 of the log was seen, and now it ends with entry 1\. The batch"
            ):
                one.update(*BATCHES[2])
        with pytest.raises(StoreError, match="standby that lacks the last commits"):
            one.certificate()
        found = one.verify()
        assert not found
        assert "is of no entry" in str(found)
    anew = make(server, "failover")  # on purpose
    anew.update(*BATCHES[2])
    with pytest.raises(StoreError, match="it has another, and ends with entry 2"):
        stream.update(*BATCHES[3])
    server.stop()
    server.put_back(server.folder / "before older")
    server.start()
    stream.update(*BATCHES[1], batch_id="lost")  # a refusal has ended the connection: the next one is new
    stream.update(*BATCHES[2])
    assert stream.certificate().batches == 3
    assert stream.verify()
