"""Boosting in ordinary numbers over the candidates of all parties (:mod:`vfl_node.training.trees`), on the rows that count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vfl_node.training.glm.plain import sigmoid
from vfl_node.training.trees.plan import CURVE_FLOOR, MOST_LEAF, TreesPlan

Floats = NDArray[np.float64]


def derivatives(plan: TreesPlan, scores: Floats, targets: Floats) -> tuple[Floats, Floats]:
    """Gradient and hessian of each row's loss."""
    if plan.loss == "squares":
        return scores - targets, np.ones(len(scores))
    likely = sigmoid(scores)
    return likely - targets, likely * (1 - likely) + CURVE_FLOOR


def gains(plan: TreesPlan, cells: NDArray[np.bool_], g: Floats, h: Floats) -> Floats:
    """Of all candidates in one node, [W], and of no split; −1 where a side has too little."""
    left_g, left_h, all_g, all_h = g @ cells, h @ cells, g.sum(), h.sum()
    enough = (left_h >= plan.least_hessian) & (all_h - left_h >= plan.least_hessian)
    left, right = left_g**2 / (left_h + plan.l2 + 1e-9), (all_g - left_g) ** 2 / (all_h - left_h + plan.l2 + 1e-9)
    found = np.where(enough, left + right - all_g**2 / (all_h + plan.l2 + 1e-9), -1.0)
    return np.append(found, plan.min_gain)


def step(nodes: NDArray[np.int64], picks: Sequence[int], cells: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The node of the next level where each row is; where nothing is split all rows go right."""
    of_row = np.asarray(picks)[nodes]
    width = cells.shape[1]
    goes_left = (of_row < width) & cells[np.arange(len(nodes)), np.minimum(of_row, width - 1)]
    return 2 * nodes + ~goes_left


def cap(plan: TreesPlan, leaves: Floats) -> Floats:
    """Leaves of classes are cut."""
    return leaves.clip(-MOST_LEAF, MOST_LEAF) if plan.loss == "log" else leaves


@dataclass(frozen=True, eq=False)
class PlainTree:
    """A tree.

    Attributes:
        picks: of each level the candidate of each node; W: none.
        leaves: from left to right.
        gained: of each candidate in the nodes that it splits, [W].
        nearest: by how much gain the closest decision of a node was won.
    """

    picks: tuple[tuple[int, ...], ...]
    leaves: Floats
    gained: Floats
    nearest: float


def boost(
    plan: TreesPlan, cells: NDArray[np.bool_], targets: Floats, begin: float, counts: Callable[[int], Floats]
) -> tuple[list[PlainTree], Floats]:
    """All trees of one output, and the scores of the rows; ``counts`` says which rows count in a tree, 0 or 1 each."""
    scores, trees = np.full(len(targets), begin), []
    for number in range(plan.trees):
        g, h = (counts(number) * each for each in derivatives(plan, scores, targets))
        nodes, picks, nearest = np.zeros(len(targets), np.int64), [], np.inf
        gained = np.zeros(cells.shape[1] + 1)
        for level in range(plan.depth):
            each = [gains(plan, cells[nodes == node], g[nodes == node], h[nodes == node]) for node in range(1 << level)]
            picks.append(tuple(int(of.argmax()) for of in each))
            for of in each:
                second, best = np.sort(of)[-2:]
                nearest = min(nearest, best - second)
                gained[of.argmax()] += best
            nodes = step(nodes, picks[-1], cells)
        leaves = np.zeros(2 << (plan.depth - 1))
        for leaf in range(len(leaves)):
            inside = nodes == leaf
            leaves[leaf] = -plan.rate * g[inside].sum() / (h[inside].sum() + plan.l2)
        leaves = cap(plan, leaves)
        scores = scores + leaves[nodes]
        trees.append(PlainTree(tuple(picks), leaves, gained[:-1], nearest))
    return trees, scores
