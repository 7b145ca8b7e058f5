"""What is kept of every row that is sent, and which rows it shows to be equal or near: all of them, at a small price.

A sketch is a row's product with 16 random directions of ±1. Equal rows have equal sketches, and the
distance of two sketches is that of the rows to within a fifth or so (Johnson–Lindenstrauss). Rows of
16 numbers or fewer are their own sketches.

Source: Achlioptas 2003 for directions of ±1; Dasgupta and Freund 2008 for trees of random projections.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.privacy.attacks import distance_ratio
from vfl_node.privacy.attacks.same_step_twin import EXACT

Floats = NDArray[np.float32]

WIDTH = 16
"""Numbers kept of a row."""

LEAF = 64
"""Rows among which the nearest is sought in a large table."""

PAIRS = 1 << 21
"""Pairs of rows compared in an epoch of a small table, where a leaf has more rows, or all."""

PAIRS_AT_ONCE = 1 << 20


class Sketch:
    """The random directions of one epoch.

    Args:
        width: d, numbers of a row.
        randomness: of this alone.
    """

    def __init__(self, width: int, randomness: Randomness) -> None:
        self._signs = None
        if width > WIDTH:
            signs = np.where(randomness.uint64(width * WIDTH) >> np.uint64(63), 1.0, -1.0) / WIDTH**0.5
            self._signs = torch.from_numpy(signs.astype(np.float32).reshape(width, WIDTH))

    def __call__(self, rows: Tensor) -> Floats:
        """float32[B, 16] of rows float32[B, d]. Cost: 16·B·d multiplications, on the rows' device."""
        if self._signs is None:
            return np.asarray(rows.cpu().numpy())
        self._signs = self._signs.to(rows.device)
        return np.asarray((rows @ self._signs).cpu().numpy())


def twins(sketches: Floats) -> NDArray[np.bool_]:
    """Which rows of each batch are equal to another one of it up to rounding.

    Rows are sorted by a projection, and each is compared with the two before and after it: equal rows
    are missed only if two others fall between them, which lie apart by less than rounding there.

    Args:
        sketches: float32[S, B, w], S batches.

    Returns:
        bool[S, B].

    Cost: S sorts of B numbers, and 4·w multiplications for each pair that may be equal.
    """
    weights = np.sqrt(np.arange(2, sketches.shape[2] + 2, dtype=np.float32))
    keys = sketches @ weights  # (S, B)
    order = np.argsort(keys, axis=1)
    keys = np.take_along_axis(keys, order, axis=1)
    reach = (
        EXACT * weights.sum() * np.take_along_axis(np.abs(sketches).sum(axis=2), order, axis=1)
    )  # of equal rows' keys, at most
    equal_rows = np.zeros(order.shape, dtype=np.bool_)
    for lag in (1, 2):
        batch, place = np.nonzero(keys[:, lag:] - keys[:, :-lag] <= reach[:, lag:])
        first, second = order[batch, place], order[batch, place + lag]
        one, other = (sketches[batch, row].astype(np.float64) for row in (first, second))  # squares of tiny gradients
        equal = np.square(one - other).sum(axis=1) <= EXACT**2 * np.square(one).sum(axis=1)
        equal_rows[batch[equal], first[equal]] = True
        equal_rows[batch[equal], second[equal]] = True
    return equal_rows


def leaves(sketches: Floats, randomness: Randomness) -> NDArray[np.int64]:
    """Which rows are compared with each other, int64[G, s]: G groups of s near rows; numbers from n on stand for no row.

    A tree of halves, each along a random direction, has leaves of at most 64 rows, or of 2²¹/n if these are more: up to 1,448
    rows are all compared. The nearest row across a border is missed; another tree has other borders.

    Args:
        sketches: float32[n, w], n > 0.
        randomness: of this alone; it makes the tree.

    Cost: n·(w + 2)·log₂(n/64) operations.
    """
    count, width = sketches.shape
    leaf = max(LEAF, PAIRS // count)
    levels = (-(-count // leaf) - 1).bit_length()
    size = -(-count // (1 << levels))
    blanks = (size << levels) - count  # fewer than leaves, and spread over them: each stands where a row stands
    order = np.arange(count + blanks)
    order[np.arange(blanks) * len(order) // max(blanks, 1)] = -1
    order[order >= 0] = np.arange(count)
    order[order < 0] = count + np.arange(blanks)
    directions = np.where(randomness.uint64(width * levels) >> np.uint64(63), 1, -1).astype(np.float32)
    places = sketches @ directions.reshape(width, levels)
    places = np.vstack([places, places[np.arange(blanks) * count // max(blanks, 1)]])
    groups = order[None]
    for level in range(levels):
        half = groups.shape[1] // 2
        parts = np.argpartition(places[groups, level], half - 1, axis=1)
        groups = np.take_along_axis(groups, parts, axis=1).reshape(-1, half)
    return groups


def nearest(sketches: Floats, leaves: NDArray[np.int64]) -> NDArray[np.float64]:
    """The distance of each row to the nearest other one of its leaf, float64[n]; infinite if there is none.

    Cost: 64·n·w multiplications, or 2²¹·w; memory for n·w numbers and 2²⁰ pairs.
    """
    count, width = sketches.shape
    blanks = leaves.size - count
    distances_to_nearest = np.full(leaves.size, np.inf)
    rows = torch.from_numpy(np.vstack([sketches, np.zeros((blanks, width), np.float32)]))
    every = torch.arange(leaves.shape[1])
    at_once = max(1, PAIRS_AT_ONCE // leaves.shape[1] ** 2)
    for start in range(0, len(leaves), at_once):
        some = torch.from_numpy(leaves[start : start + at_once])
        here = rows[some]  # (g, s, w)
        squares = here.square().sum(dim=2)
        others = squares.masked_fill(some >= count, torch.inf)
        distances = torch.baddbmm(others[:, None], here, here.mT, alpha=-2)  # ‖q − r‖² less ‖q‖²
        distances[:, every, every] = torch.inf
        distances_to_nearest[some.numpy()] = (distances.amin(dim=2) + squares).clamp_min(0).sqrt().numpy()
    return distances_to_nearest[:count]


def distance_ratios(sketches: Floats, leaves: NDArray[np.int64], which: NDArray[np.int64]) -> NDArray[np.float64]:
    """:func:`~vfl_node.privacy.attacks.distance_ratio.scores` of the rows ``which``, int64[q], within their leaves; float64[q].

    Cost: q·s·w multiplications; memory for 2²⁰ numbers.
    """
    count = len(sketches)
    leaf_of = np.empty(leaves.size, dtype=np.int64)
    leaf_of[leaves.ravel()] = np.repeat(np.arange(len(leaves)), leaves.shape[1])
    ratios = np.empty(len(which))
    at_once = max(1, PAIRS_AT_ONCE // (leaves.shape[1] * sketches.shape[1]))
    for start in range(0, len(which), at_once):
        asked = which[start : start + at_once]
        others = leaves[leaf_of[asked]]  # (q, s)
        gone = torch.from_numpy((others >= count) | (others == asked[:, None]))
        ways = torch.from_numpy(sketches[np.minimum(others, count - 1)] - sketches[asked][:, None])  # (q, s, w)
        squares = ways.square().sum(dim=2).masked_fill(gone, torch.inf)
        ratios[start : start + at_once] = distance_ratio.ratios(squares).numpy()
    return ratios
