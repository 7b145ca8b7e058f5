"""Batches of sources that have types: under the names of the contract, and their text as the contract asks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from vfl_node.configuration.yaml_text import quote_key
from vfl_node.data.cells import WHITE_SPACE, has_text
from vfl_node.data.readers.contract import RowBatch
from vfl_node.errors import DataError

BATCH_ROWS = 1 << 16


def typed_batches(
    batches: Iterable[pa.RecordBatch], names: Sequence[str], columns: Collection[str] | None, source: str
) -> Iterator[RowBatch]:
    """What a :class:`~vfl_node.data.readers.contract.Reader` gives of ``batches``, whose columns are ``names`` in this order.

    Args:
        batches: all rows; some may be empty.
        names: of the columns.
        columns: those that are needed; None: all.
        source: party and input, for errors.

    Raises:
        DataError: a column is of a type that has no text, or of bytes that are none (``E_COLUMN``), a cell is not valid text
            (``E_CSV``), or there are no rows (``E_EMPTY``).
    """
    rows = 0
    for batch in _slices(batches):
        cells = {
            name: _tidy(column, f"{source}:row", rows, name)
            for name, column in zip(names, batch.columns, strict=True)
            if columns is None or name in columns
        }
        rows += batch.num_rows
        yield RowBatch(pa.RecordBatch.from_pydict(cells))
    if not rows:
        raise DataError(f"{source}: has no rows", code="E_EMPTY")


def _slices(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, BATCH_ROWS):
            yield batch.slice(start, BATCH_ROWS)


def _tidy(column: pa.Array, where: str, before: int, name: str) -> pa.Array:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "arrow.uuid":
            return pa.array([None if cell is None else str(cell) for cell in column.to_pylist()], pa.string())
        return _tidy(column.storage, where, before, name)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        try:  # older programs write text into Parquet without its mark
            return _tidy(column.cast(pa.large_string()), where, before, name)
        except pa.ArrowInvalid:
            raise _no_text_error(kind, where, name, "which is not UTF-8 text") from None
    if not has_text(kind):
        raise _no_text_error(kind, where, name, "which is neither a number nor text")
    if pa.types.is_dictionary(kind):
        values = _tidy(column.dictionary, where, before, name)
        return pa.DictionaryArray.from_arrays(column.indices, values)
    if pa.types.is_string_view(kind):
        return _tidy(column.cast(pa.string()), where, before, name)
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return column
    return _trim(column, where, before, name)


def _no_text_error(kind: pa.DataType, where: str, name: str, what: str) -> DataError:
    bytes_alone = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    as_text = "text, such as the hexadecimal digits of an id, alike at all parties" if bytes_alone else "text or numbers"
    return DataError(
        f"{where.removesuffix(':row')}: column {name!r} is of the type {kind}, {what}",
        code="E_COLUMN",
        hint=f"make it {as_text}, where the table comes from; if it is no id, say data.columns: {{{quote_key(name)}: ignore}}",
    )


def _trim(column: pa.Array, where: str, before: int, name: str) -> pa.Array:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        raise DataError(
            f"{where.removesuffix(':row')}:{name}: is not UTF-8 text", code="E_CSV", hint="write it as UTF-8"
        ) from None
    found = pc.index(pc.fill_null(pc.match_substring(column, "\0"), False), True).as_py()
    if found >= 0:
        raise DataError(
            f"{where} {before + found + 1}:{name}: holds NUL characters", code="E_CSV", hint="remove them from the table"
        )
    return pc.utf8_trim(column, characters=WHITE_SPACE)
