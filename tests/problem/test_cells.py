"""Cells, the combinations of labels: the same whatever the form of the groups, and whatever batches came before."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from fairlayer import Affine, FairLayer, InputError, MeanParity, Status, code_groups, project
from pairs import pairwise

WORDS = np.array(["ash", "birch", "cedar"])


def batch(seed: int, n: int = 50, labels: int = 2, k: int = 2, dtype: torch.dtype = torch.float64):
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, labels, (n, k))
    groups[:labels] = np.arange(labels)[:, None]
    z = rng.normal(size=n) * rng.choice([1.0, 30.0]) + groups.sum(axis=1)
    return torch.tensor(z, dtype=dtype), torch.tensor(groups)


def assert_same(solution, expected) -> None:
    assert torch.equal(solution.value, expected.value)
    assert solution.rows == expected.rows
    assert solution.vacuous == expected.vacuous
    assert solution.status is expected.status
    assert torch.equal(solution.gaps, expected.gaps)
    assert torch.equal(solution.multipliers, expected.multipliers)


def assert_memory_changes_nothing(batches, constraints) -> FairLayer:
    """Run the batches one after the other through a layer, and each by itself."""
    layer = FairLayer(constraints)
    for z, groups in batches:
        layer(z, groups)
        assert_same(layer.solution, project(z, groups, constraints))
    return layer


@pytest.mark.parametrize(
    "kinds",
    [
        [{"labels": 2}, {"labels": 3}, {"labels": 2}],
        [{"k": 2}, {"k": 1}, {"k": 3}, {"k": 2}],
        [{"n": 50}, {"n": 4}, {"n": 500}],
    ],
    ids=["label sets", "columns", "sizes"],
)
def test_batches_that_differ(kinds):
    assert_memory_changes_nothing([batch(seed, **kind) for seed, kind in enumerate(kinds * 2)], MeanParity(0.05))


def test_labels_that_come_and_go():
    """0 and 2, then 0, 1 and 2; a label above all others, one below; and a group that vanishes."""
    z, groups = batch(0, labels=3)
    gap = torch.where(groups == 1, 2, groups)
    above, below = (torch.cat([torch.tensor([other]), groups[1:]]) for other in ([0, 7], [-1, 0]))
    none = torch.zeros_like(groups)
    batches = [(z, labels) for labels in (gap, groups, gap, above, groups, below, groups, none)]
    layer = assert_memory_changes_nothing(batches, MeanParity(0.05))
    assert layer.solution.status is Status.VACUOUS
    assert project(z, gap, MeanParity(0.05)).rows == ("mean parity, 0: 0 - 2", "mean parity, 1: 0 - 2")


def test_tolerances_and_bounds_are_read_anew():
    tolerance = torch.tensor(0.5, dtype=torch.float64)
    layer = FairLayer(MeanParity(tolerance))
    z, groups = batch(0)
    layer(z, groups)
    tolerance.fill_(0.01)
    layer(z, groups)
    assert layer.solution.gaps.abs().max() <= 0.01
    layer.bounds = (0.2, 0.4)
    assert layer(z, groups).max() <= 0.4


@pytest.mark.parametrize(
    "constraints",
    [
        [MeanParity(0.1), Affine([[1.0, 2.0, 3.0, 4.0]], upper=3.0)],
        [MeanParity(0.01, over=1), MeanParity(0.5, over=0)],
    ],
    ids=["a matrix of as many columns as there are cells", "attributes in another order"],
)
def test_repeated_batches(constraints):
    groups = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    z = torch.tensor([1.0, 5.0, 2.0, 3.0], dtype=torch.float64)
    assert_memory_changes_nothing([(z, groups)] * 3, constraints)


def test_after_a_batch_that_was_refused():
    z, groups = batch(0)
    layer = FairLayer(MeanParity(0.05))
    before = layer(z, groups)
    for bad in (float("nan"), float("inf")):
        broken = z.clone()
        broken[7] = bad
        with pytest.raises(InputError, match=r"z\[7\]"):
            layer(broken, groups)
    with pytest.raises(InputError, match="50 entries for 49 outputs"):
        layer(z[1:], groups)
    assert torch.equal(layer(z, groups), before)


@pytest.mark.parametrize("over", [None, 1, (0, 1), (1, 0), [1, 0], [(1, 0), 0]])
def test_a_table_means_the_same_as_its_columns(over):
    generator = torch.Generator().manual_seed(0)
    table = torch.stack([torch.randint(0, k, (60,), generator=generator) for k in (2, 3)], dim=1)
    z = torch.randn(60, dtype=torch.float64, generator=generator)
    layer = FairLayer([MeanParity(0.01, over=over)])
    by_columns = project(z, {0: table[:, 0], 1: table[:, 1]}, [MeanParity(0.01, over=over)])
    for _ in range(2):
        assert torch.equal(layer(z, table), by_columns.value)
        assert layer.solution.rows == by_columns.rows


@pytest.mark.parametrize("spread", [1, 10**6, 2**62])
def test_labels_far_apart_are_labels(spread):
    z, labels = np.array([0.1, 0.4, 0.8, 0.5, 0.9]), np.array([-1, 0, 1, 0, 1]) * spread
    solution = project(z, {"a": labels}, MeanParity(0.05))
    assert np.array_equal(solution.value, project(z, {"a": labels // spread}, MeanParity(0.05)).value)
    assert solution.rows[0] == f"mean parity, a: {-spread} - 0"


def _frame(words: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame({name: words[:, j] for j, name in enumerate(("a", "b"))})


FORMS = {
    "columns of integers": lambda t: {"a": t[:, 0], "b": t[:, 1]},
    "columns of tensors": lambda t: {"a": torch.tensor(t[:, 0]), "b": torch.tensor(t[:, 1])},
    "narrow tensors": lambda t: {"a": torch.tensor(t[:, 0], dtype=torch.int8), "b": torch.tensor(t[:, 1].copy()).int()},
    "words in lists": lambda t: {"a": WORDS[t[:, 0]].tolist(), "b": WORDS[t[:, 1]].tolist()},
    "words in arrays": lambda t: {"a": WORDS[t[:, 0]], "b": WORDS[t[:, 1]]},
    "words as objects": lambda t: {"a": WORDS[t[:, 0]].astype(object), "b": WORDS[t[:, 1]].astype(object)},
    "words in a frame": lambda t: _frame(WORDS[t]),
    "categories": lambda t: _frame(WORDS[t]).astype("category"),
    "coded integers": lambda t: code_groups({"a": t[:, 0], "b": t[:, 1]}),
    "coded words": lambda t: code_groups(_frame(WORDS[t])),
    "coded categories": lambda t: code_groups(_frame(WORDS[t]).astype("category")),
}


@pytest.mark.parametrize(
    ("form", "dtype", "bounds"), pairwise([*FORMS], [torch.float32, torch.float64], [None, (0.0, 1.0)])
)
def test_the_form_of_groups_changes_nothing(form, dtype, bounds):
    """Value, figures and gradient of the layer, to the last bit, in every batch of several."""
    layer, plain = (FairLayer(MeanParity(0.05), bounds=bounds) for _ in range(2))
    for seed in range(4):
        z, table = batch(seed, n=40 + 9 * seed, labels=3, dtype=dtype)
        upstream = torch.randn(len(z), dtype=dtype, generator=torch.manual_seed(seed))
        found = []
        for chosen, groups in ((layer, FORMS[form](table.numpy())), (plain, table)):
            leaf = z.clone().requires_grad_()
            y = chosen(leaf, groups)
            found.append((y.detach(), chosen.solution, *torch.autograd.grad(y, leaf, upstream)))
        (value, solution, gradient), (expected, reference, expected_gradient) = found
        assert torch.equal(value, expected)
        assert torch.equal(gradient, expected_gradient)
        assert torch.equal(solution.gaps, reference.gaps)
        assert torch.equal(solution.multipliers, reference.multipliers)
        assert solution.status is reference.status


@pytest.mark.parametrize("rows", [slice(10, 40), np.arange(40) % 7, torch.arange(30), [3, 1, 2, 0] * 5], ids=type)
def test_rows_of_coded_groups(rows):
    """The labels of the whole table are kept, whichever of them a batch has."""
    z, table = batch(1, labels=3)
    coded = code_groups({"a": WORDS[table[:, 0]], "b": WORDS[table[:, 1]]})
    part = torch.arange(len(z))[rows]
    assert len(coded[rows]) == len(part)
    levels = {"a": WORDS.tolist(), "b": WORDS.tolist()}
    words = {"a": WORDS[table[part, 0]], "b": WORDS[table[part, 1]]}
    found = project(z[part], coded[rows], MeanParity(0.05), levels=levels)
    assert_same(found, project(z[part], words, MeanParity(0.05), levels=levels))
    with pytest.raises(InputError, match="take the rows of this batch"):
        project(z[1:], coded, MeanParity(0.05))
