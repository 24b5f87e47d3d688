"""The database goes away for a while, hangs, or comes back as an older copy: what a stream says, and how it goes on."""

import signal
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from arrivals import arrivals

from fairlayer import MeanParity, Stream
from fairlayer.errors import StoreError, UncertainError
from fairlayer.stream import log
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


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_a_server_that_is_away_for_a_while(server, how):
    stream = make(server, f"away {how}")
    told = [stream.update(*BATCHES[0], batch_id=0).value]
    server.stop(how)
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


def test_callers_who_wait_together_are_told_each(server):
    stream = make(server, "together", timeout=0.5)
    stream.update(*BATCHES[0])
    server.hang(True)
    errors = []

    def call(number):
        try:
            stream.update(*BATCHES[number], batch_id=number)
        except StoreError as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(1, 5)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        server.hang(False)
    assert len(errors) == 4
    assert len({id(error) for error in errors}) == 4
    assert not any(isinstance(error, UncertainError) for error in errors)  # nothing had been sent to be committed
    for number in range(1, 5):
        stream.update(*BATCHES[number], batch_id=number)
    assert stream.certificate().batches == 5
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


def test_clocks_do_not_matter(server, monkeypatch):
    """Writers whose clocks differ by years, and run backwards: order and proof rest on numbers and hashes alone."""
    years = iter(range(40, 0, -1))

    class Clock:
        @staticmethod
        def now(zone):
            return datetime(2000, 1, 1, tzinfo=UTC) + timedelta(days=365 * next(years))

    streams = [make(server, "clocks"), make(server, "clocks")]
    monkeypatch.setattr(log, "datetime", Clock)
    for number, batch in enumerate(BATCHES):
        streams[number % 2].update(*batch, batch_id=number)
    times = [entry.payload.split('"time":"')[1][:4] for entry in streams[0].entries()]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) > 6
    assert streams[0].verify()
    assert [step.number for step in streams[1].timeline().steps] == list(range(1, len(BATCHES) + 1))
