"""A Ray Data dataset as a table: every question is put to its blocks by the workers, and the answers are added up.

What a worker does with a block, an Arrow table, is the same whenever it is done and changes nothing else: a worker that
dies in the middle is replaced, and its block is taken again. Workers need no PyTorch for it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from fairlayer.errors import FairlayerError, InputError
from fairlayer.extras import needs
from fairlayer.tables.entries import quote, select_list
from fairlayer.tables.table import LocalTable, Parameters, Table, Totals, connect, used

with needs("fairlayer.ray", "ray", "pyarrow"):
    import pyarrow as pa
    from ray.data import Dataset

if TYPE_CHECKING:
    import numpy as np

_MOST_PARTS = 200_000  # rows of answers that are kept before they are merged
_ROW = "fairlayer: number of the row"  # in its block
_OURS = FairlayerError.__module__
_NO_ROWS = "The dataset has no rows: there is nothing to compare."


class DatasetTable(Table):
    """The rows of a dataset."""

    title = "the dataset"

    def __init__(self, dataset: Any):
        if not isinstance(dataset, Dataset):
            raise InputError(
                f"dataset must be a Ray Data dataset, such as ray.data.read_parquet('people/') gives; got "
                f"{type(dataset).__name__}."
            )
        self.dataset = dataset
        with own_errors():
            known = dataset.schema()
        if known is None:
            raise InputError(_NO_ROWS)
        try:
            self.schema = pa.schema(list(zip(known.names, known.types, strict=True)))
        except TypeError as error:
            raise InputError(f"The dataset has columns that are not as Arrow has them: {error}.") from error
        with opened(self.schema.empty_table()) as empty:
            self.columns = empty.columns

    def asking(self, select: str, parameters: Parameters | None = None) -> BlockQuery:
        """A query as blocks are asked it."""
        names = [name for name in self.schema.names if quote(name) in select] or self.schema.names[:1]
        return BlockQuery(
            select, used(select, parameters or {}), pa.schema([self.schema.field(name) for name in names])
        )

    def rows_query(self, values: Mapping[str, str], parameters: Parameters) -> BlockQuery:
        """SQL expressions of every row, in the order of the block, which an answer need not keep of itself."""
        return self.asking(f"SELECT {select_list(values)} FROM data ORDER BY {quote(_ROW)}", parameters)

    def totals(self, asked: Totals, parameters: Parameters | None = None, fetch: str = "fetchnumpy") -> Any:
        """Of the blocks, added up."""
        parts: list[pa.Table] = []
        with connect() as connection:

            def merged() -> Any:
                connection.register("parts", pa.concat_tables(parts))
                return connection.sql(asked.merging)

            for part in self._answers(answer, query=self.asking(asked.sql, parameters)):
                parts.append(part)
                if len(parts) > 1 and sum(map(len, parts)) > max(_MOST_PARTS, 2 * len(parts[0])):
                    parts = [merged().to_arrow_table().cast(part.schema)]  # the types that the blocks answer in
            if not parts:
                raise InputError(_NO_ROWS)
            return getattr(merged(), fetch)()

    def sample(
        self, values: Mapping[str, str], rows: int, of: int, seed: int, parameters: Parameters
    ) -> dict[str, np.ndarray]:
        """All rows, or about as many as are asked for: every row is drawn by itself."""
        query = self.rows_query(values, parameters)
        with connect() as connection:
            parts = self._answers(some_rows, query=query, seed=seed, share=min(1.0, rows / of))
            connection.register("parts", pa.concat_tables(parts))
            return connection.execute("SELECT * FROM parts").fetchnumpy()

    def keep(self, values: Mapping[str, str], parameters: Parameters) -> DatasetTable:
        """In Ray's object store."""
        with own_errors():
            return DatasetTable(self._mapped(known_rows, query=self.rows_query(values, parameters)).materialize())

    def with_columns(self, function: Callable[..., pa.Table], **known: Any) -> Any:
        """The dataset with what a function makes of every block, when it is asked for."""
        return _map(self.dataset, function, known)

    def _mapped(self, function: Callable[..., pa.Table], query: BlockQuery, **known: Any) -> Any:
        """What a function makes of the columns of every block that a query mentions."""
        mapped = _map(self.dataset.select_columns(query.schema.names), function, {"query": query, **known})
        mapped.set_name(f"fairlayer {function.__name__}")
        return mapped

    def _answers(self, function: Callable[..., pa.Table], query: BlockQuery, **known: Any) -> Iterator[pa.Table]:
        with own_errors():
            yield from self._mapped(function, query, **known).iter_batches(batch_size=None, batch_format="pyarrow")


def _map(dataset: Any, function: Callable[..., pa.Table], known: dict[str, Any]) -> Any:
    return dataset.map_batches(function, batch_size=None, batch_format="pyarrow", zero_copy_batch=True, fn_kwargs=known)


class BlockQuery(NamedTuple):
    """A query about `data`, a block, with its parameters. schema: of the columns that it mentions."""

    select: str
    parameters: Parameters
    schema: Any


def answer(block: pa.Table, query: BlockQuery) -> pa.Table:
    """The answer to a query."""
    import numpy as np

    numbered = _typed(block, query.schema).append_column(_ROW, pa.array(np.arange(len(block))))
    with opened(numbered) as table:
        return table.query(query.select, query.parameters, "to_arrow_table")


def some_rows(block: pa.Table, query: BlockQuery, seed: int, share: float) -> pa.Table:
    """The values of the rows, or of a share of them that is drawn at random; the first is a number."""
    import numpy as np

    found = answer(block, query)
    # The same whenever the block is taken.
    random = np.random.default_rng([seed, zlib.crc32(found.column(0).to_numpy().tobytes()), len(found)])
    return found if share >= 1.0 else found.filter(random.random(len(found)) < share)


def known_rows(block: pa.Table, query: BlockQuery) -> pa.Table:
    """The values of every row, none of which may be missing: they were not when the table was looked at first."""
    found = answer(block, query)
    if any(column.null_count for column in found.columns):
        raise InputError(
            "The dataset gave other rows than when it was read before: a pass met a score or a label that it had not. "
            "Call dataset.materialize() first, and pass what that returns."
        )
    return found


def with_known(block: pa.Table, query: BlockQuery, output: str) -> pa.Table:
    """A block with one column more, of an answer in which no value may be missing."""
    return block.append_column(output, known_rows(block, query).column(output))


@contextmanager
def opened(block: pa.Table) -> Iterator[LocalTable]:
    """A block as a table."""
    with connect() as connection:
        connection.execute("SET threads = 1")  # the other processors are for the other workers
        connection.register("block", block)
        yield LocalTable(connection, "the dataset", "block")


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


@contextmanager
def own_errors() -> Iterator[None]:
    """Surround what workers do: an error of fairlayer in one of them is raised as it is."""
    try:
        yield
    except Exception as error:
        met: Any = error
        # Ray's own copy of an error is of a class derived from its class.
        while met is not None and not (isinstance(met, FairlayerError) and type(met).__module__ == _OURS):
            met = getattr(met, "cause", None) or met.__cause__
        if met is None or met is error:
            raise
        raise met from None
