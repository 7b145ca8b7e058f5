"""How many rows a block has: so many are in one ciphertext of columns. Light: any command may ask."""

from __future__ import annotations

import math

LARGEST_BLOCK = 4096
"""Rows of a block at most; smaller ones have a power of two."""

LEAST_ROWS = 16
"""Rows of a block at least, where there are as many."""


def tile_rows(batch: int) -> int:
    """Rows of a block for batches of about so many: so that answers for rows and for columns are about as many.

    A batch of B rows takes B/p answers for p rows each, and d columns take d·p/8,192. For d = 128 both are equal at 8·√B.
    """
    wanted = 8 * math.sqrt(max(batch, 1))
    return int(min(max(2 ** round(math.log2(wanted)), LEAST_ROWS), LARGEST_BLOCK, 2 ** int(math.log2(max(batch, LEAST_ROWS)))))


def block_rows(batch: int) -> int:
    """Rows of a block for batches of exactly so many: they are whole blocks."""
    return min(tile_rows(batch), batch & -batch)


def fill(rows: int, size: int) -> int:
    """The next multiple of a block's rows."""
    return -(-rows // size) * size
