"""Constraints used again: what is kept of earlier batches changes nothing, nor does the form of the groups."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from fairlayer import Affine, FairLayer, InputError, MeanParity, Status, project
from fairlayer.binding.constraint_set import ConstraintSet
from fairlayer.binding.groups import code_groups

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
    assert solution.status == expected.status
    assert torch.equal(solution.gaps, expected.gaps)
    assert torch.equal(solution.multipliers, expected.multipliers)


def assert_memory_changes_nothing(batches, constraints, **options) -> ConstraintSet:
    """Run the batches one after the other with rules that remember, and each by itself with rules that do not."""
    rules = ConstraintSet(constraints)
    for z, groups in batches:
        assert_same(project(z, groups, rules, **options), project(z, groups, ConstraintSet(constraints), **options))
    return rules


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


def test_a_label_in_the_middle_of_the_range():
    """Labels 0 and 2, then 0, 1 and 2: the range is the same, the groups are not."""
    z, groups = batch(0, labels=3)
    gap = torch.where(groups == 1, 2, groups)
    assert_memory_changes_nothing([(z, gap), (z, groups), (z, gap)], MeanParity(0.05))
    assert project(z, gap, MeanParity(0.05)).rows == ("mean parity, 0: 0 - 2", "mean parity, 1: 0 - 2")


@pytest.mark.parametrize("other", [torch.tensor([[0, 7]]), torch.tensor([[-1, 0]])], ids=["above", "below"])
def test_a_label_out_of_range(other):
    z, groups = batch(0)
    changed = torch.cat([other, groups[1:]])
    assert_memory_changes_nothing([(z, groups), (z, changed), (z, groups)], MeanParity(0.05))


def test_a_group_that_vanishes():
    z, groups = batch(0)
    rules = assert_memory_changes_nothing([(z, groups), (z, torch.zeros_like(groups))], MeanParity(0.05))
    assert project(z, torch.zeros_like(groups), rules).status is Status.VACUOUS


def test_tolerances_and_bounds_are_read_anew():
    tolerance = torch.tensor(0.5, dtype=torch.float64)
    rules = ConstraintSet(MeanParity(tolerance))
    z, groups = batch(0)
    project(z, groups, rules)
    tolerance.fill_(0.01)
    assert project(z, groups, rules).gaps.abs().max() <= 0.01
    assert project(z, groups, rules, bounds=(0.2, 0.4)).value.max() <= 0.4


def test_nothing_is_remembered_of_a_matrix():
    """As many samples as cells: the system looks like one of labels, and is not."""
    groups = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    z = torch.tensor([1.0, 5.0, 2.0, 3.0], dtype=torch.float64)
    constraints = [MeanParity(0.1), Affine([[1.0, 2.0, 3.0, 4.0]], upper=3.0)]
    assert_memory_changes_nothing([(z, groups)] * 3, constraints)


def test_attributes_named_in_another_order():
    batches = [batch(seed) for seed in range(3)]
    assert_memory_changes_nothing(batches, [MeanParity(0.01, over=1), MeanParity(0.5, over=0)])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_outputs_that_are_not_finite(bad):
    rules = ConstraintSet(MeanParity(0.05))
    z, groups = batch(0)
    before = project(z, groups, rules).value
    broken = z.clone()
    broken[7] = bad
    with pytest.raises(InputError, match=r"z\[7\]"):
        project(broken, groups, rules)
    assert torch.equal(project(z, groups, rules).value, before)


def test_a_table_of_another_length():
    rules = ConstraintSet(MeanParity(0.05))
    z, groups = batch(0)
    project(z, groups, rules)
    with pytest.raises(InputError, match="50 entries for 49 outputs"):
        project(z[1:], groups, rules)


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


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bounds", [None, (0.0, 1.0)])
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
    found = project(z[part], coded[rows], MeanParity(0.05), levels={"a": WORDS.tolist(), "b": WORDS.tolist()})
    words = {"a": WORDS[table[part, 0]], "b": WORDS[table[part, 1]]}
    assert_same(found, project(z[part], words, MeanParity(0.05), levels={"a": WORDS.tolist(), "b": WORDS.tolist()}))
    with pytest.raises(InputError, match="take the rows of this batch"):
        project(z[part], coded, MeanParity(0.05)) if len(part) != len(z) else project(z[1:], coded, MeanParity(0.05))
