"""What goes wrong, and what is said. After an error nothing was counted, and the stream goes on."""

import multiprocessing
import os
import shutil
import sqlite3
import tempfile
from datetime import date
from pathlib import Path

import numpy as np
import pytest
import torch
from arrivals import arrivals, everything

from fairlayer import Affine, FairlayerError, InputError, MeanParity, SoftGroup, Stream
from fairlayer.errors import StoreError
from fairlayer.stream.database import SCHEMA
from fairlayer.stream.postgresql import PostgresDatabase
from fairlayer.stream.store import open_database

BATCHES = list(arrivals(6, 8))


def make(store, **options):
    return Stream([MeanParity(0.05)], store=store, **options)


def test_other_settings(location):
    make(location, bounds=(0, 1)).update(*BATCHES[0])
    with pytest.raises(StoreError, match=r"other settings: bounds \[0.0, 1.0\], not \[0.0, 2.0\]. Use"):
        make(location, bounds=(0, 2))
    for options in (
        {"bounds": None},
        {"bounds": (0, 1), "policy": "primal-dual"},
        {"bounds": (0, 1), "each_batch": True},
    ):
        with pytest.raises(StoreError, match="other settings"):
            make(location, **options)
    with pytest.raises(StoreError, match="another name"):
        Stream([MeanParity(0.05, over="sex")], bounds=(0, 1), store=location)
    assert make(location, bounds=(0, 1)).certificate().batches == 1


@pytest.mark.parametrize(
    ("store", "message"),
    [
        ("letter.txt", "file of another kind"),
        ("nowhere/stream.db", "folder does not exist"),
        (".", "unable to open"),
        ("mysql://somewhere/db", "mysql:// is not known"),
        ("", "pass a path, or None"),
        (":memory:", "pass a path, or None"),
    ],
)
def test_what_is_no_store(tmp_path, monkeypatch, store, message):
    monkeypatch.chdir(tmp_path)
    Path("letter.txt").write_text("Dear Sir or Madam, " * 100)
    with pytest.raises(StoreError, match=message):
        make(store)
    assert Path("letter.txt").read_text() == "Dear Sir or Madam, " * 100


@pytest.mark.parametrize(("version", "advice"), [(SCHEMA + 1, "update fairlayer"), (1, "release that wrote it")])
def test_another_schema(tmp_path, version, advice):
    stream = make(tmp_path / "a.db")
    stream.update(*BATCHES[0])
    stream.close()
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("UPDATE fairlayer_schema SET version = ?", (version,))
    with pytest.raises(StoreError, match=advice):
        make(tmp_path / "a.db")


def test_a_locked_database(tmp_path):
    stream = make(tmp_path / "a.db", timeout=0.1)
    stream.update(*BATCHES[0])
    other = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="raise `timeout`"):
        stream.update(*BATCHES[1], batch_id="one")
    with pytest.raises(StoreError, match="raise `timeout`"):
        make(tmp_path / "a.db", timeout=0.1)
    other.execute("ROLLBACK")
    assert stream.certificate().batches == 1
    stream.update(*BATCHES[1], batch_id="one")
    assert stream.certificate().batches == 2
    assert stream.verify()


def test_a_locked_stream_in_postgresql(postgres):
    import psycopg

    stream, free = make(postgres, timeout=0.2), make(postgres, name="free", timeout=0.2)
    stream.update(*BATCHES[0])
    with psycopg.connect(postgres) as other:
        other.execute("SELECT 1 FROM fairlayer_streams WHERE name = 'default' FOR UPDATE")
        with pytest.raises(StoreError, match="raise `timeout`"):
            stream.update(*BATCHES[1])
        free.update(*BATCHES[1])  # another stream of the same database is not held up
    stream.update(*BATCHES[1])
    assert stream.certificate().batches == 2
    assert stream.verify()


def test_a_lost_connection_is_told_and_made_anew(postgres):
    import psycopg

    stream = make(postgres)
    with psycopg.connect(postgres, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                      "AND datname = current_database()")  # fmt: skip
    with pytest.raises(StoreError, match="not counted"):
        stream.update(*BATCHES[0])
    stream.update(*BATCHES[0])
    assert stream.verify().entries == 1


def test_a_server_that_is_not_there_and_a_password_that_is_not_shown():
    with pytest.raises(StoreError) as caught:
        make("postgresql://someone:secret@127.0.0.1:1/db")
    assert "secret" not in str(caught.value)
    assert "127.0.0.1" in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://bob:S3CRET@host:5432/db", "postgresql://host:5432/db"),
        ("postgres://bob:S3CRET@[::1]/db?application_name=x", "postgresql://[::1]/db"),
        ("postgresql://host/db?user=bob&password=S3CRET", "postgresql://host/db"),
        ("postgresql:///db?host=/run/postgresql", "postgresql:///db"),
        ("postgresql://", "postgresql://"),
    ],
)
def test_messages_show_where_not_who(url, shown):
    database = open_database(url, 1.0)
    assert isinstance(database, PostgresDatabase)
    assert database.place == shown
    assert "S3CRET" not in str(database.explain(RuntimeError("gone")))


@pytest.mark.parametrize("password", ["S3C/RET", "S3C@RET", "S3C?RET", "S3C/R@ET"])
def test_a_password_that_is_not_encoded_is_refused_and_not_shown(password):
    with pytest.raises(StoreError, match="%40") as caught:
        make(f"postgresql://bob:{password}@host/db")
    assert "S3C" not in str(caught.value)
    assert "ET@" not in str(caught.value)


def fill(stream):
    for number, batch in enumerate(BATCHES * 20):  # the room left in the pages there are lasts for a while
        stream.update(*batch, batch_id="x" * 500 + str(number))


def test_a_full_disk(tmp_path):
    stream = make(tmp_path / "a.db")
    stream.update(*BATCHES[0])
    before = stream.certificate()
    (pages,) = stream._store.database.connection.execute("PRAGMA page_count").fetchone()
    stream._store.database.connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match="free some space"):
        fill(stream)
    made = stream.certificate().batches
    assert before.batches <= made < 1 + 20 * len(BATCHES)
    stream.update(*BATCHES[1])  # connected anew, there is space again
    assert stream.certificate().batches == made + 1
    assert stream.verify()


def _as_nobody(path, replies):
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    try:
        make(path)
    except Exception as error:  # whatever it is, the parent judges it
        replies.put((type(error).__name__, str(error)))
    else:
        replies.put(("nothing", ""))


@pytest.mark.parametrize("folder_mode", [0o755, 0o777])
def test_a_file_that_cannot_be_written(folder_mode):
    folder = Path(tempfile.mkdtemp())
    try:
        make(folder / "a.db").close()
        (folder / "a.db").chmod(0o444)
        folder.chmod(folder_mode)
        fork = multiprocessing.get_context("fork")  # permissions do not bind the superuser: be someone else
        replies = fork.Queue()
        child = fork.Process(target=_as_nobody, args=(folder / "a.db", replies))
        child.start()
        kind, text = replies.get(timeout=60)
        child.join()
        assert kind == "StoreError"
        assert "cannot be written to" in text
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.array([0.1, np.nan]), np.array([0, 1])), r"z\[1\] is nan"),
        ((np.array([np.inf, 0.0]), np.array([0, 1])), r"z\[0\] is inf"),
        ((np.array([0.1, 0.2]), np.array([0, 1, 1])), "3 entries for 2"),
        ((np.zeros((2, 2)), np.array([0, 1])), "columns"),
        ((np.float64(0.5), np.array([0])), "shape"),
        ((np.array([1, 0]), np.array([0, 1])), "float32 or float64"),
        ((torch.zeros(2, dtype=torch.bfloat16), np.array([0, 1])), "bfloat16"),
        ((np.array([0.1, 0.2]), None), "groups is missing"),
        ((np.array([0.1, 0.2]), {"other": [0, 1]}), "pass the same ones"),
        ((np.array([0.1, 0.2]), {0: SoftGroup(np.full((2, 2), 0.5))}), "SoftGroup"),
        ((np.array([0.1, 0.2]), np.array([[0, 1], [1, 0]])), "pass the same ones"),
    ],
)
def test_wrong_batches_are_refused_and_change_nothing(tmp_path, arguments, message):
    for store in (None, tmp_path / "a.db"):
        stream = make(store)
        stream.update(np.array([0.1, 0.9]), np.array([0, 1]))
        before = stream.certificate()
        with pytest.raises(InputError, match=message):
            stream.update(*arguments)
        assert stream.certificate() == before
        assert stream.verify()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "best"}, "policy must be one of"),
        ({"eta": 0.0}, "eta must be a positive number"),
        ({"eta": "0.5"}, "eta must be a positive number"),
        ({"b_tau": -1}, "b_tau"),
        ({"b_tau": None}, "b_tau"),
        ({"timeout": None}, "timeout must be a positive number"),
        ({"bounds": (1.0, 0.0)}, "bound"),
        ({"bounds": (np.zeros(2), np.ones(2))}, "must be numbers"),
        ({"warm_start": (np.array([np.nan]), np.array([0]))}, "finite"),
        ({"warm_start": (np.array([0.5]),)}, r"must be \(raw, groups\)"),
        ({"warm_start": np.array([0.5, 0.5])}, r"must be \(raw, groups\)"),
        ({"warm_start": (np.array([0.5]), np.array([0])), "policy": "primal-dual"}, "learns nothing"),
        ({"name": None}, "name must be a string"),
        ({"name": "\ud800"}, "not valid text"),
        ({"store": 5}, "store must be None, a path"),
        ({"constraints": []}, "at least one"),
        ({"constraints": Affine(np.eye(2), 0.0, 1.0)}, "Affine is not"),
        ({"constraints": [MeanParity(torch.tensor(0.1, requires_grad=True))]}, "must be numbers"),
    ],
)
def test_wrong_settings_are_refused(options, message):
    with pytest.raises(FairlayerError, match=message):
        Stream(**{"constraints": [MeanParity(0.05)]} | options)


def test_a_closed_stream_says_so(tmp_path):
    for store in (None, tmp_path / "a.db"):
        stream = make(store)
        stream.update(*BATCHES[0])
        with pytest.raises(StoreError, match="after it"), stream.transaction():
            stream.close()
        stream.close()
        stream.close()
        for attempt in (lambda stream=stream: stream.update(*BATCHES[1]), stream.certificate, stream.verify):
            with pytest.raises(StoreError, match="'default' is closed"):
                attempt()
    again = make(tmp_path / "a.db")
    again.update(*BATCHES[1])
    assert again.verify().entries == 2


def test_tolerances_of_any_type_are_one_setting(tmp_path):
    for tolerance in (1, 1.0, np.float32(1.0), np.int64(1)):
        Stream([MeanParity(tolerance)], store=tmp_path / "a.db").close()


def test_a_refused_batch_leaves_no_labels_behind():
    labels = np.array(["0", date(2020, 1, 1)], dtype=object)
    stream = make(None)
    with pytest.raises(InputError, match="strings, numbers or booleans"):
        stream.update(np.array([0.0, 1.0]), {"g": labels})
    stream.update(np.array([0.0, 1.0]), {"h": ["a", "b"]})  # the first columns that were taken count
    before = everything(stream)
    with pytest.raises(InputError, match="strings, numbers or booleans"):
        stream.update(np.array([0.0, 1.0]), {"h": labels})
    assert everything(stream) == before
    assert list(stream.gaps()) == ["mean parity, h: a - b"]
