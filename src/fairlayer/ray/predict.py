"""`predict` for a dataset: every block by itself, with a model or with frozen shifts that need no other rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fairlayer.errors import InputError
from fairlayer.extras import needs
from fairlayer.frozen.frozen import Frozen
from fairlayer.ray.project import Protected, read_protected
from fairlayer.tables.attribute import Attribute
from fairlayer.tables.dataset import BlockQuery, DatasetTable, opened, rows_of
from fairlayer.tables.entries import number
from fairlayer.tables.sql_cells import CellCode

with needs("fairlayer.ray", "ray", "pyarrow"):
    import pyarrow as pa


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
    schema = _served(folder)[1]
    for name in (*schema.features, *schema.attributes):
        table.require(name, "The model")
    for name in schema.added:
        if prefix + name in table.columns:
            raise InputError(f"The dataset has a column {prefix + name!r} already: pass another prefix.")
    return table.with_columns(_predicted, folder=folder, prefix=prefix)


def _by_shifts(table: DatasetTable, frozen: Frozen, score: str | None, protected: Protected | None, output: str) -> Any:
    if score is None:
        raise InputError("score is missing: name the column of raw outputs that the shifts are for.")
    if output in table.columns:
        raise InputError(f"output: the dataset has a column {output!r} already: choose another name.")
    names = [str(name) for name in frozen.labels]
    attributes = {one.column: one for one in read_protected(table, names if protected is None else protected)}
    code = CellCode(table, frozen.constraints, None)
    values = {"z": number(table.require(score, "score"))}
    for j, name in enumerate(names):
        values[f"g{j}"] = attributes.get(name, Attribute(name)).label(table.columns[name])
    features = list(code.features)
    values |= {f"f{j}": code.features[name].value for j, name in enumerate(features)}
    known = {"query": table.rows_query(values, code.parameters), "frozen": frozen, "features": features}
    return table.with_columns(_shifted, **known, score=score, output=output)


def _shifted(
    block: pa.Table, query: BlockQuery, frozen: Frozen, features: list[str], score: str, output: str
) -> pa.Table:
    """A block with one column more: what the frozen shifts make of its scores."""
    found = rows_of(block, query)
    if found.column("z").null_count:
        raise InputError(
            f"score: column {score!r} has {found.column('z').null_count:,} entries in one block that are not numbers: "
            "leave these rows out, or name another column."
        )
    groups = {}
    for j, (name, labels) in enumerate(frozen.labels.items()):
        as_known = {_text(one): one for one in labels}
        groups[name] = np.array([as_known.get(one, one) for one in found.column(f"g{j}").to_pylist()], dtype=object)
    by_name = {name: found.column(f"f{j}").to_numpy(zero_copy_only=False) for j, name in enumerate(features)}
    y = frozen.predict(np.array(found.column("z").to_numpy()), groups, by_name or None)
    return block.append_column(output, pa.array(y))


def _text(one: Any) -> str:
    """A label as tables have it."""
    if isinstance(one, bool | np.bool_):
        return str(one).lower()
    return str(int(one)) if isinstance(one, float) and one.is_integer() else str(one)


_MODELS: dict[str, tuple[Any, Any]] = {}  # by folder: a worker reads each once


def _served(folder: str) -> tuple[Any, Any]:
    """The model of a folder, to predict each row by itself, and what the columns of its table mean."""
    from fairlayer.constraints.plain_data import record_from_plain
    from fairlayer.estimators import folder as folders
    from fairlayer.tables.schema import Schema

    if folder in _MODELS:
        return _MODELS[folder]
    kept = folders.read_table(folder)
    if kept is None:
        raise InputError(f"{folder} was not written by `fairlayer fit`: it does not say what its columns mean.")
    estimator = folders.load(folder)
    if estimator.serving != "blind":
        estimator.serving = "frozen"
    _MODELS[folder] = estimator, record_from_plain(Schema, kept["schema"])
    return _MODELS[folder]


def _predicted(block: pa.Table, folder: str, prefix: str) -> pa.Table:
    """A block with what the model says of its rows."""
    estimator, schema = _served(folder)
    with opened(block.select([*dict.fromkeys((*schema.features, *schema.attributes))])) as table:
        rows = schema.read(table)
    raw, fair = estimator.outputs(rows.X, sensitive_features=rows.groups)
    for name, values in schema.predicted(raw, fair, getattr(estimator, "threshold_", None)).items():
        block = block.append_column(prefix + name, pa.array(values))
    return block
