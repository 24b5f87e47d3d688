"""Names and labels are data: quotes, semicolons and any script pass through unharmed."""

import pickle
from datetime import date

import numpy as np
import pytest
from pooled import Pool

from fairlayer import InputError, MeanParity, Stream

NAMES = [
    "Robert'); DROP TABLE fairlayer_log;--",
    'double " quote',
    "%s ? {blob} %(x)s",
    "åßç 漢字 🦔",
    "line\nbreak\tand \\ slash",
    " ",
    "",
]


def test_names_of_streams_batches_attributes_and_groups(location):
    for name in NAMES:
        check_name(location, name)


def check_name(location, name):
    other = Stream([MeanParity(0.1)], store=location, name=f"other {name}")
    other.update(np.array([0.0, 1.0]), np.array([0, 1]), batch_id=name)
    constraint = MeanParity(0.1, name=name or None)
    groups = {name: np.array([name, "b", name]), "x": np.array(["c", name, name])}
    for _ in range(2):  # the second time it is a replay, in a stream opened anew
        stream = Stream([constraint], store=location, name=name)
        solution = stream.update(np.array([0.0, 1.0, 2.0]), groups, batch_id=name)
        pool = Pool()
        pool.add(solution.value, groups)
        assert pool.keeps(0.1)
        assert stream.certificate().samples == 3
        assert stream.certificate().stream == name
        assert stream.verify()
        stream.close()
    assert other.verify()
    assert other.certificate().samples == 2


LABELS = {
    "strings": ["a", "b", "ä"],
    "integers": [3, -1, 10**12],
    "booleans": [True, False, True],
    "floats": [5.0, 1e12, -0.0],
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_plain_kind_continue_after_reopening(tmp_path, kind):
    labels, location = LABELS[kind], tmp_path / "a.db"
    memory = Stream([MeanParity(0.02)])
    rng = np.random.default_rng(1)
    for _ in range(8):
        stream = Stream([MeanParity(0.02)], store=location)
        n = int(rng.integers(1, 5))
        z, groups = rng.random(n), {"g": np.array([labels[i] for i in rng.integers(0, 3, n)])}
        assert stream.update(z, groups).value.tobytes() == memory.update(z, groups).value.tobytes()
        stream.close()
    stream = Stream([MeanParity(0.02)], store=location)
    assert len(stream.certificate().groups) == len(set(labels))
    assert stream.certificate().groups == memory.certificate().groups


def test_lists_frames_and_arrays_name_the_same_groups():
    import pandas as pd

    values = []
    z = np.array([0.0, 1.0, 3.0])
    for groups in (
        {"g": ["a", "b", "b"]},
        {"g": np.array(["a", "b", "b"], dtype=object)},
        pd.DataFrame({"g": ["a", "b", "b"]}),
        pd.DataFrame({"g": pd.Categorical(["a", "b", "b"], categories=["z", "b", "a"])}),
    ):
        stream = Stream([MeanParity(0.1)])
        values.append(
            [stream.update(z, groups).value.tobytes(), stream.update(z + 1, {"g": ["b", "a", "c"]}).value.tobytes()]
        )
        assert {group.group for group in stream.certificate().groups} == {f"mean parity, g: {label}" for label in "abc"}
    assert all(one == values[0] for one in values)


def test_columns_in_another_order_are_the_same_columns():
    z, a, b = np.array([0.0, 1.0, 3.0]), np.array([0, 1, 1]), np.array(["x", "y", "x"])
    one, two = Stream([MeanParity(0.1)]), Stream([MeanParity(0.1)])
    for number in range(4):
        one.update(z, {"a": a, "b": b})
        two.update(z, {"a": a, "b": b} if number % 2 == 0 else {"b": b, "a": a})
    assert one.gaps() == two.gaps()
    assert len(two.ledger.index) == 3


def test_labels_that_cannot_be_kept_are_refused_and_change_nothing(location):
    for options in ({}, {"store": location}):
        stream = Stream([MeanParity(0.1)], **options)
        stream.update(np.array([0.0, 1.0]), {"g": ["a", "b"]})
        before = stream.certificate()
        with pytest.raises(InputError, match="strings, numbers or booleans"):
            stream.update(np.array([0.0]), {"g": np.array([date(2024, 1, 1)], dtype=object)})
        assert stream.certificate() == before
        stream.update(np.array([0.0, 1.0]), {"g": ["a", "b"]})
        assert stream.verify().entries == 2


@pytest.mark.parametrize("name", [("a", "b"), np.int64(3), 4, True, np.str_("x")])
def test_names_of_attributes_continue_after_reopening(tmp_path, name):
    location = tmp_path / "a.db"
    memory = Stream([MeanParity(0.02)])
    for z in (np.array([0.0, 1.0]), np.array([2.0, 1.0])):
        stream = Stream([MeanParity(0.02)], store=location)
        assert stream.update(z, {name: [0, 1]}).value.tobytes() == memory.update(z, {name: [0, 1]}).value.tobytes()
        stream.close()
    copy = pickle.loads(pickle.dumps(memory))
    copy.update(np.array([0.0, 1.0]), {name: [0, 1]})
    assert copy.verify()


@pytest.mark.parametrize("name", [date(2024, 1, 1), np.datetime64("2024-01-01"), b"x"])
def test_names_of_attributes_that_cannot_be_kept_are_refused(name):
    stream = Stream([MeanParity(0.1)])
    with pytest.raises(InputError, match="strings, numbers or booleans"):
        stream.update(np.array([0.0, 1.0]), {name: [0, 1]})
    stream.update(np.array([0.0, 1.0]), {"g": [0, 1]})
    assert stream.verify()


def test_levels_refuse_labels_that_are_not_among_them(location):
    for store in (None, location):
        stream = Stream([MeanParity(0.1)], store=store, levels={"sex": ["f", "m"]})
        stream.update(np.array([0.0, 1.0]), {"sex": ["f", "m"]})
        with pytest.raises(InputError, match="not among its levels"):
            stream.update(np.array([0.0, 1.0]), {"sex": ["f", "M"]})
        copy = pickle.loads(pickle.dumps(stream))
        with pytest.raises(InputError, match="not among its levels"):
            copy.update(np.array([0.0, 1.0]), {"sex": ["f", "M"]})
        assert len(stream.certificate().groups) == 2
        assert stream.verify()
    free = Stream([MeanParity(0.1)], store=location)  # how labels are checked is no part of what is stored
    free.update(np.array([0.0, 1.0]), {"sex": ["f", "M"]})
    assert len(free.certificate().groups) == 3
