"""A table of raw cells for a half: read as the product reads tables, by what the half says of its columns."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from vfl_node.data.aggregate import merge_rows
from vfl_node.data.feature_columns import column_of, read_as
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.readers.contract import Reader
from vfl_node.data.readers.opening import open_input
from vfl_node.data.readers.parts import is_table
from vfl_node.data.reading import ids_of
from vfl_node.data.tables import Table
from vfl_node.data.text_columns import TextColumns
from vfl_node.errors import DataError, UsageError
from vfl_node.job import IdForm
from vfl_node.prediction.records import NO_COLUMNS, fit_source
from vfl_node.settings.declared import Declared, declare_fitted, kind_of, list_of, notation_of
from vfl_node.settings.node import Data

Given = Any
"""A frame of pandas or polars, an Arrow table, or the path of a file."""


_ID_HINT = "name the id columns of the training by --id-column, or id_column"


def read_cells(
    opened: Reader,
    reads: Mapping[str, Declared],
    *,
    ids: tuple[str, ...] = (),
    id_form: IdForm | tuple[IdForm, ...] = "text",
    source: Data | None = None,
    rows: Mapping[str, Declared] = NO_COLUMNS,
) -> tuple[Table, TextColumns]:
    """The columns that a half reads, and the text of the id columns.

    Args:
        opened: the table; it is closed here.
        reads: column → what is declared of it.
        ids: the columns that identify a record; none: rows have their numbers.
        id_form: how ids are compared.
        source: what the party's settings say of its table, where several rows may be one record (``data.aggregate``).
        rows: as for :func:`~vfl_node.prediction.records.fit_source`.

    Raises:
        DataError: a column is missing (``E_COLUMN``), or the table cannot be read.
        UsageError: ``ids`` are not those of the model.
    """
    forms = id_form if isinstance(id_form, tuple) else (id_form,) * max(1, len(ids))
    if ids and len(forms) != len(ids):
        opened.close()
        raise UsageError(f"the ids of this model have {len(forms)} columns, and {len(ids)} are named", hint=_ID_HINT)
    if both := [name for name in ids if name in reads]:
        opened.close()
        raise UsageError(f"the half reads column {both[0]!r}, so it is no id", hint=_ID_HINT)
    with closing(opened):
        reader = opened
        if source and source.aggregate:
            reader = merge_rows(opened, fit_source(source, reads, rows), id_form=id_form, party=opened.source, label=False)
        lacking = [name for name in (*ids, *reads) if name not in reader.names]
        if lacking:
            raise DataError(
                f"{reader.source}: there is no column {lacking[0]!r}",
                code="E_COLUMN",
                hint=f"the half reads {', '.join(reads) or 'no column'}"
                + (f"; ids stand in {', '.join(ids)} (another column: --id-column)" if ids else ""),
            )
        fitted = {name: declare_fitted(declared) for name, declared in reads.items()}
        values = {
            name: read_as(kind_of(declared), notation_of(declared), reader.decimal)
            for name, declared in fitted.items()
            if list_of(declared) is None
        }
        text = TextColumns(reader, values, {*ids, *(name for name in fitted if name not in values)})
    columns = {name: column_of(text, name, declared) for name, declared in fitted.items()}
    known = ids_of(text, ids, forms) if ids else Identifiers.from_items(b"text:%d" % row for row in range(len(text)))
    return Table(known, columns), text


def open_given(given: Given, party: str) -> Reader:
    """A reader of a party's table. Raises UsageError if there is no such file (``E_FILE``), or it is no table."""
    if isinstance(given, str | os.PathLike):
        if not is_table(Path(given)):
            raise UsageError(f"there is no file {given}", code="E_FILE", hint="correct its name")
        return open_input(Data(path=Path(given)), party=party)
    from vfl_node.data.readers.arrow import ArrowReader  # loads Arrow

    try:
        return ArrowReader(given, source=f"{party}: the table in memory")
    except TypeError:
        raise UsageError(
            f"the table of {party} is of type {type(given).__name__}",
            hint="give a frame, an Arrow table, or the path of a file",
        ) from None
