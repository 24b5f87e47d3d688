"""Protected attributes in every form a user has them: the same groups, the same answer."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from fairlayer import InputError, MeanParity, SoftGroup, Status, code_groups, project
from formulas import Problem

N = 30
SEX = np.arange(N) % 2
RACE = np.arange(N) % 3
Z = np.random.default_rng(0).normal(size=N) + SEX + 0.5 * RACE
NAMES = np.array(["a", "b", "c"])


def answer(groups, **options) -> np.ndarray:
    return project(Z, groups, MeanParity(0.05), **options).value


EXPECTED = answer(np.stack([SEX, RACE], axis=1))

FORMS = {
    "columns": {"sex": SEX, "race": RACE},
    "tensors": {"sex": torch.tensor(SEX), "race": torch.tensor(RACE)},
    "narrow integers": {"sex": torch.tensor(SEX, dtype=torch.uint8), "race": RACE.astype(np.int16)},
    "strings and booleans": {"sex": SEX == 1, "race": NAMES[RACE]},
    "lists": {"sex": ["m" if s else "f" for s in SEX], "race": RACE.tolist()},
    "tensor of booleans": {"sex": torch.tensor(SEX).bool(), "race": torch.tensor(RACE)},
    "floats": {"sex": torch.tensor(SEX).bfloat16(), "race": RACE.astype(np.float64)},
    "frame": pd.DataFrame({"sex": SEX, "race": NAMES[RACE]}),
    "categorical": pd.DataFrame({"sex": pd.Categorical(SEX), "race": pd.Categorical(NAMES[RACE])}),
    "nullable": pd.DataFrame({"sex": pd.array(SEX, dtype="Int64"), "race": pd.array(NAMES[RACE], dtype="string")}),
    "objects": pd.DataFrame({"sex": SEX.astype(object), "race": NAMES[RACE].astype(object)}),
    "array": np.stack([SEX, RACE], axis=1),
    "array by columns": np.asfortranarray(np.stack([SEX, RACE], axis=1)),
    "array of strings": np.stack([SEX.astype(str), NAMES[RACE]], axis=1),
    "tensor": torch.tensor(np.stack([SEX, RACE], axis=1)),
    "tensor, transposed": torch.tensor(np.stack([SEX, RACE])).T,
    "nested lists": np.stack([SEX, RACE], axis=1).tolist(),
    "columns of shape (n, 1)": {"sex": SEX[:, None], "race": torch.tensor(RACE)[:, None]},
    "wide labels": {"sex": SEX * (2**62) - 2**61, "race": RACE * 10**12},
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_answer(form):
    assert np.abs(answer(FORMS[form]) - EXPECTED).max() < 1e-12


@pytest.mark.parametrize(
    "groups", [SEX, SEX.tolist(), torch.tensor(SEX), pd.Series(SEX, name="sex"), pd.Series(SEX, index=RACE)]
)
def test_a_single_attribute(groups):
    assert np.abs(answer(groups) - answer({"sex": SEX})).max() == 0


def test_the_index_of_a_frame_does_not_matter():
    frame = pd.DataFrame({"sex": SEX, "race": RACE}, index=np.random.default_rng(0).permutation(N))
    assert np.array_equal(answer(frame), EXPECTED)


def test_gradients_of_groups_are_ignored():
    groups = torch.tensor(SEX, dtype=torch.float32, requires_grad=True)
    z = torch.tensor(Z, requires_grad=True)
    project(z, groups, MeanParity(0.05)).value.sum().backward()
    assert groups.grad is None
    assert z.grad is not None


def test_rows_carry_the_labels():
    """Whatever was projected before: 0, 0.0 and False are equal and yet not the same."""
    named = {"0 - 1": SEX, "False - True": SEX.astype(bool), "0.0 - 1.0": SEX.astype(float), "a - b": NAMES[SEX]}
    for names, labels in {**named, "-2 - 3": SEX * 5 - 2}.items():
        assert project(Z, {"sex": labels}, MeanParity(0.05)).rows == (f"mean parity, sex: {names}",)


def test_absent_labels_do_not_shift_the_others():
    """A batch without label 1: rows speak of 0 and 2, as they do when 1 is there."""
    for groups in ({"race": RACE * 2}, np.stack([RACE * 2], axis=1), {"race": pd.Categorical(NAMES[RACE])}):
        rows = project(Z, groups, MeanParity(0.05)).rows
        kept = np.flatnonzero(RACE != 1)
        part = {"race": groups["race"][kept]} if isinstance(groups, dict) else groups[kept]
        solution = project(Z[kept], part, MeanParity(0.05))
        assert len(solution.rows) == 1
        assert solution.rows[0].split(": ")[1] in [row.split(": ")[1] for row in rows]


def test_a_categorical_names_what_is_absent():
    column = pd.Categorical(["a", "b"] * 15, categories=["a", "b", "c"])
    solution = project(Z, {"race": column}, MeanParity(0.05))
    assert solution.status is Status.VACUOUS
    assert solution.vacuous == ("mean parity, race: c is absent",)
    assert solution.satisfied


def test_levels_name_what_is_absent():
    solution = project(Z, {"sex": SEX}, MeanParity(0.05), levels={"sex": [0, 1, 2]})
    assert solution.vacuous == ("mean parity, sex: 2 is absent",)
    assert np.array_equal(solution.value, answer({"sex": SEX}))


def test_a_single_group_is_vacuous():
    solution = project(Z, {"sex": np.zeros(N, dtype=int)}, MeanParity(0.0))
    assert solution.status is Status.VACUOUS
    assert solution.vacuous == ("mean parity, sex: only 0 is present",)
    assert np.array_equal(solution.value, Z)


def test_certain_soft_groups_are_groups():
    hard = project(Z, {"race": RACE}, MeanParity(0.05))
    soft = project(Z, {"race": SoftGroup(np.eye(3)[RACE])}, MeanParity(0.05))
    assert np.abs(hard.value - soft.value).max() < 1e-12
    assert hard.rows == soft.rows


def test_soft_groups_hold_in_expectation():
    probabilities = np.random.default_rng(1).dirichlet(np.ones(2), N)
    y = project(Z, SoftGroup(probabilities), MeanParity(0.01)).value
    means = probabilities.T @ y / probabilities.sum(axis=0)
    assert abs(means[0] - means[1]) <= 0.01 + 1e-15
    assert len(Problem(Z, [MeanParity(0.01)], SoftGroup(probabilities)).rows) == 1


def test_many_combinations_of_labels():
    """Eight attributes of five values: more combinations than samples, of which only those that occur are cells."""
    groups = np.random.default_rng(2).integers(0, 5, (200, 8))
    z = np.random.default_rng(3).normal(size=200)
    y = project(z, groups, MeanParity(0.1)).value
    for column in groups.T:
        means = [y[column == label].mean() for label in range(5)]
        assert max(means) - min(means) <= 0.1 + 1e-12


BAD = [
    (None, "groups is missing"),
    ({}, "no columns"),
    (np.zeros((N, 0), dtype=int), "no columns"),
    ({"sex": 3}, r"groups\['sex'\] is 3"),
    ({"sex": "male"}, r"groups\['sex'\] is 'male'"),
    ("male", "groups must be"),
    ({"sex": SEX[:-1]}, r"groups\['sex'\] has 29 entries for 30 outputs"),
    (np.zeros((3, 2), dtype=int), r"groups\[0\] has 3 entries for 30 outputs"),
    (np.zeros((N, 2, 2), dtype=int), "groups must be"),
    ({"sex": np.zeros((N, 2))}, "SoftGroup"),
    ({"sex": [None] + ["m"] * (N - 1)}, "missing labels"),
    ({"sex": np.where(SEX, np.nan, 0.0)}, "missing labels"),
    (pd.DataFrame({"sex": pd.array([None, *SEX[1:]], dtype="Int64")}), "missing labels"),
    ({"sex": ["m", "f", float("nan")] * 10}, "missing labels"),
    ([["m", "x"], ["f", float("nan")]] * 15, "missing labels"),
    ({"sex": pd.Series([None, *NAMES[SEX[1:]]], dtype="string")}, "missing labels"),
    ({"sex": pd.Categorical(["x"] * (N - 1) + [None])}, "missing labels"),
    ({"age": np.linspace(20.5, 70.0, N)}, r"groups\['age'\] holds \d+ numbers that are not labels, such as 20.5"),
    (SoftGroup(np.full((3, 2), 0.5)), "has 3 entries for 30 outputs"),
]


@pytest.mark.parametrize(("groups", "message"), BAD)
def test_bad_groups(groups, message):
    with pytest.raises(InputError, match=message):
        answer(groups)


@pytest.mark.parametrize("form", [dict, code_groups])
def test_bad_levels(form):
    for levels, message in (
        ({"age": [0, 1]}, "levels names attribute 'age'"),
        ({"sex": [0]}, r"holds \[1\], not among"),
    ):
        with pytest.raises(InputError, match=message):
            answer(form({"sex": SEX}), levels=levels)


@pytest.mark.parametrize(
    ("probabilities", "labels"),
    [
        (np.full((3, 2), 0.6), None),
        ([[-0.1, 0.5]], None),
        ([[np.nan, 0.5]], None),
        (np.ones(3), None),
        ([[1, 0]], ["a"]),
    ],
)
def test_bad_soft_groups(probabilities, labels):
    with pytest.raises(InputError, match="SoftGroup"):
        SoftGroup(probabilities, labels)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_soft_groups_of_any_precision(dtype):
    """A softmax adds up to 1 within the rounding of its dtype."""
    probabilities = torch.softmax(torch.randn(1000, 5, generator=torch.manual_seed(0)), dim=1).to(dtype)
    assert len(SoftGroup(probabilities)) == 1000
    if dtype != torch.bfloat16:
        assert len(SoftGroup(probabilities.numpy())) == 1000


def test_levels_of_soft_groups():
    soft = SoftGroup(np.eye(2)[SEX], ["a", "b"])
    solution = project(Z, {"sex": soft}, MeanParity(0.05), levels={"sex": ["b", "c", "a"]})
    assert solution.rows == ("mean parity, sex: b - a",)
    assert solution.vacuous == ("mean parity, sex: c is absent",)
    with pytest.raises(InputError, match=r"holds \['b'\], not among its levels"):
        project(Z, {"sex": soft}, MeanParity(0.05), levels={"sex": ["a"]})


@pytest.mark.parametrize("as_type", [np.asarray, torch.tensor])
def test_integers_past_the_signed_range(as_type):
    labels = as_type(np.where(SEX, 2**64 - 1, 1).astype(np.uint64))
    assert project(Z, {"sex": labels}, MeanParity(0.05)).rows == (f"mean parity, sex: 1 - {2**64 - 1}",)


def test_labels_that_read_alike():
    """1 and "1" are two groups, and so have two names."""
    labels = np.array([1, "1", 2] * 10, dtype=object)
    rows = project(Z, {"code": labels}, MeanParity(0.05)).rows
    assert rows == tuple(f"mean parity, code: {pair}" for pair in ("1 - '1'", "1 - 2", "'1' - 2"))


@pytest.mark.parametrize("form", [list, lambda words: np.array(words, dtype=object)], ids=["list", "objects"])
def test_a_null_letter_is_a_letter(form):
    solution = project(np.array([0.0, 1.0, 0.0, 1.0]), {"code": form(["a", "a\0", "a", "a\0"])}, MeanParity(0.1))
    assert len(solution.rows) == 1
    assert solution.gaps[0] == pytest.approx(-0.1)
