"""The K nearest rows of a base for each query, exactly, in a memory that depends on neither's length.

Each block of queries meets the base tile by tile. A tile of the base stays in the second-level cache while the distances of all
queries of the block to it are computed; :class:`vfl_node.crypto.nearest.best.Best` keeps the least. Blocks are computed at the
same time by an engine's threads, as numkong and numpy release Python's lock.

The distance of a row that has no common one with a query is the sum of their ones, and no distance is above it: so these rows
are known without another product.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numkong
import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.nearest.best import Best, Neighbours
from vfl_node.crypto.rows import Rows
from vfl_node.engines.contract import Engine

BLOCK_ROWS = 1024
"""Queries in a block."""

_TILE_BYTES = 1 << 19  # half of a usual second-level cache; the queries stream through the rest
_TILE_ROWS = 512


@dataclass(frozen=True)
class _Search:
    """What all blocks have in common."""

    base: Rows
    count: int
    equal_only: bool
    tile_rows: int


def nearest(
    queries: Rows,
    base: Rows,
    count: int,
    engine: Engine,
    *,
    equal_only: bool = False,
    start: int = 0,
    block_rows: int = BLOCK_ROWS,
    tile_rows: int | None = None,
) -> Iterator[Neighbours]:
    """The ``count`` nearest rows of ``base`` for each query from ``start`` on, block by block.

    A base row that has no common one with a query is out of its reach, and never a candidate. What is found does not
    depend on blocks, tiles or workers. So a caller that stores what each block gives can go on behind it.

    Cost: len(queries)·len(base)·w byte comparisons, where w is the width: 91 s of a core with AVX-512 for 100,000 · 100,000
    rows of 2 kB (docs/reference/benchmarks/index.md), on all cores that the engine has. Memory of a worker: about 50 bytes for
    each query of a block and row of a tile, at most 32 MiB, and 80·count for each query of a block. ``queries`` and ``base``
    may be in files: they are read a block and a tile at a time.

    Args:
        queries: uint8[n, w].
        base: uint8[m, w], m below 2³¹.
        count: K, 1 or more; may be above m.
        engine: computes blocks at the same time. Its workers should be threads, since each needs the whole base.
        equal_only: only rows at distance 0 are candidates.
        start: first query.
        block_rows: queries of a block; fewer if not every worker would have several blocks.
        tile_rows: base rows of a tile; by the size of the cache if None.
    """
    if queries.shape[1] != base.shape[1] or not base.shape[1]:
        raise ValueError("queries and base must have the same width, 1 byte or more")
    tile_rows = tile_rows or max(16, min(_TILE_ROWS, _TILE_BYTES // base.shape[1]))
    shared = max(1, -(-(len(queries) - start) // (4 * engine.workers)))
    step = min(block_rows, shared)
    blocks = (queries[at : at + step] for at in range(start, len(queries), step))
    return engine.map(_search_block, blocks, _Search(base, count, equal_only, tile_rows))


def _search_block(search: _Search, block: Rows) -> Neighbours:
    queries = np.ascontiguousarray(block)
    none = np.zeros((1, queries.shape[1]), dtype=np.uint8)  # the distance to it is how many ones there are
    ones = hamming(queries, none)[:, 0]
    best = Best(len(queries), search.count, search.tile_rows, *((1,) if search.equal_only else ()))
    for first in range(0, len(search.base), search.tile_rows):
        tile = np.ascontiguousarray(search.base[first : first + search.tile_rows])
        best.add(first, hamming(queries, tile), (ones, hamming(tile, none)[:, 0]))
    return best.neighbours()


def hamming(queries: Rows, tile: Rows) -> NDArray[np.uint32]:
    """All Hamming distances of some filters, uint8[n, w], and some others, uint8[m, w]: uint32[n, m]."""
    packed = numkong.hammings_pack(tile, dtype="uint1")
    return np.asarray(numkong.hammings_packed(queries, packed))
