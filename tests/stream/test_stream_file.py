"""A SQLite file that is deleted, moved, replaced, cut short or put back under an open stream is noticed in time."""

import os
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from arrivals import arrivals

from fairlayer import MeanParity, Stream
from fairlayer.errors import StoreError
from fairlayer.stream import stream_names

BATCHES = list(arrivals(6, 8))


def make(path, **options):
    return Stream([MeanParity(0.05)], store=path, **options)


@pytest.fixture
def opened(tmp_path):
    """A stream of two batches, its file, and a whole copy as it was after the first."""
    path = tmp_path / "a.db"
    stream = make(path)
    stream.update(*BATCHES[0])
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(tmp_path / "copy.db")) as target:
        source.backup(target)
    stream.update(*BATCHES[1])
    return stream, path, tmp_path / "copy.db"


def write_back(stream):
    """Until then what was decided stands in the file beside, from which SQLite restores a cut one."""
    stream._store.database.connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


def remove(path):
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)


def replace(path):
    remove(path)
    shutil.copy(path.with_name("copy.db"), path)


def move(path):
    os.rename(path, path.with_name("elsewhere.db"))


DAMAGE = {
    "deleted": (remove, "was deleted or moved while the stream was open: the batch was not"),
    "moved": (move, "was deleted or moved"),
    "replaced": (replace, "replaced by another file while the stream was open"),
    "cut": (lambda path: os.truncate(path, 0), "was cut from"),
}


@pytest.mark.parametrize(
    ("damage", "within"),
    [("deleted", False), ("moved", True), ("replaced", False), ("replaced", True), ("cut", False), ("cut", True)],
)
def test_a_damaged_file_is_noticed_before_anything_is_emitted(opened, damage, within):
    """Between two transactions, or within one; each time anew, and no new file is begun on the way."""
    stream, path, _ = opened
    write_back(stream)
    inflict, message = DAMAGE[damage]

    def decide():
        with stream.transaction():
            stream.update(*BATCHES[2])
            inflict(path)

    if not within:
        inflict(path)
    with pytest.raises(StoreError, match=message):
        decide() if within else stream.update(*BATCHES[2])
    there = path.exists()
    assert there == (damage in ("replaced", "cut"))
    for ask in (lambda: stream.update(*BATCHES[2]), stream.certificate):
        with pytest.raises(StoreError, match=message.split(" while")[0]):
            ask()
    assert path.exists() == there


def test_a_file_that_is_put_back_goes_on(opened):
    stream, path, copy = opened
    move(path)
    with pytest.raises(StoreError, match="moved"):
        stream.update(*BATCHES[2])
    os.rename(path.with_name("elsewhere.db"), path)
    stream.update(*BATCHES[2])
    assert stream.certificate().batches == 3
    assert stream.verify()
    again = make(copy)  # what an earlier copy holds, a new stream goes on from
    assert again.certificate().batches == 1
    assert again.verify()


CUT = "was cut from [0-9,]+ to {:,} bytes while the stream was open"


@pytest.mark.parametrize("left", [100, 4096])
def test_a_file_cut_short_in_place(opened, left):
    """It is the same file to the system, and SQLite remembers its pages."""
    stream, path, _ = opened
    write_back(stream)
    stream.update(*BATCHES[2])
    os.truncate(path, left)
    with pytest.raises(StoreError, match=CUT.format(left)):
        stream.update(*BATCHES[3])
    with pytest.raises(StoreError, match=r"was cut from|the file was damaged"):  # as SQLite has written some back
        stream.update(*BATCHES[3])


def test_a_file_cut_short_that_stands_whole_in_the_one_beside_it(opened):
    """SQLite writes it back as the last connection ends: nothing is lost, and the stream goes on."""
    stream, path, _ = opened
    os.truncate(path, 0)
    with pytest.raises(StoreError, match=CUT.format(0)):
        stream.update(*BATCHES[2])
    stream.update(*BATCHES[2])
    assert stream.verify()
    assert stream.certificate().samples == sum(len(z) for z, *_ in BATCHES[:3])


def test_an_earlier_copy_in_the_same_file(opened):
    """It is the same file to the system, but no longer what the stream has written."""
    stream, path, copy = opened
    other = make(path)
    with sqlite3.connect(copy) as source:
        source.backup(other._store.database.connection)
    with pytest.raises(StoreError, match="no longer holds what stream 'default' has written"):
        stream.update(*BATCHES[2])


def test_the_working_directory_may_change(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stream = make("a.db")
    stream.update(*BATCHES[0])
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    stream.update(*BATCHES[1])
    stream._store.close()  # and connected anew
    stream.update(*BATCHES[2])
    assert stream.certificate().batches == 3
    assert not list((tmp_path / "below").iterdir())


def test_a_stream_is_opened_with_what_is_stored(location):
    first = make(location, name="loans", bounds=(0, 1), each_batch=True)
    first.update(*BATCHES[0])
    again = Stream.open(location, "loans")
    assert again.settings.to_text() == first.settings.to_text()
    again.update(*BATCHES[1])
    assert first.certificate() == again.certificate()
    assert first.certificate().batches == 2


def test_a_reader_does_not_write_and_does_not_wait(location):
    writer = make(location, timeout=0.2)
    writer.update(*BATCHES[0])
    reader = Stream.open(location, read_only=True, timeout=0.2)
    with writer.transaction():
        writer.update(*BATCHES[1])
        assert reader.certificate().batches == 1
        assert reader.verify()
    assert reader.certificate() == writer.certificate()
    with pytest.raises(StoreError, match="opened to be read only"):
        reader.update(*BATCHES[2])
    with pytest.raises(StoreError, match="opened to be read only"):
        reader.observe(["a"], np.array([1.0]))


def test_opening_what_is_not_there(tmp_path, postgres):
    with pytest.raises(StoreError, match="does not exist"):
        Stream.open(tmp_path / "a.db")
    assert not list(tmp_path.iterdir())
    sqlite3.connect(tmp_path / "b.db").execute("CREATE TABLE t (x)")
    for place in (tmp_path / "b.db", postgres):
        with pytest.raises(StoreError, match="holds no streams"):
            Stream.open(place)
        make(place, name="loans")
        with pytest.raises(StoreError, match="has no stream 'default'; it has 'loans'"):
            Stream.open(place)
    with pytest.raises(ValueError, match="store is None"):
        Stream.open(None)


def test_reading_leaves_nothing_behind(tmp_path):
    stream = make(tmp_path / "a.db")
    stream.update(*BATCHES[0])
    stream.close()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert list(before) == ["a.db"]
    assert stream_names(tmp_path / "a.db") == ["default"]
    reader = Stream.open(tmp_path / "a.db", read_only=True)
    assert reader.verify()
    reader.close()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
