"""Masks of 16 bits of a matrix of bits, and what is computed with such matrices (:mod:`vfl_node.crypto.shares.cells`)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.kernels import kernel
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.ring import BITS, Ring
from vfl_node.crypto.shares.sizes import words_of
from vfl_node.errors import DataError

Narrow = NDArray[np.uint16]

MASK_BITS = 16
"""Bits of a cell's mask."""

_CELLS_AT_ONCE = 1 << 22
_KEPT_CELLS = 1 << 26  # so many masks are kept; of larger matrices they are made again for each product


def slots_of(rows: int) -> int:
    """How many slots a column has: more are needed with a probability below 1e-11."""
    mean = rows / (1 << MASK_BITS)
    return math.ceil(mean + 7 * math.sqrt(mean) + 8)


@dataclass(frozen=True, eq=False)
class CellMasks:
    """The masks of one party's cells, which it and the dealer know.

    Attributes:
        seed: they are drawn from.
        rows, width: of the matrix, n and W.
    """

    seed: Randomness
    rows: int
    width: int

    def blocks(self) -> Iterator[tuple[int, Narrow]]:
        """R, some rows at a time, with the first one's number."""
        yield from self._kept if self.rows * self.width <= _KEPT_CELLS else self._draw()

    def low_bits(self) -> Iterator[tuple[int, Ring]]:
        """R modulo 2, likewise: uint64[rows, w], a row's bits packed into words."""
        for start, stop in blocks_of(self.rows, self.width):
            drawn = self.seed.derive(f"low {start}").uint64((stop - start) * words_of(self.width))
            yield start, drawn.reshape(stop - start, -1)

    @cached_property
    def slots(self) -> NDArray[np.int64]:
        """The rows of the rare cells, int64[slots, W]; −1 where none is needed.

        Raises:
            DataError: a column has more of them than slots (``E_CHANCE``), with a probability below 1e-11 a column.
        """
        found = [start * self.width + np.flatnonzero(block == 1) for start, block in self.blocks()]
        rows, columns = np.divmod(np.concatenate(found), self.width)
        order = np.argsort(columns, kind="stable")
        rows, columns = rows[order], columns[order]
        place = np.arange(len(columns)) - np.searchsorted(columns, columns)
        slots = np.full((slots_of(self.rows), self.width), -1, np.int64)
        if place.max(initial=0) >= len(slots):
            raise DataError(
                "masks of columns came out as less than once in a hundred million trainings",
                code="E_CHANCE",
                hint="submit the job again as a new one",
            )
        slots[place, columns] = rows
        return slots

    @cached_property
    def second(self) -> Ring:
        """R′ of the slots, uint64[slots, W]."""
        return self.seed.derive("second").uint64(slots_of(self.rows) * self.width).reshape(-1, self.width)

    @cached_property
    def _kept(self) -> list[tuple[int, Narrow]]:
        return list(self._draw())

    def _draw(self) -> Iterator[tuple[int, Narrow]]:
        for start, low in self.low_bits():
            count = len(low) * self.width
            high = split_words(self.seed.derive(f"high {start}").uint64(cell_words(count)), (len(low), self.width))
            high &= np.uint16(0xFFFE)
            high |= _unpack_rows(low, self.width)
            yield start, high


def blocks_of(rows: int, width: int) -> Iterator[tuple[int, int]]:
    """Where the blocks of a matrix begin and end."""
    size = max(4, _CELLS_AT_ONCE // width // 4 * 4)
    return ((start, min(start + size, rows)) for start in range(0, rows, size))


def multiply_narrow(blocks: Iterator[tuple[int, Narrow]], values: Ring, width: int) -> Ring:
    """Xᵀ·v modulo 2⁶⁴, uint64[T, W], of a matrix of 16 bits in blocks of rows and numbers uint64[T, n]."""
    total = np.zeros((len(values), width), np.uint64)
    for start, block in blocks:
        total += kernel().multiply_cells(block, values[:, start : start + len(block)])
    return total


def cell_words(count: int) -> int:
    """How many words so many cells take."""
    return -(-count * MASK_BITS // BITS)


def join_cells(cells: Narrow) -> Ring:
    """Cells of a matrix in words, four in each."""
    joined = np.zeros(cell_words(cells.size) * BITS // MASK_BITS, "<u2")
    joined[: cells.size] = cells.ravel()
    return joined.view("<u8").astype(np.uint64, copy=False)


def split_words(words: Ring, shape: tuple[int, int]) -> Narrow:
    """What :func:`join_cells` has joined, uint16[n, W]."""
    return words.astype("<u8", copy=False).view("<u2")[: shape[0] * shape[1]].reshape(shape).astype(np.uint16, copy=False)


def pack_rows(bits: NDArray[Any]) -> Ring:
    """A row's bits in words, uint64[n, w] of 0 and 1 [n, W]."""
    packed = np.zeros((len(bits), 8 * words_of(bits.shape[1])), np.uint8)
    packed[:, : -(-bits.shape[1] // 8)] = np.packbits(bits.astype(np.uint8), axis=1, bitorder="little")
    return packed.view("<u8").astype(np.uint64, copy=False)


def _unpack_rows(words: Ring, width: int) -> NDArray[np.uint8]:
    return np.unpackbits(words.astype("<u8", copy=False).view(np.uint8), axis=1, count=width, bitorder="little")


def gather_columns(bits: NDArray[np.uint8]) -> Iterator[Ring]:
    """The columns of a matrix of bits [K, W] as numbers, uint64[W], for 64 rows at a time."""
    for first in range(0, len(bits), 64):
        part = bits[first : first + 64].astype(np.uint64)
        yield (part << np.arange(len(part), dtype=np.uint64)[:, None]).sum(axis=0, dtype=np.uint64)


def spread_words(parts: Sequence[Ring], count: int) -> NDArray[np.uint8]:
    """The low ``count`` bits of n numbers, 64 in each of ``parts``: uint8[count, n]."""
    made = np.empty((count, len(parts[0])), np.uint8)
    for number in range(count):
        made[number] = (parts[number // 64] >> np.uint64(number % 64)).astype(np.uint8) & np.uint8(1)
    return made
