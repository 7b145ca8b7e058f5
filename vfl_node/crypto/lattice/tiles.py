"""Matrices and vectors as polynomials, so that coefficients of their products are inner products.

A tile T(x) = Σ X[r, i]·x^(r·w + i), of w columns. T(x)·Σ_i b_i·x^(−i) has row r of X·b at x^(r·w), and T(x)·Σ_r b_r·x^(−r·w)
has column i of Xᵀ·b at x^i. Modulo x^N + 1, x^(−k) is −x^(N − k).
"""

from __future__ import annotations

import numpy as np

from vfl_node.crypto.lattice.parameters import N
from vfl_node.crypto.lattice.ring import Words
from vfl_node.crypto.lattice.sizes import Tiles


def tiles_of(block: Words, tiles: Tiles) -> Words:
    """A block of X, uint64[rows, columns], as its tiles, uint64[across, N]. Raises ValueError: another shape."""
    rows, columns = block.shape
    if columns != tiles.columns or not 1 <= rows <= tiles.tile_rows or block.dtype != np.uint64:
        raise ValueError(f"a block {block.dtype}{list(block.shape)} of {tiles.columns} columns, {tiles.tile_rows} rows at most")
    width = tiles.tile_columns
    full = np.zeros((rows, tiles.across * width), np.uint64)
    full[:, :columns] = block
    out = np.zeros((tiles.across, N), np.uint64)
    out[:, : rows * width] = full.reshape(rows, tiles.across, width).transpose(1, 0, 2).reshape(tiles.across, -1)
    return out


def reversed_powers(values: Words, step: int) -> Words:
    """Σ_k v_k·x^(−k·step) for each row v of ``values`` [..., count], uint64[..., N]."""
    count = values.shape[-1]
    out = np.zeros((*values.shape[:-1], N), np.uint64)
    out[..., 0] = values[..., 0]
    out[..., N - np.arange(1, count) * step] = np.uint64(0) - values[..., 1:]
    return out


def right_factors(b: Words, tiles: Tiles) -> Words:
    """What a block's tiles are multiplied by for X·b, b [columns, count]: uint64[count, across, N]."""
    full = np.zeros((b.shape[1], tiles.across * tiles.tile_columns), np.uint64)
    full[:, : len(b)] = b.T
    return reversed_powers(full.reshape(b.shape[1], tiles.across, tiles.tile_columns), 1)


def left_factors(b: Words, tiles: Tiles) -> Words:
    """What all tiles of a block are multiplied by for Xᵀ·b, b [rows of the block, count]: uint64[count, N]."""
    return reversed_powers(np.ascontiguousarray(b.T), tiles.tile_columns)
