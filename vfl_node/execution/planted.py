"""Values of a party's own table that are searched for in what its node sends: in clear, and in the usual encodings.

A value is searched for as UTF-8, UTF-16, hex and base64 of its text, and a number also as int64 and float64 (little-endian).
Shorter texts than :data:`LEAST_BYTES` would be found by chance, and are left out; so are numbers with few bytes that are not 0.
"""

from __future__ import annotations

import base64
import secrets
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.readers.opening import open_input
from vfl_node.settings.table import Data

LEAST_BYTES = 6
"""Bytes of a value, at least; also those by which it is looked up."""

MOST_VALUES = 50_000
"""So many values of a table are searched for at most, of rows that are drawn."""

_SHORT = 8
_MOST_SHORT = 5_000
"""Values with fewer than 8 bytes, at most: in 100 MB of random bytes 5,000 of them are found .002 times."""

_LEAST_INTEGER = 1 << 24
_LEAST_DENSE = 5
_HASH_BITS = 26
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SIGNS = str.maketrans("", "", "=")


@dataclass(frozen=True)
class Value:
    """One value.

    Attributes:
        kind: what it is: id, label, cell, column or file.
        text: of it.
    """

    kind: str
    text: str


class PlantedValues:
    """A search for values in messages (:class:`vfl_node.transport.wire_tap.Planted`). Cost: about 30 ms for each MiB.

    Args:
        values: that are searched for.
        seed: by which they were drawn; it is said again.
    """

    def __init__(self, values: Iterable[Value], seed: bytes = b"") -> None:
        self._seed = seed
        self._forms: dict[bytes, list[tuple[bytes, str]]] = {}
        self._values = short = 0
        for value in values:
            forms = [form for form in forms_of(value.text) if len(form) >= LEAST_BYTES]
            small = min(map(len, forms), default=0) < _SHORT
            if not forms or (small and short >= _MOST_SHORT):
                continue
            short += small
            self._values += 1
            for form in forms:
                self._forms.setdefault(form[:LEAST_BYTES], []).append((form, value.kind))
        begins = [int.from_bytes(begin, "little") for begin in self._forms]
        self._begins = np.sort(np.array(begins, np.uint64))
        self._bits = np.zeros(1 << (_HASH_BITS - 3), np.uint8)
        places = _place(self._begins)
        np.bitwise_or.at(self._bits, places >> 3, np.left_shift(np.uint8(1), (places & 7).astype(np.uint8)))

    def find(self, body: bytes) -> Counter[str]:
        """Kinds of values that are in ``body``, and how often."""
        found: Counter[str] = Counter()
        for place in self._candidates(body):
            for form, kind in self._forms.get(body[place : place + LEAST_BYTES], ()):
                if body.startswith(form, place):
                    found[kind] += 1
        return found

    def describe(self) -> dict[str, Any]:
        """values: how many; seed: by which they were drawn."""
        return {"values": self._values, "seed": self._seed.hex()}

    def _candidates(self, body: bytes) -> list[int]:
        """Where a value may begin."""
        data = np.frombuffer(body, np.uint8)
        if len(data) < LEAST_BYTES or not len(self._begins):
            return []
        count = len(data) - LEAST_BYTES + 1
        windows = np.zeros(count, np.uint64)
        for number in range(LEAST_BYTES):
            windows |= data[number : number + count].astype(np.uint64) << np.uint64(8 * number)
        places = _place(windows)
        maybe = np.flatnonzero(self._bits[places >> 3] >> (places & 7).astype(np.uint8) & 1)
        at = np.searchsorted(self._begins, windows[maybe])
        known = self._begins[np.minimum(at, len(self._begins) - 1)] == windows[maybe]
        return [int(place) for place in maybe[known]]


def forms_of(text: str) -> Iterator[bytes]:
    """The bytes by which a value may stand in a message."""
    plain = text.encode()
    yield plain
    yield text.encode("utf-16-le")
    yield plain.hex().encode()
    yield plain.hex().upper().encode()
    for before in range(3):  # where base64 begins in a group of three bytes is not known
        coded = base64.b64encode(bytes(before) + plain).decode().translate(_SIGNS)
        first = (8 * before + 5) // 6
        yield coded[first : (8 * (before + len(plain))) // 6].encode()
    with suppress(ValueError, OverflowError, struct.error):
        number = float(text)
        if number.is_integer() and abs(number) >= _LEAST_INTEGER:
            yield struct.pack("<q", int(text))
        packed = struct.pack("<d", number)
        if sum(map(bool, packed)) >= _LEAST_DENSE:
            yield packed


def draw_values(data: Data, *, party: str, ids: tuple[str, ...], label: str | None, seed: bytes | None = None) -> PlantedValues:
    """Values of a table: names of its columns and its file, and all cells of rows that are drawn.

    Args:
        data: where the table is.
        party: its owner, for errors.
        ids: columns that identify a record.
        label: column of labels; None: there is none.
        seed: of the draw; None: a new one.

    Raises:
        DataError: as the reader.
    """
    seed = secrets.token_bytes(32) if seed is None else seed
    random = Randomness(seed)
    with closing(open_input(data, party=party)) as reader:
        names = reader.names
        most = max(1, MOST_VALUES // len(names))
        keys, rows = np.empty(0), list[tuple[Any, ...]]()
        for batch in reader.batches():
            keys = np.concatenate((keys, random.uniform((batch.columns.num_rows,))))
            best = np.sort(np.argsort(keys, kind="stable")[:most])  # of the rows so far, those with the smallest keys stay
            taken = best[best >= len(rows)] - len(rows)
            columns = [batch.columns[name].take(taken).to_pylist() for name in names]
            rows = [rows[place] for place in best[: len(best) - len(taken)]] + list(zip(*columns, strict=True))
            keys = keys[best]
    kinds = {name: "id" if name in ids else "label" if name == label else "cell" for name in names}
    values = [Value("column", name) for name in names]
    values += [Value("file", place.rstrip("/").rpartition("/")[2])] if (place := data.url or str(data.path or "")) else []
    values += [Value(kinds[name], str(cell)) for row in rows for name, cell in zip(names, row, strict=True) if cell is not None]
    return PlantedValues(dict.fromkeys(values), seed)


def _place(windows: NDArray[np.uint64]) -> NDArray[np.intp]:
    return ((windows * _FACTOR) >> np.uint64(64 - _HASH_BITS)).astype(np.intp)
