"""Products with a matrix of 16 bits, and of rows of bits, by numpy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.kernels.contract import Cells, Words

_CACHED = 1 << 16  # so many numbers are computed with at a time, which stay in a processor's cache
_EXACT_ROWS = 1 << 20  # sums of so many products of two numbers of 16 bits are exact in float64
_LIMB_BITS = 16


def check_cells(cells: Cells, numbers: Words) -> None:
    """Raises ValueError as :meth:`~vfl_node.crypto.kernels.contract.Kernel.multiply_cells`."""
    fits = cells.ndim == numbers.ndim == 2 and len(cells) == numbers.shape[1]
    if not fits or cells.dtype != np.uint16 or numbers.dtype != np.uint64:
        raise ValueError(f"cells {cells.dtype}{list(cells.shape)} and numbers {numbers.dtype}{list(numbers.shape)}")


def check_bits(rows: Words, chosen: Words) -> None:
    """Raises ValueError as :meth:`~vfl_node.crypto.kernels.contract.Kernel.multiply_bits`."""
    fits = rows.ndim == chosen.ndim == 2 and rows.shape[1] == chosen.shape[1]
    if not fits or rows.dtype != np.uint64 or chosen.dtype != np.uint64:
        raise ValueError(f"bits {rows.dtype}{list(rows.shape)} and {chosen.dtype}{list(chosen.shape)}")


def multiply_cells(cells: Cells, numbers: Words) -> Words:
    """As in the contract: numbers are cut into four of 16 bits, whose products and sums are exact in float64."""
    check_cells(cells, numbers)
    count, width = len(numbers), cells.shape[1]
    step = max(1, _CACHED // max(1, width + 4 * count))
    wide, limbs, total = np.empty((step, width)), np.empty((count, 4, step)), np.zeros((count, width), np.uint64)
    for start in range(0, len(cells), _EXACT_ROWS):
        stop, sums = min(start + _EXACT_ROWS, len(cells)), np.zeros((4 * count, width))
        for first in range(start, stop, step):
            part = cells[first : min(first + step, stop)]
            size = len(part)
            words = numbers[:, first : first + size].astype("<u8", copy=False)
            wide[:size] = part
            limbs[:, :, :size] = np.ascontiguousarray(words)[:, :, None].view("<u2").swapaxes(1, 2)
            sums += limbs[:, :, :size].reshape(4 * count, size) @ wide[:size]
        for limb in range(4):
            total += sums[limb::4].astype(np.uint64) << np.uint64(_LIMB_BITS * limb)
    return total


def multiply_bits(rows: Words, chosen: Words) -> NDArray[np.uint8]:
    """As in the contract: words under each choice, added and then folded to their lowest bit."""
    check_bits(rows, chosen)
    made, step = np.empty((len(chosen), len(rows)), np.uint8), max(1, _CACHED // max(1, rows.shape[1]))
    for first in range(0, len(rows), step):
        columns = np.ascontiguousarray(rows[first : first + step].T)
        for number, each in enumerate(chosen):
            found = np.bitwise_xor.reduce(columns & each[:, None], axis=0)
            for shift in (32, 16, 8, 4, 2, 1):
                found ^= found >> np.uint64(shift)
            made[number, first : first + step] = found & np.uint64(1)
    return made
