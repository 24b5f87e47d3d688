"""Tables that outgrow a machine: `project`, `audit`, `freeze` and `predict` over a Ray Data dataset.

    import ray, fairlayer.ray
    people = ray.data.read_parquet("people/")
    fair = fairlayer.ray.project(people, score="p", protected=["sex"], constraints=[MeanParity(0.02)], bounds=(0, 1))
    fair.dataset.write_parquet("fair/")

Workers take exact sums of their blocks, the sums are added up and solved here, and workers move the scores. The answer
is that of `fairlayer project` on a file with the same rows, to the bit, however the rows are divided into blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fairlayer.audit import Audit
from fairlayer.audit import audit as audit_table
from fairlayer.constraints import Constraint
from fairlayer.errors import InputError
from fairlayer.extras import needs
from fairlayer.frozen.freeze import freeze as freeze_arrays
from fairlayer.frozen.frozen import Frozen
from fairlayer.layer import FairLayer
from fairlayer.tables.dataset import BlockQuery, DatasetTable, answer, opened, with_known
from fairlayer.tables.entries import Attribute, label_of, number, read_cuts
from fairlayer.tables.passes import Change, Shifts
from fairlayer.tables.sql_cells import CellCode, ScoredTable

with needs("fairlayer.ray", "ray", "pyarrow"):
    import pyarrow as pa

__all__ = ["Projected", "audit", "freeze", "predict", "project"]

Protected = str | Sequence[str] | Mapping[str, Sequence[float]]


class Projected(Shifts):
    """A projected dataset, and what is known of it.

    dataset: with one column more, whose values are computed when they are asked for; samples: its rows. changed: how
    many scores were changed; largest_change: by how much at most; mean_change: by how much on average over all.
    """

    def __init__(self, shifts: Shifts, dataset: Any, change: Change, samples: int):
        self.__dict__.update(vars(shifts))
        self.dataset, self.samples, self.changed = dataset, samples, change.changed
        self.largest_change, self.mean_change = change.largest, change.total / samples

    def __repr__(self) -> str:
        gaps = dict(zip(self.rows, np.round(self.gaps, 6).tolist(), strict=True))
        return f"Projected(status={self.status.name}, gaps={gaps}, changed={self.changed:,} of {self.samples:,})"


def project(
    dataset: Any,
    score: str,
    protected: Protected,
    constraints: Sequence[Constraint] | Constraint,
    bounds: Any = None,
    *,
    target: str | None = None,
    output: str = "fair",
) -> Projected:
    """Move the scores of a dataset as little as possible so that the constraints hold over all of its rows.

    score: the column of scores; protected: the columns of groups, or {"sex": (), "age": (30, 50)} with cut points that
    make groups of numbers; target: the column of targets, where a constraint needs them; features of constraints are
    columns by their names. output: the column to add.

    The rows hold in exact arithmetic. The shifts depend neither on how the dataset is divided into blocks nor on the
    order in which workers finish. Score and cell of every row, 12 bytes, are kept in Ray's object store meanwhile.
    """
    table = DatasetTable(dataset)
    _check_output(table, output)
    cells = ScoredTable(table, score, _read_protected(table, protected), constraints, target, bounds)
    if cells.rules.about_decisions:
        raise InputError(
            "constraints compare rates of decisions, which takes all scores in the memory of one machine: project a "
            "file of up to 50,000,000 rows with `fairlayer project`, or constrain means of scores."
        )
    cells.bind()
    shifts = cells.project()
    sql, parameters = cells.moved(shifts)
    # Missing scores and codes are looked for, as a bound would take the place of a missing output.
    query = table.rows_query({**cells.values, output: sql}, parameters)
    moved = table.with_columns(with_known, query=query, output=output)
    return Projected(shifts, moved, cells.passes.change(shifts), int(cells.passes.n.sum()))


def audit(
    dataset: Any,
    groups: Sequence[str] | str,
    constraints: Sequence[Constraint] | Constraint,
    *,
    prediction: str,
    **options: Any,
) -> Audit:
    """Judge the predictions of a dataset, group by group: the `Audit` that `fairlayer.audit` gives of a file.

    Columns are named, and options are passed, as there. All figures are the same, to the bit; only the rows that are
    drawn for the trade-off, where there are more than 200,000, are others. The dataset is read in eight passes or so:
    call `materialize` before, where its rows take long to make.
    """
    return audit_table(DatasetTable(dataset), groups, constraints, prediction=prediction, **options)


def freeze(
    dataset: Any,
    score: str,
    protected: Protected,
    constraints: Sequence[Constraint] | Constraint,
    bounds: Any = None,
    *,
    target: str | None = None,
    rows: int = 1_000_000,
    seed: int = 0,
    **options: Any,
) -> Frozen:
    """Solve the projection of a sample of a dataset and keep its shifts, or thresholds: a `Frozen`.

    Columns are named as for `project`; labels of groups are text. rows: how many are drawn at random, all where there
    are no more; they are held in memory, some 100 bytes each. Which are drawn depends on the seed and on how the
    dataset is divided into blocks. options: of `fairlayer.freeze`, such as confidence, tighten and targets_within.
    """
    layer, table = FairLayer(constraints, bounds), DatasetTable(dataset)
    cells = ScoredTable(table, score, _read_protected(table, protected), constraints, target, bounds)
    n = table.one({"n": "count(*)"})["n"]
    found = table.sample(cells.values, rows, n, seed, cells.code.parameters)
    groups, features, targets = cells.code.meanings(found["code"])
    targets = found.get("t", targets)
    z = np.ascontiguousarray(found["z"], dtype=np.float64)
    return freeze_arrays(layer, z, groups, targets=targets, features=features or None, seed=seed, **options)


def predict(
    dataset: Any,
    model: Any,
    *,
    score: str | None = None,
    protected: Protected | None = None,
    output: str = "fair",
    prefix: str = "",
) -> Any:
    """Serve a dataset, each row by itself, whatever else is in it; the dataset with more columns.

    model: the folder of a model that `fairlayer fit` wrote, which must be where every worker can read it. It adds the
    columns `prediction`, `probability` (for classes; of three and more one for each) and `raw`, what the model said
    before it was made fair, as `fairlayer predict --mode frozen` does; prefix: put before these names.

    Or a `Frozen`, as `freeze` gives: score is the column of raw outputs, `output` the column to add, and protected what
    was passed to `freeze`, where it had cut points.

    Shifts promise something about the population, not about these rows. For rows that satisfy the constraints
    themselves, pass the raw outputs to `project`.
    """
    table = DatasetTable(dataset)
    if isinstance(model, Frozen):
        return _by_shifts(table, model, score, protected, output)
    if not isinstance(model, str | Path):
        raise InputError(
            f"model must be the folder of a model, or what fairlayer.ray.freeze gives; got {type(model).__name__}."
        )
    if score is not None or protected is not None:
        raise InputError("score and protected go with a Frozen: a model folder knows its columns. Leave them out.")
    folder = str(Path(model).absolute())
    version = max((path.stat().st_mtime_ns for path in Path(folder).glob("*")), default=0)
    schema = _served(folder, version)[1]
    for name in (*schema.features, *schema.attributes):
        table.require(name, "The model needs a column that is missing")
    for name in schema.added:
        if prefix + name in table.columns:
            raise InputError(f"The dataset has a column {prefix + name!r} already: pass another prefix.")
    return table.with_columns(_predicted, folder=folder, version=version, prefix=prefix)


def _by_shifts(table: DatasetTable, frozen: Frozen, score: str | None, protected: Protected | None, output: str) -> Any:
    if score is None:
        raise InputError("score is missing: name the column of raw outputs that the shifts are for.")
    _check_output(table, output)
    names = [str(name) for name in frozen.labels]
    attributes = {one.column: one for one in _read_protected(table, names if protected is None else protected)}
    code = CellCode(table, frozen.constraints, None)
    values = {"z": number(table.require(score, "score"))}
    values |= {
        f"g{j}": attributes.get(name, Attribute(name)).label(table.columns[name]) for j, name in enumerate(names)
    }
    values |= {f"f{j}": digit.value for j, digit in enumerate(code.features.values())}
    known = {"query": table.rows_query(values, code.parameters), "frozen": frozen, "features": [*code.features]}
    return table.with_columns(_shifted, **known, score=score, output=output)


def _check_output(table: DatasetTable, output: str) -> None:
    if output in table.columns:
        raise InputError(f"output: the dataset has a column {output!r} already: choose another name.")


def _read_protected(table: DatasetTable, protected: Protected) -> list[Attribute]:
    """The protected attributes."""
    if isinstance(protected, str):
        protected = [protected]
    cuts = protected if isinstance(protected, Mapping) else dict.fromkeys(protected, ())
    if not cuts:
        raise InputError("protected is empty: name the columns of groups, such as protected=['sex'].")
    attributes = []
    for name, points in cuts.items():
        listed = read_cuts(",".join(map(str, points)), f"protected[{name!r}]") if len(points) else ()
        attributes.append(Attribute(table.require(name, "protected"), listed))
    return attributes


# What workers do with a block, besides `with_known`, for which they need no PyTorch


def _shifted(
    block: pa.Table, query: BlockQuery, frozen: Frozen, features: list[str], score: str, output: str
) -> pa.Table:
    """A block with one column more: what the frozen shifts make of its scores."""
    found = answer(block, query)
    if found.column("z").null_count:
        raise InputError(
            f"score: column {score!r} has {found.column('z').null_count:,} entries in one block that are not numbers: "
            "leave these rows out, or name another column."
        )
    groups = {}
    for j, (name, labels) in enumerate(frozen.labels.items()):
        as_known = {label_of(one): one for one in labels}
        groups[name] = np.array([as_known.get(one, one) for one in found.column(f"g{j}").to_pylist()], dtype=object)
    by_name = {name: found.column(f"f{j}").to_numpy(zero_copy_only=False) for j, name in enumerate(features)}
    y = frozen.predict(np.array(found.column("z").to_numpy()), groups, by_name or None)
    return block.append_column(output, pa.array(y))


@lru_cache(maxsize=8)
def _served(folder: str, version: int) -> tuple[Any, Any]:
    """The model of a folder, to predict each row by itself, and what the columns of its table mean.

    version: another one where the folder was written again.
    """
    from fairlayer.constraints.plain_data import record_from_plain
    from fairlayer.estimators import folder as folders
    from fairlayer.tables.schema import Schema

    kept = folders.read_table(folder)
    if kept is None:
        raise InputError(f"{folder} was not written by `fairlayer fit`: it does not say what its columns mean.")
    estimator = folders.load(folder)
    if estimator.serving != "blind":
        estimator.serving = "frozen"
    return estimator, record_from_plain(Schema, kept["schema"])


def _predicted(block: pa.Table, folder: str, version: int, prefix: str) -> pa.Table:
    """A block with what the model says of its rows."""
    estimator, schema = _served(folder, version)
    with opened(block.select([*dict.fromkeys((*schema.features, *schema.attributes))])) as table:
        rows = schema.read(table)
    raw, fair = estimator.outputs(rows.X, sensitive_features=rows.groups)
    for name, values in schema.predicted(raw, fair, getattr(estimator, "threshold_", None)).items():
        block = block.append_column(prefix + name, pa.array(values))
    return block
