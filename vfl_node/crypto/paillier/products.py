"""Products of many numbers at a time, in the vectors of a kernel: what the methods of ``matrix`` have in common."""

from __future__ import annotations

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from vfl_node.crypto.kernels.contract import Residues, Vector

Indices = NDArray[np.int64]

NONE = -1
"""The place of a part that is 1."""


def ones(numbers: Residues, count: int) -> Vector:
    """``count`` times 1."""
    return numbers.load([mpz(1)])[np.zeros(count, dtype=np.int64)]


def weighted(numbers: Residues, vector: Vector, first: Indices, weights: int) -> Vector:
    """For each of ``first`` the product of vector[first + k − 1]^k over k = 1 … ``weights``. Cost: two products a factor."""
    running, totals = ones(numbers, len(first)), ones(numbers, len(first))
    for weight in range(weights, 0, -1):
        numbers.multiply((running, None), (running, None), (vector, first + weight - 1))
        numbers.multiply((totals, None), (totals, None), (running, None))
    return totals


def horner(numbers: Residues, parts: Vector, at: Indices, width: int) -> list[mpz]:
    """For each row the product of parts[at[row, k]]^(2^(width·k)) over k, int64[rows, places]; :data:`NONE` for a part of 1.

    Cost: a product for each part, and ``width`` squarings a place below a row's highest.
    """
    results, begun = ones(numbers, len(at)), np.zeros(len(at), dtype=np.bool_)
    for place in reversed(range(at.shape[1])):
        going = np.flatnonzero(begun)
        numbers.square((results, going), width)
        here = np.flatnonzero(at[:, place] != NONE)
        numbers.multiply((results, here), (results, here), (parts, at[here, place]))
        begun[here] = True
    return numbers.numbers(results)
