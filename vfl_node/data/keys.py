"""The keys by which a job compares records where no identifier is shared (``align.keys``), as a party's table has them.

They are no features: no encoder and no model sees them. A value that is missing, cannot be read or lies outside of the job's
public bounds is refused, because a filter of it would tell so to the coordinator, and because such a record has no neighbours.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vfl_node.data.columns_apart import key_columns_of
from vfl_node.data.dates import DAY_S
from vfl_node.data.missing_words import MISSING
from vfl_node.data.row_columns import seconds_in
from vfl_node.data.tables import KeyColumn
from vfl_node.data.text_columns import TextColumns
from vfl_node.errors import DataError
from vfl_node.job.keys import DateKey, Key, Keys, NumberKey, PlaceKey, TextKey
from vfl_node.settings.node import Data

_EPOCH_DAY = np.datetime64("1970-01-01", "D")


def read_keys(text: TextColumns, data: Data, keys: Keys, party: str) -> dict[str, KeyColumn]:
    """The values of every key.

    Args:
        text: the input; its columns behind keys are kept as text.
        data: which columns these are.
        keys: of the job.
        party: this party's name, for errors.

    Cost: as of a feature.

    Raises:
        DataError: a value is missing (``E_KEY_MISSING``), cannot be read (``E_KEY_VALUE``), or lies outside of the key's bounds
            (``E_KEY_BOUNDS``): the place of the first one, and how many there are, never a cell; or as
            :func:`vfl_node.data.columns_apart.key_columns_of`.
    """
    read: dict[str, KeyColumn] = {}
    for name, columns in key_columns_of(data, keys, party).items():
        key = keys[name]
        if isinstance(key, PlaceKey):
            latitude = _number(text, columns[0], name, key.south, key.north)
            read[name] = np.stack([latitude, _number(text, columns[1], name, key.west, key.east)], axis=1)
        elif isinstance(key, NumberKey):
            read[name] = _number(text, columns[0], name, key.low, key.high)
        elif isinstance(key, DateKey):
            low, high = (float((np.datetime64(day, "D") - _EPOCH_DAY).astype(np.int64)) * DAY_S for day in (key.low, key.high))
            read[name] = _check_bounds(text, columns[0], name, seconds_in(text, columns[0]), low, high + DAY_S - 1, "date")
        else:
            cells = tuple(text.cells(columns[0]))
            _refuse(text, columns[0], name, np.array([cell in MISSING for cell in cells]), "no value", "E_KEY_MISSING")
            read[name] = cells
    return read


def keys_text(keys: Keys, data: Data, party: str) -> tuple[str, ...]:
    """Each key in words, with the columns behind it, for its owner.

    Raises:
        DataError: as :func:`vfl_node.data.columns_apart.key_columns_of`.
    """
    columns = key_columns_of(data, keys, party)
    return tuple(f"{name} ({_bounds(key)}): {', '.join(columns[name])}" for name, key in keys.items())


def _bounds(key: Key) -> str:
    if isinstance(key, PlaceKey):
        rectangle = f"{key.south:g} to {key.north:g} and {key.west:g} to {key.east:g} degrees"
        return f"place within {rectangle}, reach {key.reach:g} m"
    if isinstance(key, TextKey):
        return f"text, groups of {key.q} letters"
    return f"{key.kind} from {key.low} to {key.high}, reach {key.reach:g}"


def _number(text: TextColumns, column: str, key: str, low: float, high: float) -> NDArray[np.float64]:
    return _check_bounds(text, column, key, text.numbers(column), low, high, "number")


def _check_bounds(
    text: TextColumns, column: str, key: str, values: NDArray[np.float64], low: float, high: float, what: str
) -> NDArray[np.float64]:
    _refuse(text, column, key, np.isnan(values), "no value", "E_KEY_MISSING")
    _refuse(text, column, key, np.isinf(values), f"no {what}", "E_KEY_VALUE")
    _refuse(text, column, key, (values < low) | (values > high), "a value outside of the job's bounds", "E_KEY_BOUNDS")
    return values


def _refuse(text: TextColumns, column: str, key: str, wrong: NDArray[np.bool_], what: str, code: str) -> None:
    if count := int(np.count_nonzero(wrong)):
        raise DataError(
            f"{text.locate(column, int(np.argmax(wrong)))}: {what} for the job's key {key} ({count} such "
            f"{'cell' if count == 1 else 'cells'} of {len(wrong)})",
            code=code,
            hint="correct these cells or leave out these records"
            + ("; or agree on other bounds in the job (align.keys)" if code == "E_KEY_BOUNDS" else "")
            + "; or name another column (data.keys)",
        )
