"""The filters of records: those of all their keys, one behind the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from vfl_node.crypto.filters.groups import GroupFilter
from vfl_node.crypto.filters.pivots import PivotFilter
from vfl_node.crypto.filters.values import KeyValues, bounds, check_values, numbers_of
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.rows import Rows
from vfl_node.job.keys import Encoding, Key, PlaceKey, TextKey, filter_bits

BLOCK_BYTES = 1 << 23
"""Filters made at a time."""


def encode(
    keys: Mapping[str, Key],
    encoding: Encoding,
    columns: Mapping[str, KeyValues],
    seed: Randomness,
    *,
    start: int = 0,
    rows: int | None = None,
) -> Iterator[Rows]:
    """The filters of all records from ``start`` on, in blocks uint8[≤ rows, bits/8].

    They depend on the keys, the encoding, the record and the seed only: not on blocks, the start, or the order in which the job
    names its keys. So a party that begins again goes on with the same bytes, and equal records of both parties have
    equal filters. Keys follow each other by their names.

    Cost: about 0.6 ns a bit of numbers, 10 µs a text, 60 µs with a fixed number of ones. Memory: 20 MiB and two blocks.

    Args:
        keys: of the job.
        encoding: of the job.
        columns: those of :mod:`vfl_node.crypto.filters.values`, by the names of the keys.
        seed: what both data parties share, and nobody else has. Nothing of it is consumed.
        start: first record.
        rows: records in a block; as many as 8 MiB hold if None.

    Raises:
        DataError: at the call, as :func:`vfl_node.crypto.filters.values.check_values`.
        ValueError: as there.
    """
    check_values(keys, columns)
    width = filter_bits(keys, encoding) // 8
    parts = [(columns[name], _filters(keys[name], encoding, seed.derive(f"key:{name}"))) for name in sorted(keys)]
    count = len(columns[next(iter(keys))])
    step = rows or max(1, BLOCK_BYTES // width)
    return (
        np.concatenate([filters(column[at : at + step]) for column, filters in parts], axis=1)
        for at in range(start, count, step)
    )


def _filters(key: Key, encoding: Encoding, secret: Randomness) -> Callable[[KeyValues], Rows]:
    """What makes the filters of a part of a column: uint8[n, bits of this key / 8]."""
    if isinstance(key, TextKey):
        groups = GroupFilter(key, key.bits(encoding), secret, key.ones(encoding))
        return lambda texts: groups.encode(str(text) for text in texts)
    scales, spans = (key.metres, key.spans) if isinstance(key, PlaceKey) else ((1.0,), (key.span,))
    low = bounds(key)[:, 0]
    axes = [
        PivotFilter(0.0, span, key.reach, encoding.pivots(span, key.reach), secret.derive(f"axis:{axis}"))
        for axis, span in enumerate(spans)
    ]

    def encode(column: KeyValues) -> Rows:
        above = (numbers_of(key, column) - low) * scales  # (n, 1 or 2), in the unit of reach
        return np.concatenate([one.encode(above[:, axis]) for axis, one in enumerate(axes)], axis=1)

    return encode
