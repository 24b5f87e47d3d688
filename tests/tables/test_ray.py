"""A Ray dataset is projected, audited, frozen and served as a file or arrays with the same rows are."""

from __future__ import annotations

import logging
import os
import signal

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow", reason="needs fairlayer[ray]")
ray = pytest.importorskip("ray", reason="needs fairlayer[ray]")
pytest.importorskip("ray.data", reason="needs fairlayer[ray]")
pytest.importorskip("duckdb", reason="needs fairlayer[ray]")

import pyarrow.parquet as pq  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

from fairlayer import (  # noqa: E402
    ConditionalParity,
    EqualizedOdds,
    EqualizedResiduals,
    FairLayer,
    InfeasibleError,
    InputError,
    MeanParity,
    RateParity,
    Status,
    audit,
    freeze,
    project,
)
from fairlayer import ray as fair_ray  # noqa: E402

PARITY = [MeanParity(0.01)]


def people(n=2_000, seed=0):
    random = np.random.default_rng(seed)
    sex = random.choice(["f", "m", None], n, p=[0.3, 0.6, 0.1])
    race = random.integers(0, 4, n)
    z = np.clip(0.7 * random.random(n) + 0.15 * (sex == "m") + 0.05 * race, 0.0, 1.0)
    columns = {"sex": pa.array(sex.tolist()), "race": race, "z": z}
    return pa.table(columns | {"y": random.integers(0, 2, n), "age": 90 * random.random(n)})


def in_blocks(table):
    """Blocks of several sizes, one of them empty, in another order; and the rows in that order."""
    n = len(table)
    parts = [table.slice(n // 2), table.slice(0, 0), table.slice(0, n // 7), table.slice(n // 7, n // 2 - n // 7)]
    return ray.data.from_arrow(parts), pa.concat_tables(parts)


def sexes(table):
    return {"sex": np.array(table["sex"].fill_null("missing").to_pylist(), dtype=object)}


def column(dataset, name="fair"):
    return np.array([row[name] for row in dataset.take_all()])


def by_command(table, tmp_path, *options):
    """What `fairlayer project` makes of a file with these rows."""
    from fairlayer.cli.app import app

    pq.write_table(table, tmp_path / "rows.parquet")
    command = ["project", str(tmp_path / "rows.parquet"), "--score", "z", *options, "-o", str(tmp_path / "out.parquet")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    return pq.read_table(tmp_path / "out.parquet").column("z").to_numpy()


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """Two workers on this machine alone, until the tests of this module have ended."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
    ray.init(num_cpus=2, object_store_memory=100_000_000, _node_ip_address="127.0.0.1", **quiet)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True  # so that rows can be compared
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    yield
    ray.shutdown()
    context.execution_options.preserve_order = False


def test_equal_to_the_file_engine_to_the_bit(tmp_path):
    dataset, rows = in_blocks(people())
    expected = by_command(people(), tmp_path, "--protected", "sex,race", "--parity", "0.01", "--bounds", "0", "1")
    found = fair_ray.project(dataset, "z", ["sex", "race"], PARITY, (0, 1))
    assert found.status is Status.OPTIMAL
    assert np.abs(found.gaps).max() <= 0.01
    values, z = column(found.dataset), rows["z"].to_numpy()
    by_row = dict(zip(people()["age"].to_pylist(), expected.tolist(), strict=True))
    assert values.tolist() == [by_row[age] for age in rows["age"].to_pylist()]
    whole = project(z, {**sexes(rows), "race": rows["race"].to_numpy()}, PARITY, (0, 1))
    assert np.abs(values - whole.value).max() < 1e-12
    assert found.changed == np.count_nonzero(values != z)
    assert found.largest_change == np.abs(values - z).max()
    assert found.mean_change == pytest.approx(np.abs(values - z).mean())
    assert "OPTIMAL" in repr(found)


@pytest.mark.parametrize(
    ("constraint", "options"),
    [
        (EqualizedResiduals(0.02), ["--residuals", "0.02", "--target", "y"]),
        (EqualizedOdds(0.02), ["--odds", "0.02", "--target", "y"]),
        (ConditionalParity(0.02, regions={"age": [(None, 30), (30, None)]}), ["--conditional", "0.02:age=30"]),
    ],
)
def test_other_constraints(tmp_path, constraint, options):
    table = people()
    expected = by_command(table, tmp_path, "--protected", "sex", *options, "--bounds", "0", "1")
    target = "y" if "--target" in options else None
    found = fair_ray.project(ray.data.from_arrow([table]), "z", "sex", constraint, (0, 1), target=target)
    assert column(found.dataset).tolist() == expected.tolist()


def test_cut_points_and_labels_of_one_block():
    table = people()
    first = table.slice(0, 1_000).set_column(0, "sex", pa.array(["f", "m"] * 500))
    second = table.slice(1_000).set_column(0, "sex", pa.array(["x", "m"] * 500))
    found = fair_ray.project(
        ray.data.from_arrow([first, second]), "z", {"sex": (), "age": (30, 50)}, PARITY, (0, 1), output="y2"
    )
    assert {"mean parity, sex: f - x", "mean parity, age: 50 or more - below 30"} <= set(found.rows)
    assert np.abs(found.gaps).max() <= 0.01
    values, sex = column(found.dataset, "y2"), column(found.dataset, "sex")
    assert abs(values[sex == "f"].mean() - values[sex == "x"].mean()) <= 0.01 + 1e-12


def test_audit_is_that_of_a_file(tmp_path):
    table = people()
    fair = table.append_column("p", pa.array(np.clip(table["z"].to_numpy() - 0.02 * table["race"].to_numpy(), 0, 1)))
    pq.write_table(fair, tmp_path / "t.parquet")
    rules = [MeanParity(0.05), EqualizedOdds(0.1, over="sex")]
    known = {"prediction": "p", "target": "y", "raw": "z", "tradeoff": False}
    expected = audit(tmp_path / "t.parquet", ["sex", "race"], rules, **known)
    found = fair_ray.audit(in_blocks(fair)[0], ["sex", "race"], rules, **known)
    for name in ("findings", "groups", "intersections", "overall"):
        assert repr(getattr(found, name)) == repr(getattr(expected, name)), name
    assert found.settings.source == "the dataset"


def test_a_killed_worker_changes_nothing(tmp_path):
    dataset, _ = in_blocks(people())
    calls, killed = tmp_path / "calls", 8  # in the pass that keeps scores and codes

    def dying(block):
        with calls.open("a") as file:
            file.write(".")
        if calls.stat().st_size == killed:
            os.kill(os.getpid(), signal.SIGKILL)
        return block

    expected = fair_ray.project(dataset, "z", ["sex"], PARITY, (0, 1))
    mortal = dataset.map_batches(dying, batch_format="pyarrow", batch_size=None)
    found = fair_ray.project(mortal, "z", ["sex"], PARITY, (0, 1))
    assert calls.stat().st_size >= killed
    assert found.shift.tobytes() == expected.shift.tobytes()
    assert (found.changed, found.mean_change) == (expected.changed, expected.mean_change)


def test_frozen_shifts():
    dataset, rows = in_blocks(people())
    z, groups = rows["z"].to_numpy(), sexes(rows)
    expected = freeze(FairLayer(PARITY, bounds=(0, 1)), z, groups, confidence=None)
    frozen = fair_ray.freeze(dataset, "z", "sex", PARITY, (0, 1), confidence=None)
    assert frozen.labels == expected.labels
    assert np.allclose(frozen.shifts.numpy(), expected.shifts.numpy(), rtol=0, atol=1e-12)
    served = fair_ray.predict(dataset, frozen, score="z")
    assert column(served).tolist() == frozen.predict(z, groups).tolist()
    decided = fair_ray.freeze(dataset, "z", "sex", RateParity(0.02, threshold=0.5), (0, 1), confidence=None)
    yes = decided.predict(z, groups) >= 0.5
    rates = [yes[groups["sex"] == one].mean() for one in ("f", "m", "missing")]
    assert max(rates) - min(rates) <= 0.03


def test_shifts_that_were_frozen_of_arrays():
    """Labels in memory are found again, whatever their type and case."""
    z, labels = people()["z"].to_numpy(), np.array(["TRUE", "FALSE"], dtype=object)[people()["y"].to_numpy()]
    by = ConditionalParity(0.02, over="member", regions={"age": [(None, 30), (30, None)]})
    groups, features = (
        {"member": labels, "code": 1.0 * people()["race"].to_numpy()},
        {"age": people()["age"].to_numpy()},
    )
    frozen = freeze(FairLayer([by, MeanParity(0.02)]), z, groups, features=features, confidence=None)
    table = people().append_column("member", pa.array(labels.tolist())).append_column("code", pa.array(groups["code"]))
    served = fair_ray.predict(ray.data.from_arrow([table]), frozen, score="z", output="y2")
    assert column(served, "y2").tolist() == frozen.predict(z, groups, features).tolist()


def test_certificate():
    table = people(4_000)
    frozen = fair_ray.freeze(ray.data.from_arrow([table]), "z", "sex", PARITY, (0, 1), confidence=0.9, seed=3)
    stated = frozen.certificate
    assert stated.samples + stated.fitted_on == 4_000
    assert abs(stated.samples - 2_000) < 200
    assert stated.rows[0].row == "mean parity, sex: f - m"
    assert all(row.measured < row.bound for row in stated.rows)
    alike = freeze(FairLayer(PARITY, bounds=(0, 1)), table["z"].to_numpy(), sexes(table), confidence=0.9).certificate
    for ours, other in zip(stated.rows, alike.rows, strict=True):  # of another half of the rows
        assert ours.row == other.row
        assert ours.bound - ours.measured == pytest.approx(other.bound - other.measured, rel=0.2)
    some = fair_ray.freeze(in_blocks(table)[0], "z", "sex", PARITY, (0, 1), rows=1_000, confidence=0.9)
    assert abs(some.certificate.samples + some.certificate.fitted_on - 1_000) < 150


def test_a_model_folder(tmp_path):
    from fairlayer.cli.app import app

    table = people(300).append_column("buys", pa.array(np.where(people(300)["z"].to_numpy() > 0.5, "yes", "no")))
    pq.write_table(table.drop_columns(["y"]), tmp_path / "people.parquet")
    fit = ["fit", str(tmp_path / "people.parquet"), "--target", "buys", "--protected", "sex", "--parity", "0.05"]
    served = ["predict", str(tmp_path / "model"), str(tmp_path / "people.parquet"), "--mode", "frozen"]
    dataset = ray.data.from_arrow([table])
    for seed in ("0", "1"):  # the folder is written again
        command = [*fit, "--model", "logistic", "--seed", seed, "-o", str(tmp_path / "model")]
        for arguments in (command, [*served, "-o", str(tmp_path / "out.parquet")]):
            run = CliRunner().invoke(app, arguments)
            assert run.exit_code == 0, run.output
        expected = pq.read_table(tmp_path / "out.parquet")
        found = fair_ray.predict(dataset, tmp_path / "model", prefix="p_").take_all()
        for name in ("prediction", "probability", "raw"):
            assert [row[f"p_{name}"] for row in found] == expected[name].to_pylist(), name


def with_bad(table, value):
    return table.set_column(2, "z", pa.array([value, *map(str, table["z"].to_pylist()[1:])]))


@pytest.mark.parametrize(
    ("change", "asked", "message"),
    [
        (lambda t: with_bad(t, "high"), {}, r"score: column 'z' has 1 entry that is not a number, such as 'high'"),
        (
            lambda t: t,
            {"score": "zz"},
            r"score: the dataset has no column 'zz'\. Did you mean",
        ),
        (lambda t: t, {"protected": []}, "protected is empty"),
        (lambda t: t, {"protected": ["age"]}, r"more than 1000 groups: give cut points, such as protected=\{'age'"),
        (lambda t: t.slice(0, 0), {}, "has no rows"),
        (lambda t: t, {"output": "y"}, "has a column 'y' already"),
        (lambda t: t, {"constraints": [RateParity(0.1, threshold=0.5)]}, "rates of decisions"),
        (lambda t: t, {"constraints": [EqualizedResiduals(0.1)]}, "target is missing"),
    ],
)
def test_bad_input(change, asked, message):
    dataset = ray.data.from_arrow([change(people(1_500))])
    known = {"score": "z", "protected": ["sex"], "constraints": PARITY, "bounds": (0, 1), **asked}
    with pytest.raises(InputError, match=message):
        fair_ray.project(dataset, **known)


def test_other_bad_input():
    table = people(500)
    with pytest.raises(InputError, match="must be a Ray Data dataset"):
        fair_ray.project(table, "z", ["sex"], PARITY)
    dataset = ray.data.from_arrow([table])
    rules = [MeanParity(0.0001), EqualizedResiduals(0.0001)]
    with pytest.raises(InfeasibleError, match="equalized residuals, race"):
        fair_ray.project(dataset, "z", ["race"], rules, (0.4, 0.45), target="age")
    with pytest.raises(InputError, match="has no column 'q'"):
        fair_ray.audit(dataset, ["sex"], PARITY, prediction="q")
    frozen = fair_ray.freeze(dataset, "z", "sex", PARITY, (0, 1), confidence=None)
    with pytest.raises(InputError, match="score is missing"):
        fair_ray.predict(dataset, frozen)
    with pytest.raises(InputError, match="model must be the folder"):
        fair_ray.predict(dataset, 7)
    other = ray.data.from_arrow([table.set_column(0, "sex", pa.array(["x"] * 500))])
    with pytest.raises(Exception, match=r"holds \['x'\], which the calibration sample did not have"):
        column(fair_ray.predict(other, frozen, score="z"))
