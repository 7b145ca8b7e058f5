"""A public list of keys, such as the names of a register: what an owner's audit of a linkage compares the own keys with."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.filters.values import DAY_S, KeyValues, bounds
from vfl_node.data.columns_apart import make_tuple
from vfl_node.data.missing_words import MISSING
from vfl_node.data.readers.opening import open_auto
from vfl_node.data.row_columns import seconds_in
from vfl_node.data.text_columns import TextColumns
from vfl_node.errors import DataError
from vfl_node.job.keys import DateKey, Key, Keys, PlaceKey, TextKey
from vfl_node.settings.protection import LinkageAuditSettings


def read_list(settings: LinkageAuditSettings, keys: Keys, party: str) -> Mapping[str, KeyValues]:
    """The values of those keys of a job for which the list has columns, as :mod:`vfl_node.crypto.filters.values` has them.

    What is missing or outside of a key's bounds is NaN, or an empty text: a public list may have more than the job is about.

    Args:
        settings: where the list is, and its columns.
        keys: of the job.
        party: this party's name, for errors.

    Raises:
        DataError: the file cannot be read (``E_FILE``, and what readers raise), there are columns for none of the keys
            (``E_COLUMN``), or a cell is no number or date (``E_KEY_VALUE``); with the file and the line.
    """
    named = {name: make_tuple(settings.keys.get(name, name)) for name in keys}
    with closing(open_auto(settings.list, party=party)) as reader:
        missing = {column for name in settings.keys.keys() & named.keys() for column in named[name]}.difference(reader.names)
        columns = {name: used for name, used in named.items() if set(used) <= set(reader.names) and _fits(keys[name], used)}
        if missing or not columns:
            what = f"column {min(missing)!r} (audit.linkage.keys)" if missing else f"column for any key: {', '.join(keys)}"
            raise DataError(
                f"{reader.source}: the list of audit.linkage has no {what}",
                code="E_COLUMN",
                hint="say audit.linkage.keys: {KEY: COLUMN}, or {KEY: [LATITUDE, LONGITUDE]} of a place",
            )
        text = TextColumns(reader, text={column for used in columns.values() for column in used})
    return {name: _values(text, keys[name], used) for name, used in columns.items()}


def _fits(key: Key, columns: tuple[str, ...]) -> bool:
    return len(columns) == (2 if isinstance(key, PlaceKey) else 1)


def _values(text: TextColumns, key: Key, columns: tuple[str, ...]) -> KeyValues:
    if isinstance(key, TextKey):
        return tuple("" if cell in MISSING else cell for cell in text.cells(columns[0]))
    read = seconds_in if isinstance(key, DateKey) else TextColumns.numbers
    values = [_check_values(text, name, read(text, name)) for name in columns]
    for column, (low, high) in zip(values, bounds(key), strict=True):
        scaled = np.floor(column / DAY_S) if isinstance(key, DateKey) else column
        column[(scaled < low) | (scaled > high)] = np.nan
    return np.stack(values, axis=1) if isinstance(key, PlaceKey) else values[0]


def _check_values(text: TextColumns, column: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
    wrong = np.isinf(values)
    if wrong.any():
        raise DataError(
            f"{text.locate(column, int(wrong.argmax()))}: no value that the job's key can have, in the list of audit.linkage",
            code="E_KEY_VALUE",
            hint="correct this cell, leave it empty, or name another column (audit.linkage.keys)",
        )
    return values
