"""Streams of decisions in stores: equal to the bit however they are cut up, kept, replayed, verified and shared."""

import json
import pickle
import sqlite3
import threading

import numpy as np
import pytest
from arrivals import arrivals
from counted import RatePool

from fairlayer import InputError, RateParity, Stream
from fairlayer.errors import StoreError

BATCHES = list(arrivals(50, seed=4))
PROMISES = [{"tolerance": 0.03}, {"ratio": 0.85}]


def make(promise=PROMISES[0], **options):
    return Stream([RateParity(**promise)], bounds=(-1.0, 2.0), **options)


@pytest.fixture(scope="module")
def expected():
    """What a stream in memory emits, and where it ends."""
    stream = make()
    return [stream.update(*batch).value.tobytes() for batch in BATCHES], stream.ledger.to_bytes(), stream.certificate()


def test_reopening_and_transactions_change_nothing(location, expected):
    emitted = []
    for start in range(0, len(BATCHES), 7):
        stream = make(store=location)
        with stream.transaction():
            emitted += [stream.update(*batch).value.tobytes() for batch in BATCHES[start : start + 4]]
        emitted += [stream.update(*batch).value.tobytes() for batch in BATCHES[start + 4 : start + 7]]
        stream.close()
    again = Stream.open(location)
    assert again.gaps()  # reads the state
    assert again.ledger.to_bytes() == expected[1]
    assert again.certificate().groups == expected[2].groups
    assert again.certificate().overruled == expected[2].overruled
    assert again.verify()
    assert emitted == expected[0]


def test_two_openings_take_turns(location, expected):
    streams = [make(store=location), make(store=location)]
    emitted = [streams[number % 2].update(*batch).value.tobytes() for number, batch in enumerate(BATCHES)]
    assert emitted == expected[0]
    with pytest.raises(StoreError, match="other settings"):
        make(PROMISES[1], store=location)


@pytest.mark.parametrize("promise", PROMISES)
@pytest.mark.parametrize("restore", ["state_dict", "pickle"])
def test_a_restored_stream_continues_to_the_bit(restore, promise):
    stream = make(promise)
    for number, batch in enumerate(BATCHES[:25]):
        stream.update(*batch, batch_id=number)
    copy = pickle.loads(pickle.dumps(stream)) if restore == "pickle" else make(promise)
    if restore == "state_dict":
        copy.load_state_dict(stream.state_dict())
    for batch in BATCHES[25:]:
        a, b = stream.update(*batch), copy.update(*batch)
        assert (a.value.tobytes(), a.status, a.gaps.tobytes()) == (b.value.tobytes(), b.status, b.gaps.tobytes())
    assert copy.ledger.to_bytes() == stream.ledger.to_bytes()
    assert copy.verify()


def test_a_replayed_batch_returns_what_it_gave_and_counts_once(location):
    for options in ({}, {"store": location}):
        stream = make(**options)
        first = [stream.update(*batch, batch_id=f"id {number}") for number, batch in enumerate(BATCHES[:10])]
        before = stream.certificate()
        for number, batch in enumerate(BATCHES[:10]):
            again = stream.update(*batch, batch_id=f"id {number}")
            assert again.value.tobytes() == first[number].value.tobytes()
            assert (again.status, again.rows) == (first[number].status, first[number].rows)
            np.testing.assert_array_equal(again.gaps, first[number].gaps)
        assert stream.certificate() == before
        with pytest.raises(InputError, match="another batch"):
            stream.update(BATCHES[0][0] + 1.0, BATCHES[0][1], batch_id="id 0")


def test_the_log_counts_decisions_and_proves_the_ledger(tmp_path):
    path = tmp_path / "stream.db"
    stream, overruled, yes = make(store=path), 0, 0
    for batch in BATCHES:
        yes += int((stream.update(*batch).value >= 0.5).sum())
    for entry in stream.entries():
        payload = json.loads(entry.payload)
        overruled += payload["overruled"]
        assert all(float(after[1]).is_integer() and after[1] <= after[0] for _, after in payload["cells"].values())
    certificate = stream.certificate()
    assert overruled == certificate.overruled
    assert stream.ledger.state.total.sum() == yes
    steps = stream.timeline().steps
    assert steps[-1].gaps[0] == certificate.constraints[0].gap
    assert [group.mean for group in steps[-1].groups] == [group.mean for group in certificate.groups]
    stream.close()
    with sqlite3.connect(path) as connection:  # one yes more in the log
        text = connection.execute("SELECT payload FROM fairlayer_log WHERE number = 20").fetchone()[0]
        payload = json.loads(text)
        next(iter(payload["cells"].values()))[1][1] += 1.0
        connection.execute("UPDATE fairlayer_log SET payload = ? WHERE number = 20", (json.dumps(payload),))
    assert not Stream.open(path, read_only=True).verify()


def test_threads_share_a_stream(tmp_path):
    stream, emitted, errors = make(store=tmp_path / "stream.db"), [], []

    def decide(seed):
        try:
            for batch in arrivals(25, seed=seed):
                with stream.transaction():  # so that the order of the list is that of the log
                    emitted.append((stream.update(*batch).value, batch[1]))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=decide, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    pool = RatePool(0.03)
    for value, groups in emitted:
        pool.add(value, groups)
    assert pool.broken == 0
    assert stream.certificate().samples == pool.samples
    assert stream.verify()


def test_the_page_and_the_commands_speak_of_rates(tmp_path):
    pytest.importorskip("duckdb")
    pytest.importorskip("jinja2")
    runner = pytest.importorskip("typer.testing").CliRunner()

    from fairlayer.cli.app import app

    path = tmp_path / "stream.db"
    stream = make(store=path, name="loans")
    stream.update(np.array([0.9, 0.1]), {"sex": [0, 1], "age": [0, 0]})
    said = ""
    for command in (["list"], ["show"], ["verify"], ["certificate", "-o", str(tmp_path / "page.html")]):
        result = runner.invoke(app, ["stream", command[0], str(path), *command[1:]])
        assert result.exit_code == 0, result.stderr
        said += " ".join(result.stdout.split())
    for words in ("GRANULAR", "raw rate", "within what is promised", "thresholds overruled: 0 times"):
        assert words in said
    page = (tmp_path / "page.html").read_text()
    for words in ("Rates of groups", "half a decision of each group, as decisions are whole", "promised now"):
        assert words in page
    data = json.loads((tmp_path / "page.json").read_text())["certificate"]
    assert (data["kept"], data["satisfied"], data["threshold"], data["overruled"]) == (True, False, 0.5, 0)
    for batch in BATCHES:
        stream.update(*batch)
    assert runner.invoke(app, ["stream", "export", str(path), "-o", str(tmp_path / "log.csv")]).exit_code == 0
    assert len((tmp_path / "log.csv").read_text().splitlines()) == len(BATCHES) + 2
