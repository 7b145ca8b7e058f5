"""Tables in memory: Arrow's, and those of every library that offers its tables as Arrow (pandas, polars, DuckDB)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import pyarrow as pa
from typing_extensions import override

from vfl_node.data.readers.contract import Reader, RowBatch
from vfl_node.data.readers.names import column_names
from vfl_node.data.readers.typed import BATCH_ROWS, typed_batches
from vfl_node.errors import DataError

_REFUSED = (pa.ArrowException, ValueError, TypeError, ArithmeticError, AttributeError, NotImplementedError)
"""What Arrow and pandas raise of cells and columns that Arrow cannot hold; their texts may show a cell."""


class ArrowReader(Reader):
    """A :class:`~vfl_node.data.readers.contract.Reader` of a table in memory.

    Args:
        table: a table of Arrow, or of a library that has the Arrow interface (``__arrow_c_stream__``), which can be
            read again; or a ``pyarrow.RecordBatchReader``, which cannot. Row labels of pandas are columns if they are texts or
            have a name, and no column is called so.
        source: party and table, for errors.

    Raises:
        DataError: a column has no name, or two have the same (``E_CSV``), or its cells are such that Arrow cannot hold them
            (``E_COLUMN``).
        TypeError: ``table`` is nothing of this kind.
    """

    def __init__(self, table: Any, *, source: str) -> None:
        if not isinstance(table, pa.RecordBatchReader):
            table = _to_arrow(_add_row_labels(table), source)
        self.source = source
        self.repeatable = isinstance(table, pa.Table)
        self._table: pa.Table | pa.RecordBatchReader = table
        self.names = column_names(table.schema.names, source)

    @override
    def batches(self, columns: Collection[str] | None = None) -> Iterator[RowBatch]:
        table = self._table
        batches = table.to_batches(BATCH_ROWS) if isinstance(table, pa.Table) else table
        return typed_batches(batches, self.names, columns, self.source)

    def close(self) -> None:
        """Let a stream go; a table stays with whoever has it."""
        if isinstance(self._table, pa.RecordBatchReader):
            self._table.close()


def _add_row_labels(table: Any) -> Any:
    """A frame of pandas with its row labels as columns; without numbers that have no name, such as those left of a selection.

    Texts without a name are called as in Parquet: they may be the ids, and are never features by themselves.
    """
    index: Any = getattr(table, "index", None)
    if not hasattr(index, "set_names"):
        return table
    names = [
        f"__index_level_{level}__" if name is None and index.get_level_values(level).inferred_type == "string" else name
        for level, name in enumerate(index.names)
    ]
    kept = [level for level, name in enumerate(names) if name is not None and name not in table.columns]
    table = table.set_axis(index.set_names(names), axis=0)
    return (table.reset_index(level=kept) if kept else table).reset_index(drop=True)


def _to_arrow(table: Any, source: str) -> pa.Table:
    if not hasattr(table, "__arrow_c_stream__"):
        return pa.table(table)
    try:
        return pa.table(table)
    except _REFUSED:
        if hasattr(table, "columns") and hasattr(table, "items"):  # of pandas
            names = column_names(map(str, table.columns), source)
            arrays = [_column(cells, name, source) for name, (_, cells) in zip(names, table.items(), strict=True)]
            return pa.Table.from_arrays(arrays, names=list(names))
        raise _unusable(f"{source}: is no table that Arrow can hold") from None


def _column(cells: Any, name: str, source: str) -> pa.Array:
    """A column of pandas; whole numbers that no type of Arrow can hold become text."""
    try:
        return pa.array(cells.sparse.to_dense() if hasattr(cells, "sparse") else cells, from_pandas=True)
    except OverflowError:
        whole = [None if cell is None or cell != cell else cell for cell in cells]
        if all(isinstance(cell, int | None) for cell in whole):
            return pa.array([None if cell is None else str(cell) for cell in whole], pa.string())
    except _REFUSED:
        pass
    raise _unusable(f"{source}: column {name!r} has cells that Arrow cannot hold") from None


def _unusable(what: str) -> DataError:
    return DataError(
        f"{what}: the cells of a column must be of one type, and numbers finite ones of usual size",
        code="E_COLUMN",
        hint="make every column numbers or text, such as by astype(str)",
    )
