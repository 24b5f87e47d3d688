"""What a worker does with one block of a table, an Arrow table: answer a query, take sums, move scores.

Every function here gives the same for the same block, and changes nothing else: a worker that dies in the middle is
replaced, and its block is taken again. Nothing here needs PyTorch.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fairlayer.binding.block_sums import BlockSums
from fairlayer.errors import InputError
from fairlayer.extras import needs
from fairlayer.tables.duckdb_table import quote, select_list, used
from fairlayer.tables.table_io import connect

with needs("fairlayer.ray", "ray", "pyarrow"):
    import pyarrow as pa

Parameters = Mapping[str, Any]
_ROW = "fairlayer: number of the row"  # in its block


def ask(block: pa.Table, query: str, parameters: Parameters, schema: Any) -> pa.Table:
    """The answer to a query about `data`, the block. schema: of the columns that it mentions."""
    return _asked(_typed(block, schema), query, parameters)


class RowValues(NamedTuple):
    """SQL expressions of every row, by name, with their parameters. schema: of the columns that they mention."""

    values: Mapping[str, str]
    parameters: Parameters
    schema: Any


def ask_rows(block: pa.Table, asked: RowValues) -> pa.Table:
    """The values of every row, in the order of the block, which the answer to a query need not keep."""
    rows = _typed(block, asked.schema).append_column(_ROW, pa.array(np.arange(len(block))))
    found = _asked(rows, select_sql({**asked.values, _ROW: quote(_ROW)}), asked.parameters)
    row = found.column(_ROW).to_numpy()
    return (found if (np.diff(row) > 0).all() else found.take(np.argsort(row))).drop_columns([_ROW])


def select_sql(values: Mapping[str, str]) -> str:
    """A query for expressions of every row."""
    return f"SELECT {select_list(values)} FROM data"


def _asked(rows: pa.Table, sql: str, parameters: Parameters) -> pa.Table:
    with connect() as connection:
        connection.execute("SET threads = 1")  # the other processors are for the other workers
        connection.register("block", rows)
        full = f"WITH data AS (SELECT * FROM block) {sql}"
        return connection.sql(full, params=used(full, parameters)).to_arrow_table()


def _typed(block: pa.Table, schema: Any) -> pa.Table:
    """The columns of a block that a query mentions, of the types that they have in the table as a whole."""
    columns = []
    for entry in schema:
        column = block.column(entry.name)
        try:
            columns.append(column if column.type == entry.type else column.cast(entry.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InputError(
                f"Column {entry.name!r} is of type {entry.type} in one block and of type {column.type} in another "
                f"({error}): give it one type."
            ) from error
    return pa.table(columns, schema=schema)


def sample(block: pa.Table, asked: RowValues, seed: int, share: float) -> pa.Table:
    """The values of the rows, or of a share of them that is drawn at random; the first is a number."""
    found = ask_rows(block, asked)
    return found if share >= 1.0 else found.filter(_drawn(found, seed) < share)


def _drawn(block: pa.Table, seed: int) -> np.ndarray:
    """A random number for each row, the same whenever the block is taken."""
    digest = zlib.crc32(block.column(0).to_numpy().tobytes())
    return np.random.default_rng([seed, digest, len(block)]).random(len(block))


def scores(block: pa.Table, asked: RowValues, codes: int, seed: int | None, share: float) -> pa.Table:
    """Score z and code of each row, and t where it is asked for: all that later passes look at.

    seed: where rows are dealt into two parts, at random: then `part` is 1 for a share of them, 0 for the others.
    """
    found = _ask_scores(block, asked)
    code = found.column("code").to_numpy().astype(np.min_scalar_type(max(codes - 1, 0)))
    columns = {**{name: found.column(name) for name in found.column_names}, "code": pa.array(code)}
    if seed is not None:
        columns["part"] = pa.array((_drawn(found, seed) < share).astype(np.uint8))
    return pa.table(columns)


def _ask_scores(block: pa.Table, asked: RowValues) -> pa.Table:
    """The values of every row; refused where one was not there when the table was looked at first."""
    found = ask_rows(block, asked)
    if any(found.column(name).null_count for name in ("z", "code")):
        raise InputError(
            "The dataset gave other rows than when it was read before: a pass met a score or a label that it had not. "
            "Call dataset.materialize() first, and pass what that returns."
        )
    return found


def sums(
    block: pa.Table,
    column: str,
    number: np.ndarray,
    shift: np.ndarray,
    lo: float,
    hi: float,
    absolute: bool,
    part: int | None,
) -> pa.Table:
    """One row with the exact sums of a block of `scores`, as bytes.

    number: cell of each code; shift: of each cell; part: 0 or 1 for some of the rows, None for all.
    """
    values, code = _arrays(block, [column, "code"], part)
    total = BlockSums(len(shift), absolute)
    total.add(values, number[code], shift, lo, hi)
    return _packed([total])


def moments(block: pa.Table, shift: np.ndarray, lo: float, hi: float, residual: bool, part: int) -> pa.Table:
    """One row with exact sums, by code, of v and of v squared; v is the output, or the output less the target."""
    names = ["z", "code", *(["t"] if residual else [])]
    z, code, *t = _arrays(block, names, part)
    value = np.clip(z - shift[code], lo, hi)
    value = value - t[0] if residual else value
    found, still = [BlockSums(len(shift)), BlockSums(len(shift))], np.zeros(len(shift))
    for total, terms in zip(found, (value, value * value), strict=True):
        total.add(terms, code.astype(np.int32), still, -np.inf, np.inf)
    return _packed(found)


def _packed(found: list[BlockSums]) -> pa.Table:
    return pa.table({"sums": pa.array([pickle.dumps(found)], type=pa.large_binary())})


def _arrays(block: pa.Table, names: Sequence[str], part: int | None) -> list[np.ndarray]:
    kept = slice(None) if part is None else block.column("part").to_numpy() == part
    return [block.column(name).to_numpy()[kept] for name in names]


def moved(block: pa.Table, asked: RowValues, shift: np.ndarray, lo: float, hi: float, output: str) -> pa.Table:
    """The block with one column more: the score less the shift of its code, within the bounds."""
    found = _ask_scores(block, asked)
    y = np.clip(found.column("z").to_numpy() - shift[found.column("code").to_numpy()], lo, hi)
    return block.append_column(output, pa.array(y))
