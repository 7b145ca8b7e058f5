"""What a key's column is, and which columns cannot be encoded.

===========  =======================================================================================
key          its column
===========  =======================================================================================
``number``   float64[n]; NaN: missing
``date``     float64[n], seconds since 1970-01-01, of which the whole days count; NaN: missing
``place``    float64[n, 2], latitude and longitude in degrees; NaN in either: missing
``text``     n texts; None: missing
===========  =======================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.filters.groups import normalise
from vfl_node.errors import DataError
from vfl_node.job.keys import DateKey, Key, PlaceKey, TextKey

KeyValues: TypeAlias = NDArray[np.float64] | Sequence[str | None]
"""The column of one key, a value for each record."""

DAY_S = 86_400

_LEAVE_OUT = "a record without all its keys cannot be linked: leave these out"


def check_values(keys: Mapping[str, Key], columns: Mapping[str, KeyValues]) -> None:
    """Refuse what cannot be encoded. A message says how many records there are of the kind, and shows none of their values.

    Cost: O(n); texts are normalised, about 2 µs each.

    Raises:
        DataError: values are missing (``E_KEY_MISSING``), outside the job's bounds (``E_KEY_BOUNDS``), or texts too short
            (``E_KEY_SHORT``).
        ValueError: the columns are not those of the keys, or not equally long.
    """
    if set(columns) != set(keys):
        raise ValueError("each key of the job needs its column, and there is no other")
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError("the columns of keys differ in length")
    for name, key in sorted(keys.items()):
        if isinstance(key, TextKey):
            _check_texts(name, key, columns[name])
        else:
            _check_numbers(name, numbers_of(key, columns[name]), bounds(key))


def numbers_of(key: Key, column: KeyValues) -> NDArray[np.float64]:
    """The coordinates of numbers, dates (days) and places (degrees): float64[n, 1 or 2]."""
    values = np.asarray(column, dtype=np.float64)
    if values.shape != ((len(values), 2) if isinstance(key, PlaceKey) else (len(values),)):
        raise ValueError("a place has two coordinates, and a number or date one")
    if isinstance(key, DateKey):
        values = np.floor(values / DAY_S)
    return values.reshape(len(values), -1)


def bounds(key: Key) -> NDArray[np.float64]:
    """The least and the greatest value of each coordinate, in the units of :func:`numbers_of`: float64[1 or 2, 2]."""
    if isinstance(key, PlaceKey):
        return np.array([[key.south, key.north], [key.west, key.east]])
    if isinstance(key, DateKey):
        return np.array([[(day - date(1970, 1, 1)).days for day in (key.low, key.high)]], dtype=np.float64)
    assert not isinstance(key, TextKey)
    return np.array([[key.low, key.high]])


def _check_numbers(name: str, values: NDArray[np.float64], limits: NDArray[np.float64]) -> None:
    _refuse(int(np.isnan(values).any(axis=1).sum()), len(values), f"have no {name!r}", "E_KEY_MISSING", _LEAVE_OUT)
    outside = ((values < limits[:, 0]) | (values > limits[:, 1])).any(axis=1).sum()
    hint = "leave these records out, or agree with the other party on wider bounds in align.keys"
    _refuse(int(outside), len(values), f"have a {name!r} outside the bounds of the job", "E_KEY_BOUNDS", hint)


def _check_texts(name: str, key: TextKey, texts: KeyValues) -> None:
    missing = sum(not isinstance(text, str) for text in texts)
    _refuse(missing, len(texts), f"have no {name!r}", "E_KEY_MISSING", _LEAVE_OUT)
    short = sum(len(normalise(str(text))) < key.q for text in texts)
    hint = "leave these records out, or agree with the other party on a smaller q in align.keys"
    _refuse(short, len(texts), f"have a {name!r} with fewer letters than a group has (q = {key.q})", "E_KEY_SHORT", hint)


def _refuse(wrong: int, records: int, what: str, code: str, hint: str) -> None:
    if wrong:
        raise DataError(f"{wrong:,} of {records:,} records {what}", code=code, hint=hint)
