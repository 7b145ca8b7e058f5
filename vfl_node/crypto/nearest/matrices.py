"""The search on a CUDA device: how many ones two rows have in common is a product of matrices of zeros and ones.

Every number is an integer below 2²⁴, so float32 is exact, with tensor cores (TF32), too: the result is that of the processor.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from vfl_node.crypto.nearest.best import Neighbours
from vfl_node.crypto.rows import Rows

_INDEX_BITS = 32
_NONE = torch.iinfo(torch.int64).max  # behind all that count
_VALUES, _BLOCK_ROWS = 1 << 27, 4096  # bits of a tile, 512 MiB as float32, and queries of a block at most


def nearest_by_products(
    queries: Rows, base: Rows, count: int, device: torch.device, *, equal_only: bool = False, start: int = 0
) -> Iterator[Neighbours]:
    """As :func:`vfl_node.crypto.nearest.search.nearest`, on ``device``.

    Cost: 16·len(queries)·len(base)·w floating point operations. Memory of the device: below 4 GiB, whatever the lengths.

    Args:
        queries: uint8[n, w].
        base: uint8[m, w], m below 2³¹.
        count: K, 1 or more; may be above m.
        device: any of torch's.
        equal_only: only rows at distance 0 are candidates.
        start: first query.
    """
    step = max(1, min(_BLOCK_ROWS, _VALUES // (8 * base.shape[1])))
    for at in range(start, len(queries), step):
        block = _bits(queries[at : at + step], device)
        ones = block.sum(dim=1, keepdim=True)
        best = torch.full((len(block), count), _NONE, device=device)
        for first in range(0, len(base), 2 * step):
            tile = _bits(base[first : first + 2 * step], device)
            common = block @ tile.T
            distances = ones + tile.sum(dim=1) - 2 * common
            keys = distances.long() << _INDEX_BITS | torch.arange(first, first + len(tile), device=device)
            keys[(common == 0) | (distances > 0) if equal_only else common == 0] = _NONE
            best = torch.cat([best, keys], dim=1).topk(count, dim=1, largest=False, sorted=True).values
        rows = torch.where(best == _NONE, -1, best & ((1 << _INDEX_BITS) - 1))
        far = torch.where(best == _NONE, -1, best >> _INDEX_BITS)
        yield Neighbours(*(values.to("cpu", torch.int32).numpy() for values in (rows, far)))


def _bits(rows: Rows, device: torch.device) -> torch.Tensor:
    """Zeros and ones, float32[n, 8·w]; their order within a byte does not matter."""
    packed = torch.from_numpy(np.array(rows)).to(device)
    shifts = torch.arange(8, dtype=torch.uint8, device=device)
    return (packed[:, :, None] >> shifts & 1).flatten(start_dim=1).float()
