"""Tables in memory: Arrow's, and those of every library that offers its tables as Arrow (pandas, polars, DuckDB)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import pyarrow as pa

from vfl_node.data.readers.contract import Reader, RowBatch
from vfl_node.data.readers.names import column_names
from vfl_node.data.readers.typed import BATCH_ROWS, typed_batches
from vfl_node.errors import DataError


class ArrowReader(Reader):
    """A :class:`~vfl_node.data.readers.contract.Reader` of a table in memory.

    Args:
        table: a table of Arrow, or of a library that has the Arrow interface (``__arrow_c_stream__``), which can be
            read again; or a ``pyarrow.RecordBatchReader``, which cannot.
        source: party and table, for errors.

    Raises:
        DataError: a column has no name, or two have the same (``E_CSV``), or its cells are of different types (``E_COLUMN``).
        TypeError: ``table`` is nothing of this kind.
    """

    def __init__(self, table: Any, *, source: str) -> None:
        if not isinstance(table, pa.RecordBatchReader):
            table = _as_arrow(table, source)
        self.source = source
        self.repeatable = isinstance(table, pa.Table)
        self._table: pa.Table | pa.RecordBatchReader = table
        self.names = column_names(table.schema.names, source)

    def batches(self, columns: Collection[str] | None = None) -> Iterator[RowBatch]:
        """As in the contract."""
        table = self._table
        batches = table.to_batches(BATCH_ROWS) if isinstance(table, pa.Table) else table
        return typed_batches(batches, self.names, columns, self.source)

    def close(self) -> None:
        """Let a stream go; a table stays with whoever has it."""
        if isinstance(self._table, pa.RecordBatchReader):
            self._table.close()


def _as_arrow(table: Any, source: str) -> pa.Table:
    try:
        return pa.table(table)
    except pa.ArrowException:  # its text may show a cell
        raise DataError(
            f"{source}: is no table that Arrow can hold: the cells of a column must be of one type",
            code="E_COLUMN",
            hint="make every column numbers or text, such as by astype(str)",
        ) from None
