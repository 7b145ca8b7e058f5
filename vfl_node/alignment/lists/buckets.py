"""Elements divided by their leading bits, so that workers order, compare and find them bucket by bucket.

Blinded elements look uniform, so buckets are of about the same size. A bucket holds its elements in the order that they had.
The order of all is that of the buckets, then that in each. So what is found does not depend on how many buckets there are.
Nothing of this is sent: both parties hold the lists anyway.

Divided elements lie in a file without a name, which is gone when it is closed. The place of each lies there too.
Memory holds a few buckets for each worker. If a peer sends many equal elements, a bucket is as large as its whole list.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from vfl_node.alignment.lists.columns import Source, write_all
from vfl_node.crypto.rows import RowIndex, Rows, order_rows
from vfl_node.engines.contract import Block, Engine, Result
from vfl_node.errors import StateError

PLACE_BYTES = 4
"""For each element in a bucket, beside its own bytes."""

BUCKET_BYTES = 1 << 21
"""Elements of a bucket that are wanted: they fit into the cache of a core."""

_MOST_BITS = 10  # more than so many buckets grow instead, so that a slice has some rows for each
_RUN_BYTES = 1 << 15  # of a slice and a bucket, at least

T = TypeVar("T")


def bucket_bits(elements: int, width: int) -> int:
    """How many leading bits number the buckets, from 0; lists that are compared are divided by as many.

    Args:
        elements: of these lists together.
        width: bytes an element.
    """
    return min(_MOST_BITS, max(0, -(-elements * width // BUCKET_BYTES) - 1).bit_length())


def slice_bytes(bits: int) -> int:
    """Elements that are divided at a time: this many bytes of them, about."""
    return max(BUCKET_BYTES, _RUN_BYTES << bits)


class BucketRows:
    """The elements of a bucket, in memory.

    Attributes:
        rows: the elements, uint8[k, width].
        places: of each in the whole list, int64[k], ascending.
    """

    def __init__(self, rows: Rows, places: NDArray[np.int64]) -> None:
        self.rows, self.places = rows, places

    def read(self) -> BucketRows:
        """Itself."""
        return self


class Bucket:
    """A bucket that is read where it is needed: by a thread of this process, or before it goes to another one."""

    def __init__(self, divided: Buckets, number: int) -> None:
        self._divided, self._number = divided, number

    def read(self) -> BucketRows:
        """Its elements. Raises StateError: the file is damaged (``E_STATE_CORRUPT``)."""
        return self._divided.read(self._number)

    def __reduce__(self) -> tuple[type[BucketRows], tuple[Rows, NDArray[np.int64]]]:
        held = self.read()
        return BucketRows, (held.rows, held.places)


class Buckets:
    """A list, divided. A context: in the end its file is gone.

    Cost: about 60 ns an element to divide, 40 to order it and 150 to find it, all by workers.

    Args:
        source: the elements.
        width: bytes an element.
        bits: :func:`bucket_bits`.
        engine: whose workers compute.
        folder: where the file lies.
    """

    def __init__(self, source: Source, width: int, bits: int, engine: Engine, folder: Path) -> None:
        self._count, self._width, self._bits, self._engine = len(source), width, bits, engine
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 (closed as this is)
        self._slices: list[_Slice] = []
        begin = offset = 0
        try:
            slices = _cut(source.chunks(), max(1, slice_bytes(bits) // width))
            for data, ends, sums in _map_few(engine, divide, slices, bits):
                for part in data:
                    write_all(self._file.fileno(), part)
                self._slices.append(_Slice(begin, offset, ends, sums))
                begin, offset = begin + int(ends[-1]), offset + int(ends[-1]) * (width + PLACE_BYTES)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return self._count

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop the file. Idempotent."""
        self._file.close()

    def ascending(self) -> NDArray[np.int64]:
        """Places of the elements in ascending byte order, int64[n]; of equal ones the earlier first."""
        order, begin = np.empty(self._count, dtype=np.int64), 0
        for places in self._compute_each(order_bucket):
            order[begin : begin + len(places)] = places
            begin += len(places)
        return order

    def are_distinct(self) -> bool:
        """Whether no two elements are equal."""
        return all(self._compute_each(is_distinct))

    def find(self, wanted: Buckets) -> NDArray[np.int64]:
        """The first place of each of ``wanted`` among these, int64[k]; −1 where it is absent. It has as many buckets."""
        found = np.full(len(wanted), -1, dtype=np.int64)
        pairs = ((Bucket(self, number), Bucket(wanted, number)) for number in range(1 << self._bits))
        for places, at in _map_few(self._engine, find_in_bucket, pairs, None):
            found[places] = at
        return found

    def read(self, number: int) -> BucketRows:
        """Bucket ``number``. Raises StateError: the file is damaged (``E_STATE_CORRUPT``)."""
        rows, places = [np.empty((0, self._width), dtype=np.uint8)], [np.empty(0, dtype=np.int64)]
        for part in self._slices:
            start, stop, count = int(part.ends[number]), int(part.ends[number + 1]), int(part.ends[-1])
            data = self._pread((stop - start) * self._width, part.offset + start * self._width)
            at = self._pread((stop - start) * PLACE_BYTES, part.offset + count * self._width + start * PLACE_BYTES)
            if zlib.crc32(at, zlib.crc32(data)) != part.sums[number]:
                raise StateError(
                    "elements that were divided on disk come back changed",
                    code="E_STATE_CORRUPT",
                    hint="check the disk under state_dir, then go on: vfl-node resume JOB",
                )
            rows.append(np.frombuffer(data, dtype=np.uint8).reshape(-1, self._width))
            places.append(np.frombuffer(at, dtype=np.int32) + np.int64(part.begin))
        return BucketRows(np.concatenate(rows), np.concatenate(places))

    def _compute_each(self, operation: Callable[[None, Bucket], T]) -> Iterator[T]:
        return _map_few(self._engine, operation, (Bucket(self, number) for number in range(1 << self._bits)), None)

    def _pread(self, size: int, offset: int) -> bytes:
        return os.pread(self._file.fileno(), size, offset)


class _Slice:
    """Where the buckets of some neighbouring elements lie in the file: first all elements, then all places.

    Attributes:
        begin: place of the first one in the list.
        offset: in the file.
        ends: first element of each bucket, and behind the last, int64[buckets + 1].
        sums: CRC-32 of each bucket's elements and places.
    """

    def __init__(self, begin: int, offset: int, ends: NDArray[np.int64], sums: list[int]) -> None:
        self.begin, self.offset, self.ends, self.sums = begin, offset, ends, sums


# The operations of workers.


def divide(bits: int, rows: Rows) -> tuple[tuple[bytes, bytes], NDArray[np.int64], list[int]]:
    """Elements and their places by bucket, as they are written; where each bucket begins; and the sum over each."""
    leading = np.zeros(len(rows), dtype=np.uint16)
    for byte in range(min(2, rows.shape[1])):
        leading |= rows[:, byte].astype(np.uint16) << (8 - 8 * byte)
    numbers = leading >> (16 - bits) if bits else np.zeros_like(leading)
    order = np.argsort(numbers, kind="stable")
    ends = np.zeros((1 << bits) + 1, dtype=np.int64)
    np.cumsum(np.bincount(numbers, minlength=1 << bits), out=ends[1:])
    data, places, width = rows.take(order, axis=0).tobytes(), order.astype(np.int32).tobytes(), rows.shape[1]
    views, sums = (memoryview(data), memoryview(places)), []
    for start, stop in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        of_rows = zlib.crc32(views[0][start * width : stop * width])
        sums.append(zlib.crc32(views[1][start * PLACE_BYTES : stop * PLACE_BYTES], of_rows))
    return (data, places), ends, sums


def order_bucket(_: None, bucket: Bucket) -> NDArray[np.int64]:
    """Places of the bucket's elements, ascending by the elements, int64[k]."""
    held = bucket.read()
    return held.places[order_rows(held.rows)]


def is_distinct(_: None, bucket: Bucket) -> bool:
    """Whether no two elements of the bucket are equal."""
    return RowIndex(bucket.read().rows).distinct


def find_in_bucket(_: None, pair: tuple[Bucket, Bucket]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places of the second bucket's elements, and where each is among all of the first list, −1 if it is not; int64[k] each."""
    held, wanted = (bucket.read() for bucket in pair)
    found = RowIndex(held.rows).find(wanted.rows)
    return wanted.places, np.append(held.places, -1)[found]


def _map_few(engine: Engine, operation: Callable[[T, Block], Result], blocks: Iterable[Block], key: T) -> Iterator[Result]:
    """As the engine's map, with one block begun for each worker and one more: blocks and results are large."""
    begun: deque[Iterator[Result]] = deque()
    for block in blocks:
        begun.append(engine.map(operation, [block], key))
        if len(begun) > engine.workers:
            yield next(begun.popleft())
    while begun:
        yield next(begun.popleft())


def _cut(chunks: Iterable[Rows], size: int) -> Iterator[Rows]:
    """All rows in slices of at least ``size``, but for the last."""
    held, count = list[Rows](), 0
    for chunk in chunks:
        held.append(chunk)
        count += len(chunk)
        if count >= size:
            yield np.concatenate(held)
            held, count = [], 0
    if held:
        yield np.concatenate(held)
