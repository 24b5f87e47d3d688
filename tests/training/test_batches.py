"""The convention for batches, and loaders of tables."""

import numpy as np
import pandas as pd
import pytest
import torch

from fairlayer import InputError, MeanParity, SoftGroup, project
from fairlayer.training import Batch, as_batch, batches
from fairlayer.training.batches import join, move, take

FRAME = pd.DataFrame({"sex": ["f", "m", "f", "m", "m"], "age": [30, 40, 30, 50, 40]})


def test_forms_of_a_batch():
    x, y, g = torch.zeros(2, 1), torch.zeros(2), torch.zeros(2)
    for item in (
        Batch(x, y, g),
        (x, y, g),
        [x, y, g],
        {"x": x, "y": y, "groups": g},
        {"x": x, "targets": y, "groups": g},
    ):
        batch = as_batch(item)
        assert (batch.x is x, batch.targets is y, batch.groups is g, batch.weights) == (True, True, True, None)
    for item in (x, {"input": x}, {"x": x, "label": y}, (x,) * 6):
        with pytest.raises(InputError, match="batch"):
            as_batch(item)


def test_every_sample_occurs_once_and_in_order():
    loader = batches(np.arange(10.0)[:, None], np.arange(10), FRAME.loc[[0, 1] * 5], batch_size=4)
    assert [len(batch.x) for batch in loader] == [4, 4, 2]
    assert torch.cat([batch.x[:, 0] for batch in loader]).tolist() == list(range(10))
    assert next(iter(loader)).x.dtype == next(iter(loader)).targets.dtype == torch.float32


def test_shuffling_changes_with_the_epoch_and_repeats_with_the_seed():
    def orders(seed):
        loader = batches(torch.arange(50), batch_size=20, shuffle=True, seed=seed)
        return [torch.cat([batch.x for batch in loader]).tolist() for _ in range(2)]

    first, second = orders(0)
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    assert orders(0) == [first, second]
    assert orders(1) != [first, second]


def test_a_label_absent_from_a_batch_keeps_its_name():
    loader = batches(np.zeros((5, 1)), None, FRAME, batch_size=1)
    z = torch.zeros(1)
    for batch, sex in zip(loader, FRAME["sex"], strict=True):
        solution = project(z, batch.groups, [MeanParity(0.1, over="sex")])
        missing = {"f": "m", "m": "f"}[sex]
        assert f"mean parity, sex: {missing} is absent" in solution.vacuous


def test_pooled_batches_are_the_table():
    soft = SoftGroup(np.full((5, 2), 0.5))
    groups = {"sex": FRAME["sex"], "age": FRAME["age"].to_numpy(), "proxy": soft}
    parts = list(batches(np.zeros((5, 2)), groups=groups, features={"income": np.arange(5.0)}, batch_size=2))
    whole = join([part.groups for part in parts])
    assert join([part.groups for part in parts[:1]] * 2).attributes["sex"].labels == ("f", "m")
    assert join([take(parts[0].groups, slice(0, 1))] * 2).attributes["sex"].labels == ("f", "m")
    sex = whole.attributes["sex"]
    assert [sex.labels[code] for code in sex.values] == FRAME["sex"].tolist()
    assert whole.attributes["age"].values.tolist() == FRAME["age"].tolist()
    np.testing.assert_array_equal(whole.attributes["proxy"].probabilities, soft.probabilities)
    assert join([part.features for part in parts])["income"].tolist() == list(range(5))
    assert join([None, None]) is None
    assert join([FRAME[:2], FRAME[2:]])["sex"].tolist() == FRAME["sex"].tolist()


def test_integer_tables_stay_tensors():
    groups = np.array([[0, 1], [1, 0], [1, 1]])
    (batch,) = batches(np.zeros((3, 1)), groups=groups)
    assert torch.equal(batch.groups, torch.from_numpy(groups))


def test_inputs_of_many_kinds():
    (batch,) = batches({"number": np.zeros(3), "tokens": torch.ones(3, 4, dtype=torch.long)}, batch_size=3)
    assert (batch.x["number"].dtype, batch.x["tokens"].dtype) == (torch.float32, torch.long)
    assert [b.x for b in batches(["a", "b", "c"], batch_size=2)] == [["a", "b"], ["c"]]
    assert take(["a", "b", "c"], np.array([2, 0])) == ["c", "a"]
    (frame,) = batches(FRAME[["age"]])
    assert frame.x.shape == (5, 1)


def test_move_goes_through_collections():
    moved = move(Batch({"a": torch.zeros(2)}, torch.zeros(2), {"g": ["x", "y"]}), torch.device("meta"))
    assert (moved.x["a"].device.type, moved.targets.device.type, moved.groups) == ("meta", "meta", {"g": ["x", "y"]})


def test_refusals():
    with pytest.raises(InputError, match="targets has 2 entries for 3"):
        batches(np.zeros((3, 1)), np.zeros(2))
    with pytest.raises(InputError, match="batch_size"):
        batches(np.zeros((3, 1)), batch_size=0)
    with pytest.raises(InputError, match="encode it"):
        batches(FRAME[["sex"]])
    with pytest.raises(InputError, match="empty"):
        batches(np.zeros((0, 1)))
    with pytest.raises(InputError, match="stratify"):
        batches(np.zeros((3, 1)), stratify=True)
