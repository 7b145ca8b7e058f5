"""Trees with a stated ε: splits are drawn, and the sums of each leaf have noise that nobody knows.

**Splits** cost no ε, since they depend on no label, and on nobody's part of the shared rows. Each node's party is drawn by the
public schedule, so everybody knows whose it is. The party draws one of its columns and one of that column's candidates by a
secret of its own, and tells nobody. So it knows which way a row goes, and no gain is ever computed.

**Leaves.** A row that counts lies in one leaf of each tree, and adds its g and h there. Both sums get noise ::

    G = Σ g + N(σ²)      H = Σ h + N((σ/2)²)      leaf = −η·G/(H + λ)      σ = worlds · MARGIN · √trees / μ

One record more or less moves (G, 2·H) by √(g² + 4h²). That is at most 1.0001 for *any* score: g and h are sums of sines, and
where h is large g is small, over a whole period. A label moves g by 1, and h not at all. :data:`MARGIN` covers this and
rounding. Noise comes before all else that is done with a sum: what follows tells no more, even where it goes wrong. Later trees
see a record only through leaves that have noise. So all trees together are μ-private (Dong, Roth and Su 2019, corollary 3.3),
whatever of splits and leaves is opened. ``worlds`` is 2 where one record comes in and another goes out, as in
:mod:`vfl_node.training.hidden.bound`, and what is not covered stands there, too: the values of a record's columns choose its
leaf, so they move the sums of two leaves, by √2 records at most. All rows begin with the score 0: the share of labels would
tell of labels, so leaves learn it.

λ is σ at least. So noise moves a leaf by about η at most, however few rows it has.

Source: ours, of known parts: random splits (Geurts, Ernst and Wehenkel 2006), noise in leaves alone (Nori et al. 2021).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.bits import Bits, pack_bits, show_bits
from vfl_node.crypto.shares.cells import MaskedCells
from vfl_node.crypto.shares.functions import split_pair
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.noise import draw_noise
from vfl_node.crypto.shares.operations import mask_value
from vfl_node.crypto.shares.values import Shared
from vfl_node.gdp import mu_of
from vfl_node.job.alignment import AlignmentSpec
from vfl_node.training.shares.metric_noise import is_union
from vfl_node.training.trees.config import Trees
from vfl_node.training.trees.gain import find_values
from vfl_node.training.trees.gradients import PAIR_BITS
from vfl_node.training.trees.plan import NOISED_BELOW, PLACE_BITS, TreesPlan
from vfl_node.training.trees.tree import (
    Tree,
    add_leaves,
    everywhere,
    interleave,
    keep_left,
    scale_leaves,
    select_ways,
    split_rows,
)

MARGIN = 1.005
"""Factor for the largest √(g² + 4h²), just above 1, and for rounding, where numbers have eight fractional bits."""

OF_HESSIANS = 0.5
"""Noise of H, by that of G."""

Flags = NDArray[np.uint8]


def deviation(epsilon: float, trees: int, worlds: int) -> float:
    """σ of the noise in the sum of gradients of each leaf, with which so many ``trees`` together are (ε, δ)-private.

    Args:
        epsilon: ε.
        trees: how many.
        worlds: in how many records two worlds differ: 2 over a union, whose length tells how many records are shared.
    """
    return worlds * MARGIN * math.sqrt(trees) / mu_of(epsilon)


def deviation_of(train: Trees, align: AlignmentSpec) -> float | None:
    """The same of a job; None without an ε."""
    return None if train.epsilon is None else deviation(train.epsilon, train.trees, worlds=2 if is_union(align) else 1)


def no_splits(plan: TreesPlan) -> Flags:
    """Zeros, uint8[2^depth − 1, W]: the flags of a tree at whoever has no candidates."""
    return np.zeros(((1 << plan.depth) - 1, plan.width), np.uint8)


def draw_splits(seed: bytes, secret: bytes, number: int, plan: TreesPlan, place: int, columns: Sequence[int]) -> Flags:
    """What splits the nodes of a tree, as far as it is this party's: uint8[2^depth − 1, W], 1 at a chosen candidate.

    Args:
        seed: public, 32 bytes, by which each node gets its party.
        secret: of this party alone, 32 bytes, by which its nodes get their columns and candidates.
        number: of the tree, from 0.
        plan: the same for everybody.
        place: of the party.
        columns: how many candidates each of its columns has, in their order; one at least.
    """
    flags, first = no_splits(plan), sum(plan.widths[:place])
    parties, own = (Randomness(each).derive(f"tree {number}") for each in (seed, secret))
    begins = first + np.cumsum([0, *columns])
    for node in range(len(flags)):
        if parties.draw_below(len(plan.widths)) == place:
            column = own.draw_below(len(columns))
            flags[node, begins[column] + own.draw_below(columns[column])] = 1
    return flags


async def grow_noised_tree(
    machine: ShareMachine, plan: TreesPlan, cells: Sequence[MaskedCells], pairs: Shared, scores: Shared, flags: Flags
) -> tuple[Tree, Shared]:
    """One more tree, and the scores with it.

    Args:
        machine: of whoever runs it.
        plan: the same for everybody, with a deviation.
        cells: the candidates of each party.
        pairs: x, [1, n].
        scores: [1, n].
        flags: of :func:`draw_splits`; zeros at the dealer.
    """
    assert plan.deviation is not None
    (x,) = await machine.run(mask_value(pairs))
    z, chosen = everywhere(plan.rows), []
    for level in range(plan.depth):
        count = 1 << level
        of_level = flags[count - 1 : 2 * count - 1]
        chosen.append(Bits(pack_bits(of_level)))
        ways = _known_ways(plan, cells, of_level)
        if level:
            (shown,) = await machine.run(show_bits(ways))
            (ways,) = await machine.run(select_ways(shown, z))
        (shown,) = await machine.run(show_bits(ways))
        if level + 1 < plan.depth:
            x_left, z_left = await machine.run(keep_left(shown, x), keep_left(shown, z, bits=PLACE_BITS))
            left, z_left = await machine.run(mask_value(x_left), mask_value(z_left, PLACE_BITS))
            x, z = split_rows(machine, x, left), split_rows(machine, z, z_left)
    (x_left,) = await machine.run(keep_left(shown, x))
    every = x.share(machine.place).part.sum(axis=1, dtype=np.uint64)[:, None]
    sums = interleave(every, x_left.sum(axis=1).part[:, None]).reshape(1, -1)
    of_gradients, of_hessians = await machine.run(
        draw_noise(sums.shape, plan.deviation, plan.gradient_fraction),
        draw_noise(sums.shape, OF_HESSIANS * plan.deviation, plan.hessian_fraction),
    )
    sums += (of_gradients.part << np.uint64(PAIR_BITS)) + of_hessians.part
    ((gradients, hessians),) = await machine.run(split_pair(Shared(sums, 0), NOISED_BELOW))
    values = await find_values(
        machine, plan, Shared(gradients, plan.gradient_fraction), Shared(hessians, plan.hessian_fraction)
    )
    leaves = await scale_leaves(machine, plan, values[0])
    return Tree(tuple(chosen), leaves), scores + await add_leaves(machine, z, ways, Shared(leaves.part[None], leaves.fraction))


def _known_ways(plan: TreesPlan, cells: Sequence[MaskedCells], flags: Flags) -> Bits:
    """Which rows go left at each node, bits [K, n]: each node's owner knows them, so shares of others are 0."""
    ways, first = np.zeros((len(flags), plan.rows), np.uint8), 0
    for each in cells:
        if each.own is not None:
            ways = each.own.pick(flags[:, first : first + each.width])
        first += each.width
    return Bits(pack_bits(ways))
