"""X·b and Xᵀ·b modulo 2^64 in shares, X one party's (the owner) and b the other's (the evaluator).

1. The owner encrypts X block by block, once (:func:`encrypt_block`). The evaluator keeps the bytes (:class:`EncryptedBlock`).
2. The evaluator multiplies by b and keeps a uniform mask, its share (:func:`multiply`, :func:`multiply_transposed`).
3. The owner opens the answers, and has the product less the mask (:func:`open_forward`, :func:`open_transposed`).

Leaks: to the evaluator nothing, by RLWE; to the owner what ``flooding.log2_distance`` bounds, and shapes to both. Both are to
be given randomness of one place of one job: the same again gives the same bytes, and another b or X with it would give away the
difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from vfl_node.crypto.lattice.keys import Ciphertexts, PublicRingKey, SecretKey, encrypt
from vfl_node.crypto.lattice.parameters import N
from vfl_node.crypto.lattice.ring import Ring, Words
from vfl_node.crypto.lattice.sizes import Tiles, forward_bytes, transposed_bytes
from vfl_node.crypto.lattice.tiles import left_factors, right_factors, tiles_of
from vfl_node.crypto.randomness import Randomness

_CACHED = 2  # tiles in memory at a time, with both parts 1 MB: a processor's second cache holds them


def encrypt_block(key: SecretKey, tiles: Tiles, block: Words, randomness: Randomness) -> bytes:
    """A block of X, uint64[rows, columns], as ``block_bytes(tiles)`` bytes.

    Args:
        key: of the owner, with the ring ``LINEAR``.
        tiles: how X is cut.
        block: ``tile_rows`` rows at most.
        randomness: of this block of this X alone.

    Raises:
        ValueError: the block has another shape.
    """
    return encrypt(key, tiles_of(block, tiles), randomness)


class EncryptedBlock:
    """A block of the other's X, as it arrived: 25 bytes a number, 442 MB for 100,000 rows of 165 columns.

    Both products read it again: a tile's first part takes 20 µs, and its second part, which is made of the seed, 60 µs. To keep
    second parts would take as much memory again, and save two fifths of a product's time with AVX-512 IFMA, a fifth without.

    Attributes:
        tiles: how X is cut.
        rows: of this block.
        ciphertexts: one a tile.
    """

    def __init__(self, ciphertexts: Ciphertexts, tiles: Tiles, rows: int) -> None:
        self.ciphertexts, self.tiles, self.rows = ciphertexts, tiles, rows

    @classmethod
    def from_bytes(cls, ring: Ring, data: bytes | memoryview, tiles: Tiles, rows: int | None = None) -> EncryptedBlock:
        """What :func:`encrypt_block` made; ``data`` is kept, and may be a memory map.

        Args:
            ring: ``LINEAR``.
            data: ``block_bytes(tiles)`` bytes.
            tiles: how X is cut.
            rows: of this block; by default ``tiles.tile_rows``.

        Raises:
            ValueError: a wrong length or number of rows, or a residue that is not below its prime.
        """
        count = tiles.tile_rows if rows is None else rows
        if not 1 <= count <= tiles.tile_rows:
            raise ValueError(f"a block of {count} rows in tiles of {tiles.tile_rows}")
        return cls(Ciphertexts(ring, data, tiles.across), tiles, count)


def multiply(
    public: PublicRingKey, blocks: Sequence[EncryptedBlock], b: Words, randomness: Randomness
) -> tuple[list[bytes], Words]:
    """X·b of some blocks of X.

    Args:
        public: the owner's key.
        blocks: of one X; all but the last one have ``tile_rows`` rows.
        b: uint64[columns, count].
        randomness: of this product alone.

    Returns:
        An answer for each block, ``forward_bytes`` in all, and the evaluator's share, uint64[rows, count].

    Cost: for each tile 2 polynomials to make and ``count`` products; 3L transforms for each block and column of b.

    Raises:
        ValueError: shapes differ.
    """
    tiles, ring = _tiles_of(blocks), public.ring
    if b.ndim != 2 or len(b) != tiles.columns or b.dtype != np.uint64:
        raise ValueError(f"{b.dtype}{list(b.shape)} for a matrix of {tiles.columns} columns")
    across, count, size = tiles.across, b.shape[1], ring.primes * N
    factors = ring.plain(right_factors(b, tiles))
    first, second = ring.empty(_CACHED), ring.empty(_CACHED)
    answers, shares = [], []
    for at, block in enumerate(blocks):
        sums = ring.zeros(count, 2)
        for start in range(0, across, _CACHED):
            places = range(start, min(start + _CACHED, across))
            block.ciphertexts.first_parts(places, first)
            block.ciphertexts.second_parts(places, second)
            for column in range(count):
                for half, part in enumerate((first, second)):
                    ring.add_products(sums[column, half], part, factors[column, start:], size, len(places))
        parts = []
        for column in range(count):
            stream = randomness.derive(f"forward {at} {column}")
            mask = ring.masks(stream, block.rows)
            parts.append(ring.answer(sums[column], public.parts, mask, tiles.tile_columns, stream))
            shares.append(mask)
        answers.append(b"".join(parts))
    return answers, _columns_of(shares, count)


def multiply_transposed(
    public: PublicRingKey, blocks: Sequence[EncryptedBlock], b: Words, randomness: Randomness
) -> tuple[list[bytes], Words]:
    """Xᵀ·b of some blocks of X.

    Args:
        public: the owner's key.
        blocks: of one X; all but the last one have ``tile_rows`` rows.
        b: uint64[rows of all blocks, count].
        randomness: of this product alone.

    Returns:
        An answer for each tile's columns, ``transposed_bytes`` in all, and the evaluator's share, uint64[columns, count].

    Cost: as :func:`multiply`, but 3L transforms for each tile of a block and column of b.

    Raises:
        ValueError: shapes differ.
    """
    tiles, ring = _tiles_of(blocks), public.ring
    rows = sum(block.rows for block in blocks)
    if b.ndim != 2 or len(b) != rows or b.dtype != np.uint64:
        raise ValueError(f"{b.dtype}{list(b.shape)} for {rows} rows")
    across, count, size = tiles.across, b.shape[1], ring.primes * N
    sums = ring.zeros(across, count, 2)
    first, second = ring.empty(_CACHED), ring.empty(_CACHED)
    for start in range(0, len(blocks), _CACHED):
        together = blocks[start : start + _CACHED]
        begins = np.cumsum([start * tiles.tile_rows, *(block.rows for block in together)])
        each = [left_factors(b[begin:end], tiles) for begin, end in pairwise(begins)]
        factors = ring.plain(np.stack(each, axis=1))  # (count, blocks, L, N)
        for tile in range(across):
            for at, block in enumerate(together):
                block.ciphertexts.first_parts([tile], first[at])
                block.ciphertexts.second_parts([tile], second[at])
            for column in range(count):
                for half, part in enumerate((first, second)):
                    ring.add_products(sums[tile, column, half], part, factors[column], size, len(together))
    answers, shares = [], []
    for tile in range(across):
        parts = []
        for column in range(count):
            stream = randomness.derive(f"transposed {tile} {column}")
            mask = ring.masks(stream, tiles.tile_width(tile))
            parts.append(ring.answer(sums[tile, column], public.parts, mask, 1, stream))
            shares.append(mask)
        answers.append(b"".join(parts))
    return answers, _columns_of(shares, count)


def open_forward(key: SecretKey, tiles: Tiles, answers: Sequence[bytes], rows: int, count: int = 1) -> Words:
    """The owner's share of X·b, uint64[rows, count].

    Args:
        key: the owner's.
        tiles: how X is cut.
        answers: of :func:`multiply`, one a block.
        rows: of all blocks; only the last one may have fewer than ``tile_rows``.
        count: columns of b.

    Cost: 4 transforms for each block and column.

    Raises:
        ValueError: a wrong number of answers, or a wrong length.
    """
    per = tiles.tile_rows
    heights = [min(per, rows - start) for start in range(0, rows, per)]
    if len(answers) != len(heights) or sum(map(len, answers)) != forward_bytes(tiles, rows, count):
        raise ValueError(f"{len(answers)} answers of {sum(map(len, answers))} bytes for {rows} rows")
    return _opened(key, answers, heights, count, tiles.tile_columns)


def open_transposed(key: SecretKey, tiles: Tiles, answers: Sequence[bytes], count: int = 1) -> Words:
    """The owner's share of Xᵀ·b, uint64[columns, count]. As :func:`open_forward`, with one answer for each tile's columns."""
    widths = [tiles.tile_width(tile) for tile in range(tiles.across)]
    if len(answers) != len(widths) or sum(map(len, answers)) != transposed_bytes(tiles, count):
        raise ValueError(f"{len(answers)} answers of {sum(map(len, answers))} bytes for {tiles.columns} columns")
    return _opened(key, answers, widths, count, 1)


def _opened(key: SecretKey, answers: Sequence[bytes], useful: Sequence[int], count: int, step: int) -> Words:
    opened, ring = [], key.ring
    for data, each in zip(answers, useful, strict=True):
        view, size = memoryview(data), ring.parameters.answer_bytes(each)
        if len(view) != count * size:
            raise ValueError(f"an answer of {len(view)} bytes, not {count} of {size}")
        opened += [ring.open(key.transformed, view[at * size : (at + 1) * size], step, each) for at in range(count)]
    return _columns_of(opened, count)


def _columns_of(parts: Sequence[Words], count: int) -> Words:
    """Parts in the order of places and, in each, of columns, as one array [places, count]."""
    return np.stack([np.concatenate(parts[column::count]) for column in range(count)], axis=1)


def _tiles_of(blocks: Sequence[EncryptedBlock]) -> Tiles:
    """Theirs. Raises ValueError: there is no block, they differ, or one that is not the last is not whole."""
    if not blocks or any(block.tiles != blocks[0].tiles for block in blocks):
        raise ValueError("no blocks, or blocks of several matrices")
    if any(block.rows != block.tiles.tile_rows for block in blocks[:-1]):
        raise ValueError("a block that is not the last one has fewer rows than a tile")
    return blocks[0].tiles
