"""Tiles of a matrix, and the bytes of every message, from shapes alone. Imports nothing large."""

from __future__ import annotations

from dataclasses import dataclass

from vfl_node.crypto.lattice.parameters import LINEAR, MONOMIALS, SLOTS, N, Parameters

SEED_BYTES = 32
SLOT_ROWS = N // 2
"""Rows of a polynomial of slots: each holds two terms of each row."""


@dataclass(frozen=True)
class Tiles:
    """How a matrix X, [rows, columns], is cut into polynomials of ``tile_rows`` by ``tile_columns`` numbers.

    A tile's number at (r, i) is the coefficient of x^(r·tile_columns + i). All tiles of the same rows are a block.

    Raises:
        ValueError: a number is below 1, or ``tile_rows`` above 8,192.
    """

    rows: int
    columns: int
    tile_rows: int = 512

    def __post_init__(self) -> None:
        if self.rows < 1 or self.columns < 1 or not 1 <= self.tile_rows <= N:
            raise ValueError(f"a matrix of {self.rows} rows and {self.columns} columns in tiles of {self.tile_rows} rows")

    @property
    def tile_columns(self) -> int:
        """As many as fit."""
        return N // self.tile_rows

    @property
    def blocks(self) -> int:
        """Blocks of rows."""
        return -(-self.rows // self.tile_rows)

    @property
    def across(self) -> int:
        """Tiles of a block."""
        return -(-self.columns // self.tile_columns)

    def block_rows(self, block: int) -> int:
        """Rows of a block; the last one may have fewer."""
        return min(self.tile_rows, self.rows - block * self.tile_rows)

    def tile_width(self, tile: int) -> int:
        """Columns of a tile; the last one may have fewer."""
        return min(self.tile_columns, self.columns - tile * self.tile_columns)


def public_key_bytes(parameters: Parameters) -> int:
    """A seed and a polynomial."""
    return SEED_BYTES + parameters.polynomial_bytes


def block_bytes(tiles: Tiles) -> int:
    """One encrypted block, whatever rows it has: 25 bytes a number of a whole tile."""
    return SEED_BYTES + tiles.across * LINEAR.polynomial_bytes


def matrix_bytes(tiles: Tiles) -> int:
    """All blocks."""
    return tiles.blocks * block_bytes(tiles)


def forward_bytes(tiles: Tiles, rows: int, count: int = 1) -> int:
    """All answers of X·b for so many rows, of whole blocks but the last one, with ``count`` columns of b."""
    blocks = -(-rows // tiles.tile_rows)
    return count * (blocks * LINEAR.answer_bytes(0) + rows * LINEAR.short_bits // 8)


def transposed_bytes(tiles: Tiles, count: int = 1) -> int:
    """All answers of Xᵀ·b, whatever rows it has, with ``count`` columns of b."""
    return count * (tiles.across * LINEAR.answer_bytes(0) + tiles.columns * LINEAR.short_bits // 8)


def _slot_parts(rows: int) -> int:
    return -(-rows // SLOT_ROWS)


def terms_bytes(terms: int, rows: int) -> int:
    """Encrypted terms of inner products, so many a row."""
    return SEED_BYTES + _slot_parts(rows) * ((terms + 1) // 2) * SLOTS.polynomial_bytes


def terms_answer_bytes(rows: int) -> int:
    """Their answer."""
    return _slot_parts(rows) * SLOTS.answer_bytes(N)


def monomial_ciphertexts(rows: int, stride: int) -> int:
    """Ciphertexts of so many rows' monomials, ``stride`` coefficients each."""
    return -(-rows // (N // stride))


def monomials_bytes() -> int:
    """One ciphertext of monomials."""
    return SEED_BYTES + MONOMIALS.polynomial_bytes


def tally_bytes(stride: int) -> int:
    """The answer of a whole tally."""
    return MONOMIALS.answer_bytes(stride)
