"""A Ray Data dataset as a table: every question is put to its blocks by the workers, and the answers are added up."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fairlayer.binding.block_sums import BlockSums
from fairlayer.errors import FairlayerError, InputError
from fairlayer.extras import needs
from fairlayer.tables import blocks
from fairlayer.tables.duckdb_table import quote, used
from fairlayer.tables.table import Table, Totals
from fairlayer.tables.table_io import connect

with needs("fairlayer.ray", "ray", "pyarrow"):
    import pyarrow as pa
    from ray.data import Dataset

if TYPE_CHECKING:
    import numpy as np

_MOST_PARTS = 200_000  # rows of answers that are kept before they are merged


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
            raise InputError("The dataset has no rows: there is nothing to compare.")
        try:
            self.schema = pa.schema(list(zip(known.names, known.types, strict=True)))
        except TypeError as error:
            raise InputError(f"The dataset has columns that are not as Arrow has them: {error}.") from error
        with connect() as connection:
            connection.register("block", self.schema.empty_table())
            described = connection.execute("DESCRIBE SELECT * FROM block").fetchall()
        self.columns = {row[0]: row[1] for row in described}

    def mentioned(self, sql: str) -> Any:
        """The schema of the columns that a query mentions; of one, where it mentions none."""
        names = [name for name in self.schema.names if quote(name) in sql] or self.schema.names[:1]
        return pa.schema([self.schema.field(name) for name in names])

    def row_values(self, values: Mapping[str, str], parameters: Mapping[str, Any]) -> blocks.RowValues:
        """SQL expressions of every row, as blocks are asked for them."""
        sql = blocks.select_sql(values)
        return blocks.RowValues(dict(values), used(sql, parameters), self.mentioned(sql))

    def only(self, schema: Any) -> Any:
        """The dataset with these columns alone."""
        return self.dataset.select_columns(schema.names)

    def totals(self, asked: Totals, parameters: Mapping[str, Any] | None = None) -> dict[str, np.ndarray]:
        """Of the blocks, added up."""
        return self._merged(asked.sql, asked.merging, parameters or {}, "totals")

    def distinct(self, values: Mapping[str, str], most: int) -> dict[str, list[Any]]:
        """All of them in one pass."""
        listed = [
            f"(SELECT {j} AS which, entry FROM ({Totals(by={'entry': value}, most=most + 1).sql}))"
            for j, value in enumerate(values.values())
        ]
        merging = Totals(by={"which": "which", "entry": "entry"}).merging
        found = self._merged(" UNION ALL ".join(listed), merging, {}, "labels")
        return {name: sorted(found["entry"][found["which"] == j].tolist())[: most + 1] for j, name in enumerate(values)}

    def sample(
        self, values: Mapping[str, str], rows: int, of: int, seed: int, parameters: Mapping[str, Any]
    ) -> dict[str, np.ndarray]:
        """All rows, or about as many as are asked for: every row is drawn by itself."""
        asked, share = self.row_values(values, parameters), min(1.0, rows / of)
        drawn = map_blocks(self.only(asked.schema), blocks.sample, "sample", asked=asked, seed=seed, share=share)
        with connect() as connection:
            connection.register("parts", pa.concat_tables(drawn))
            return connection.execute("SELECT * FROM parts").fetchnumpy()

    def _merged(self, sql: str, merging: str, parameters: Mapping[str, Any], name: str) -> dict[str, np.ndarray]:
        parts: list[pa.Table] = []
        with connect() as connection:

            def merge() -> Any:
                connection.register("parts", pa.concat_tables(parts))
                return connection.sql(merging)

            schema = self.mentioned(sql)
            known = {"query": sql, "parameters": used(sql, parameters), "schema": schema}
            for part in map_blocks(self.only(schema), blocks.ask, name, **known):
                parts.append(part)
                if len(parts) > 1 and sum(map(len, parts)) > max(_MOST_PARTS, 2 * len(parts[0])):
                    parts = [merge().to_arrow_table().cast(part.schema)]  # the types that the blocks answer in
            if not parts:
                raise InputError("The dataset has no rows: there is nothing to compare.")
            return merge().fetchnumpy()


def map_blocks(dataset: Any, function: Callable[..., pa.Table], name: str, **known: Any) -> Iterator[pa.Table]:
    """What a function of `tables.blocks` makes of every block of a dataset. name: what the progress bar says."""
    mapped = mapped_blocks(dataset, function, **known)
    mapped.set_name(f"fairlayer {name}")
    with own_errors():
        yield from mapped.iter_batches(batch_size=None, batch_format="pyarrow")


def mapped_blocks(dataset: Any, function: Callable[..., pa.Table], **known: Any) -> Any:
    """The dataset that a function of `tables.blocks` makes of another, block by block."""
    return dataset.map_batches(function, batch_size=None, batch_format="pyarrow", zero_copy_batch=True, fn_kwargs=known)


def add_up(
    totals: Sequence[BlockSums], dataset: Any, function: Callable[..., pa.Table], name: str, **known: Any
) -> None:
    """Add the exact sums that a function of `tables.blocks` takes of every block, as they come."""
    for part in map_blocks(dataset, function, name, **known):
        for packed in part.column("sums").to_pylist():
            found = pickle.loads(packed)  # noqa: S301  # our own workers made it
            for total, sums in zip(totals, found, strict=True):
                total.merge(sums)


@contextmanager
def own_errors() -> Iterator[None]:
    """Stand around what workers do: an error of ours that one of them met is raised as it is."""
    try:
        yield
    except Exception as error:
        met: Any = error
        for _ in range(8):
            if met is None:
                break
            if type(met).__module__ == FairlayerError.__module__ and isinstance(met, FairlayerError):
                if met is error:
                    break
                raise met from None
            met = getattr(met, "cause", None) or met.__cause__
        raise
