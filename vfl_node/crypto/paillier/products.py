"""Products of many numbers at a time, in the vectors of a kernel: what the methods of ``matrix`` have in common."""

from __future__ import annotations

from collections.abc import Iterator

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


def multiply_by_bits(
    numbers: Residues, vector: Vector, at: Indices, labels: Indices, weights: Indices
) -> Iterator[tuple[Indices, Vector]]:
    """Bit by bit, the lowest first: the labels that have a weight with this bit, and the product of their numbers that have it.

    Numbers of the same label and weight are multiplied once, and then those of weights that differ only in bits already done:
    for many numbers of weights up to k about a product each, and k for a label.

    Args:
        numbers: computes.
        vector: numbers.
        at: places in it, int64[count].
        labels: int64[count], of each, from 0.
        weights: int64[count], of each, from 1.
    """
    width = int(weights.max(initial=0)).bit_length()
    joined = labels << width | weights
    while len(at):
        joined, vector = numbers.multiply_by_label(vector, at, joined)
        labels, weights = joined >> width, joined & (1 << width) - 1
        odd, at = np.flatnonzero(weights & 1), np.flatnonzero(weights > 1)
        yield numbers.multiply_by_label(vector, odd, labels[odd])
        joined = labels[at] << width | weights[at] >> 1


def horner(numbers: Residues, parts: Vector, at: Indices, width: int) -> list[mpz]:
    """For each row the product of parts[at[row, k]]^(2^(width·k)) over k, int64[rows, places]; :data:`NONE` for a part of 1.

    Cost: a product for each part but a row's highest, and ``width`` squarings a place below it.
    """
    results, begun = ones(numbers, len(at)), np.zeros(len(at), dtype=np.bool_)
    for place in reversed(range(at.shape[1])):
        numbers.square((results, np.flatnonzero(begun)), width)
        present = at[:, place] != NONE
        first, later = np.flatnonzero(present & ~begun), np.flatnonzero(present & begun)
        results[first] = parts[at[first, place]]
        numbers.multiply((results, later), (results, later), (parts, at[later, place]))
        begun |= present
    return numbers.numbers(results)
