"""Frames of polars and Arrow stand wherever those of pandas do, with pandas absent too."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest

from fairlayer import ConditionalParity, InputError, MeanParity, Stream, audit, freeze, project
from fairlayer.frames import frame_columns, is_frame
from fairlayer.layer import FairLayer
from fairlayer.metrics import mean_parity_difference
from fairlayer.sklearn import FairClassifier
from fairlayer.training import batches

N = 400
random = np.random.default_rng(0)
TABLE = pl.DataFrame(
    {
        "sex": random.choice(["f", "m"], N),
        "region": pl.Series(random.choice(["north", "south", "west"], N), dtype=pl.Categorical),
        "member": random.random(N) < 0.5,
        "age": random.integers(18, 80, N),
        "income": pl.Series(np.where(random.random(N) < 0.1, np.nan, random.normal(30, 8, N))).fill_nan(None),
        "job": [None if v == "" else str(v) for v in random.choice(["office", "field", ""], N)],
    }
)
RAW = np.clip(random.random(N) + 0.2 * (TABLE["sex"] == "m").to_numpy(), 0, 1.1)
BY_AGE = ConditionalParity(0.02, over="sex", regions={"age": [(None, 40), (40, None)]})
ATTRIBUTES = ["sex", "region", "member"]
FORMS = {
    "polars": TABLE,
    "arrow": TABLE.to_arrow(),
    "pandas": TABLE.with_columns(pl.col("region").cast(pl.String)).to_pandas(),
}


@pytest.fixture(params=["polars", "arrow"])
def frame(request):
    return FORMS[request.param]


def attributes(frame):
    return frame.select(ATTRIBUTES) if not isinstance(frame, pd.DataFrame) else frame[ATTRIBUTES]


def test_columns(frame):
    assert is_frame(frame)
    columns = frame_columns(frame)
    assert list(columns) == TABLE.columns
    assert columns["age"].dtype == np.int64
    assert np.isnan(columns["income"]).sum() == TABLE["income"].null_count() > 0
    assert columns["region"].tolist() == TABLE["region"].to_list()
    assert columns["member"].dtype == bool
    assert None in columns["job"].tolist()
    assert not is_frame(TABLE["age"])
    with pytest.raises(InputError, match="collect it first"):
        project(RAW, TABLE.lazy(), [MeanParity(0.1)])


def test_groups_features_streams_and_audits_are_those_of_pandas(frame):
    rules = [MeanParity(0.02), BY_AGE]
    results = []
    for form in (FORMS["pandas"], frame):
        groups = attributes(form)
        fair = project(RAW, groups, rules, bounds=(0, 1), features=form).value
        layer = FairLayer([BY_AGE], bounds=(0.0, 1.0))
        frozen = freeze(layer, RAW, groups, features=form, confidence=None).predict(RAW, groups, form)
        streamed = Stream([MeanParity(0.02)], bounds=(0, 2)).update(RAW, groups).value
        judged = audit(fair, groups, rules, features=form, raw=RAW)
        assert judged.satisfied
        gap = mean_parity_difference(None, fair, sensitive_features=groups)
        results.append((fair, frozen, streamed, gap, [finding.gap for finding in judged.findings]))
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)  # categories may stand in another order


def test_batches_of_frames(frame):
    loader = batches(RAW, RAW, attributes(frame), frame, batch_size=100, shuffle=True, stratify=True)
    for batch in loader:
        assert len(batch.groups) == len(batch.features["age"]) == len(batch.x)
    numbers = frame.select(["age"])
    assert next(iter(batches(numbers, RAW))).x.shape == (N, 1)


def test_the_estimators_take_them_for_everything(frame):
    y = pl.Series(RAW > 0.6)
    models = []
    for form in (FORMS["pandas"], frame):
        model = FairClassifier([MeanParity(0.02), BY_AGE], max_epochs=2, hidden=(8,), random_state=0)
        models.append(model.fit(form, y, sensitive_features=attributes(form)))
    expected = models[0].predict_proba(FORMS["pandas"], sensitive_features=attributes(FORMS["pandas"]))
    np.testing.assert_array_equal(models[1].predict_proba(frame, sensitive_features=attributes(frame)), expected)
    np.testing.assert_array_equal(
        models[0].predict_proba(frame), models[1].predict_proba(frame)
    )  # frozen: columns of X
    named = FairClassifier([MeanParity(0.02)], sensitive_columns="sex", max_epochs=1, hidden=(8,)).fit(frame, y)
    p = named.predict_proba(frame)[:, 1]
    assert mean_parity_difference(None, p, sensitive_features=TABLE["sex"]) <= 0.02 + 1e-12


WITHOUT_PANDAS = """
import sys

from importlib.machinery import PathFinder

class WithoutPandas(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] == "pandas" else super().find_spec(name, path, target)

sys.meta_path = [WithoutPandas if finder is PathFinder else finder for finder in sys.meta_path]
import numpy as np
import polars as pl
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from fairlayer import ConditionalParity, MeanParity, Stream, audit, freeze, project
from fairlayer.layer import FairLayer
from fairlayer.metrics import mean_parity_difference
from fairlayer.sklearn import FairClassifier

random = np.random.default_rng(0)
n = 300
table = pl.DataFrame({
    "sex": random.choice(["f", "m"], n), "age": random.integers(18, 80, n),
    "job": [None if i % 9 == 0 else f"job {i % 4}" for i in range(n)],
})
y = (random.random(n) + 0.4 * (table["sex"] == "m").to_numpy() > 0.7).astype(int)
z = random.random(n) + 0.2 * (table["sex"] == "m").to_numpy()
A = table.select("sex")
rules = [MeanParity(0.02), ConditionalParity(0.05, regions={"age": [(None, 40), (40, None)]})]
fair = project(z, A, rules, features=table).value
assert audit(fair, A, rules, features=table).satisfied
freeze(FairLayer(rules), z, A, features=table, confidence=None).predict(z, A, table)
Stream([MeanParity(0.02)]).update(z, A)
columns = make_column_transformer((OneHotEncoder(sparse_output=False), ["sex", "job"]), remainder="passthrough")
trees = make_pipeline(columns, HistGradientBoostingClassifier(max_iter=5))
for estimator in (None, trees):
    more = {"max_epochs": 1, "hidden": (4,)} if estimator is None else {}
    model = FairClassifier(rules, estimator=estimator, **more).fit(table, y, sensitive_features=A)
    p = model.predict_proba(table, sensitive_features=A)[:, 1]
    assert mean_parity_difference(None, p, sensitive_features=A) <= 0.02 + 1e-12
    assert model.predict(table).shape == (n,)
assert "pandas" not in sys.modules
print("fair without pandas")
"""


def test_polars_alone():
    done = subprocess.run([sys.executable, "-c", WITHOUT_PANDAS], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "fair without pandas\n"


def test_narwhals_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "narwhals", None)
    assert project(RAW, FORMS["pandas"][["sex"]], [MeanParity(0.1)]).satisfied  # which needs none
    with pytest.raises(ImportError, match=r"needs narwhals .*pip install"):
        project(RAW, TABLE, [MeanParity(0.1)])
