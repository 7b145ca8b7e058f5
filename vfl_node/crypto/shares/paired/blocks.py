"""How many rows a block has: so many are in one ciphertext of columns. Light: any command may ask."""

from __future__ import annotations

import math

from vfl_node.crypto.lattice.parameters import N

LARGEST_BLOCK = 4096
"""Rows of a block at most; smaller ones have a power of two."""

LEAST_ROWS, USUAL_COLUMNS = 16, 128
"""Rows of a block at least, where there are as many."""


def tile_rows(batch: int, columns: int = USUAL_COLUMNS) -> int:
    """Rows of a block for batches of about so many: so that answers for rows and for columns are about as many.

    A batch of B rows takes B/p answers for p rows each, and d columns take d·p/8,192: both are equal at √(8,192·B/d).

    Args:
        batch: B.
        columns: d, of the party that has more.
    """
    wanted = math.sqrt(N * max(batch, 1) / columns)
    return int(min(max(2 ** round(math.log2(wanted)), LEAST_ROWS), LARGEST_BLOCK, 2 ** int(math.log2(max(batch, LEAST_ROWS)))))


def block_rows(batch: int, columns: int = USUAL_COLUMNS) -> int:
    """Rows of a block for batches of exactly so many: they are whole blocks. Args as :func:`tile_rows`."""
    return min(tile_rows(batch, columns), batch & -batch)


def fill(rows: int, size: int) -> int:
    """The next multiple of a block's rows."""
    return -(-rows // size) * size
