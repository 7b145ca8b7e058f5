"""Real numbers as integers modulo 2⁶⁴, in two's complement.

A number v with F fractional bits is round(v·2^F). A sum of numbers with the same F has these F; a product has the sum of both.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from vfl_node.errors import DataError

Ring = NDArray[np.uint64]

BITS = 64
BYTES = 8

FRACTION = 18
"""Fractional bits of columns, activations and residuals."""

WEIGHT_FRACTION = 26
"""Fractional bits of weights and their velocity: with fewer, rounding alone moves a weight by 1e-4 in a training."""


def encode(values: ArrayLike, fraction: int = FRACTION) -> Ring:
    """The integers nearest to ``values``·2^``fraction``, half to even.

    Raises:
        DataError: a value is infinite, not a number, or too large for 62 bits (``E_DIVERGED``).
    """
    scaled = np.rint(np.ldexp(np.asarray(values, dtype=np.float64), fraction))
    if not (np.abs(scaled) < 2.0**62).all():  # False for one that is not a number
        raise DataError(
            "a value to be shared is too large, infinite or not a number",
            code="E_DIVERGED",
            hint="lower the learning rate, or look for extreme values in the columns",
        )
    return scaled.astype(np.int64).view(np.uint64)


def decode(values: Ring, fraction: int = FRACTION) -> NDArray[np.float64]:
    """The real numbers, each the float nearest to its exact quotient but for the 11 lowest of 64 bits."""
    return np.ldexp(values.view(np.int64).astype(np.float64), -fraction)


def add_shares(shares: Iterable[Ring], shape: tuple[int, ...], binary: bool = False) -> Ring:
    """The sum of shares uint64[…]; ``binary``: without carries (XOR)."""
    total = np.zeros(shape, np.uint64)
    for share in shares:
        if binary:
            total ^= share
        else:
            total += share
    return total


def pack_numbers(numbers: Ring, bits: int) -> Ring:
    """The low ``bits`` of numbers, 64 or 32, in words: uint64[⌈n·bits / 64⌉]."""
    if bits == BITS:
        return numbers
    halves = np.zeros(-(-len(numbers) // 2) * 2, "<u4")
    halves[: len(numbers)] = numbers.astype(np.uint32)
    return halves.view("<u8").astype(np.uint64, copy=False)


def unpack_numbers(words: Ring, count: int, bits: int) -> Ring:
    """What :func:`pack_numbers` has packed, as numbers below 2^bits."""
    return words if bits == BITS else np.ascontiguousarray(words, "<u8").view("<u4")[:count].astype(np.uint64)


def matmul(left: Ring, right: Ring) -> Ring:
    """The product of two matrices modulo 2⁶⁴, uint64[n, k] of [n, d] and [d, k].

    Cost: about 10⁹ products a second on one core; numpy for vectors, torch for matrices, as each is the faster one.
    """
    if min(len(left), right.shape[1]) < 4:
        return left @ right
    first, second = (torch.from_numpy(np.ascontiguousarray(matrix).view(np.int64)) for matrix in (left, right))
    return (first @ second).numpy().view(np.uint64)
