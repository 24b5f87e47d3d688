"""Tables of numbers, text and missing entries become arrays, whatever library they come from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

from fairlayer import InputError
from fairlayer.estimators.models import MOST_CATEGORIES, TableCodes, TableNumbers, make_estimator


def table() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "years": [1.0, 3.0, np.nan, 4.0],
            "job": ["cook", None, "clerk", "cook"],
            "empty": [np.nan] * 4,
            "same": [5] * 4,
            "flag": [True, False, True, True],
            "kind": pd.Categorical(["a", "b", "a", "b"]),
        }
    )


def test_numbers_are_scaled_and_missing_ones_marked_and_categories_have_columns() -> None:
    found = TableNumbers().fit(table()).transform(table())
    years = np.array([1.0, 3.0, 3.0, 4.0])  # the median for the missing one
    np.testing.assert_allclose(found[:, 0], (years - years.mean()) / years.std())
    assert (found[:, 1:3] == 0.0).all()
    missing = found[:, 4]
    assert missing.argmax() == 2
    assert (found[:, 5] == 0.0).all()  # always missing, and so no news
    job, kind = found[:, 6:9], found[:, 9:]
    assert job.tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0]]  # clerk, cook, missing
    assert kind.tolist() == [[1, 0], [0, 1], [1, 0], [0, 1]]


def test_codes_keep_numbers_as_they_are() -> None:
    encoder = TableCodes().fit(table())
    new = table().assign(job=["pilot", "cook", "clerk", None])
    found = encoder.transform(new)
    np.testing.assert_array_equal(found[:, 0], new["years"])
    np.testing.assert_array_equal(found[:, 4], [np.nan, 1.0, 0.0, 2.0])
    assert make_estimator("boosting", new, True, 0)[-1].categorical_features == [4, 5]


@pytest.mark.parametrize("encoder", [TableNumbers(), TableCodes()], ids=["numbers", "codes"])
def test_the_same_from_every_library_and_from_arrays(encoder: Any) -> None:
    X = table().drop(columns=["empty", "kind"])
    expected = clone(encoder).fit(X).transform(X)
    for same in (pl.from_pandas(X), {name: X[name] for name in X}):
        np.testing.assert_array_equal(clone(encoder).fit(same).transform(same), expected)
    numbers = np.array([[1.0, np.nan], [2.0, 5.0]])
    assert clone(encoder).fit(numbers).transform(numbers).shape[0] == 2


def test_the_rarest_of_a_crowd_share_a_column_with_new_ones() -> None:
    names = [f"person {i}" for i in range(400)] + ["somebody"] * 5
    encoder = TableNumbers().fit({"name": np.array(names)})
    found = encoder.transform({"name": np.array(["somebody else", "somebody"])})
    assert found.shape[1] == MOST_CATEGORIES
    assert found[0].argmax() == MOST_CATEGORIES - 1
    assert (found.sum(axis=1) == 1.0).all()


def test_what_no_longer_is_what_it_was_is_refused() -> None:
    encoder = TableNumbers().fit(table())
    for other, message in (
        (table().assign(years=["a"] * 4), "Column 'years' of X held numbers in fit"),
        (table().assign(years=np.inf), "Column 'years' of X contains infinity"),
        (table().drop(columns="job"), r"names \['job'\], which X does not have"),
        (np.zeros(3), "a table has rows and columns"),
    ):
        with pytest.raises(InputError, match=message):
            encoder.transform(other)
