"""Trees in shares, from gradients to new scores. Nobody sees a row's way, a split, or how many rows are where.

::

    x = (g, h)·w of all rows, two numbers in one              gradients.py
    for each level:
        sums of x where each candidate goes left, of the left nodes; those of the right ones are the rest of the level above
        the best candidate of each node                       gain.py
        which way each row goes: a bit, in shares; z and x of the left children are theirs times this bit
    leaves = −η·(value of each side of the last level's nodes)
    score += Σ z·leaf

z is 1 in the node where a row is, and 0 in all others. z and x are opened under masks once a level. What a right child has is a
difference of what is open.

Trees of several classes grow side by side, in as many rounds as one: the nodes of a level are those of the first tree, then
those of the second one, and so on.

Source: ours; the order of the work is that of Chen and Guestrin 2016 (XGBoost).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.shares.bits import Bits, ShownBits, pack_bits, show_bits, unpack_bits
from vfl_node.crypto.shares.cells import MaskedCells, pick_cells, sum_cells
from vfl_node.crypto.shares.functions import deal_flags, deal_places, split_pair
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operation import DEALER, Material, Operation
from vfl_node.crypto.shares.operations import mask_apart, mask_value, product, truncate
from vfl_node.crypto.shares.ring import BITS, Ring
from vfl_node.crypto.shares.sizes import words_of
from vfl_node.crypto.shares.steps import larger
from vfl_node.crypto.shares.values import Opened, Shared, join_columns, stack_rows
from vfl_node.training.trees.gain import Splits, Sums, choose_splits
from vfl_node.training.trees.plan import MOST_LEAF, PLACE_BITS, SCORE_FRACTION, VALUE_FRACTION, TreesPlan

_ONE, _TWO = np.uint64(1), np.uint64(2)
_RATE_FRACTION = 20


@dataclass(frozen=True, eq=False)
class Tree:
    """A party's share of a tree.

    Attributes:
        chosen: of each level bits [K, W], packed: 1 at the candidate that splits a node; none where no one does.
        leaves: [2^depth] with :data:`~.plan.SCORE_FRACTION` fractional bits, left and right of each node of the last level.
    """

    chosen: tuple[Bits, ...]
    leaves: Shared

    @classmethod
    def nothing(cls, plan: TreesPlan) -> Tree:
        """Zeros, as the dealer has of each tree."""
        chosen = tuple(Bits(np.zeros(words_of(plan.width << level), np.uint64)) for level in range(plan.depth))
        return cls(chosen, Shared(np.zeros(1 << plan.depth, np.uint64), SCORE_FRACTION))

    def flags(self, width: int) -> NDArray[np.uint8]:
        """The bits of all nodes, level by level, uint8[2^depth − 1, W]."""
        return np.concatenate([unpack_bits(bits.part, (1 << level, width)) for level, bits in enumerate(self.chosen)])


async def grow_trees(
    machine: ShareMachine, plan: TreesPlan, cells: Sequence[MaskedCells], pairs: Shared, scores: Shared
) -> tuple[list[Tree], Shared, Shared]:
    """One more tree for each of T outputs, side by side, the scores with them, and what candidates gained, [W].

    Gains are those of all T trees together, as of :func:`_add_gains`.

    Args:
        machine: of whoever runs it.
        plan: the same for everybody.
        cells: the candidates of each party.
        pairs: x, [T, n].
        scores: [T, n].
    """
    trees = len(pairs.part)
    (x,) = await machine.run(mask_apart(pairs, machine.parties))
    z, left = everywhere(plan.rows, trees), x
    base, above, chosen = Shared(np.zeros((trees, 1), np.uint64), VALUE_FRACTION), None, []
    gained = Shared(np.zeros(plan.width, np.uint64), plan.gain_fraction + plan.index_bits)
    for level in range(plan.depth):
        sums = await _sum_level(machine, plan, cells, left)
        if above is not None:
            sums = _split_sums(above, sums)
        above = sums
        splits = await choose_splits(machine, plan, sums, base)
        flags, ways, base, more = await _route(machine, plan, cells, splits, z, base, trees)
        gained += more
        chosen.append(unpack_bits(flags.part, (trees, 1 << level, plan.width)))
        if level + 1 < plan.depth:
            (shown,) = await machine.run(show_bits(ways))
            x_left, z_left = await machine.run(keep_left(shown, x, trees), keep_left(shown, z, trees, PLACE_BITS))
            left, z_left = await machine.run(mask_apart(x_left, machine.parties), mask_value(z_left, PLACE_BITS))
            x, z = split_rows(machine, x, left), split_rows(machine, z, z_left)
    leaves = await scale_leaves(machine, plan, base[:, 0])
    of_trees = Shared(leaves.part.reshape(trees, -1), leaves.fraction)
    added = await add_leaves(machine, z, ways, of_trees)
    grown = [Tree(tuple(Bits(pack_bits(level[tree])) for level in chosen), of_trees[tree]) for tree in range(trees)]
    return grown, scores + added, gained


def everywhere(rows: int, trees: int = 1) -> Opened:
    """All rows are in the root of each tree, which is public."""
    nothing = np.zeros((trees, rows), np.uint64)
    return Opened(nothing + _ONE, nothing, 0)


async def _sum_level(machine: ShareMachine, plan: TreesPlan, cells: Sequence[MaskedCells], x: Opened) -> Sums:
    """Sums of x over the rows of each node: where each candidate goes left, and all, [T, W + 1]."""
    parts = await machine.run(*(sum_cells(each, x) for each in cells))
    every = Shared(x.share(machine.place).part.sum(axis=1, dtype=np.uint64)[:, None], 0)
    ((gradients, hessians),) = await machine.run(split_pair(join_columns([*parts, every])))
    return Sums(Shared(gradients, plan.gradient_fraction), Shared(hessians, plan.hessian_fraction))


async def _route(
    machine: ShareMachine, plan: TreesPlan, cells: Sequence[MaskedCells], splits: Splits, z: Opened, base: Shared, trees: int
) -> tuple[Bits, Bits, Shared, Shared]:
    """The chosen candidates, bits [K, W], which rows go left, bits [T, n], the values of children, [2·K, 1], and gains, [W]."""
    bits, width, count = plan.index_bits, plan.width, len(splits.words.part)
    (index,) = await machine.run(mask_value(splits.words, bits))
    flags, places = await machine.run(deal_flags(index, bits, width), deal_places(index, bits, width + 1))
    chosen, first, picks = unpack_bits(flags.part, (count, width)), 0, []
    for each in cells:
        picks.append(pick_cells(each, Bits(pack_bits(chosen[:, first : first + each.width])), count))
        first += each.width
    opened, words, *picked = await machine.run(mask_value(places), mask_value(splits.words), *picks)
    rows = words_of(count * plan.rows)
    ways = Bits(np.bitwise_xor.reduce([np.zeros(rows, np.uint64), *(each.part for each in picked)]))
    if count > trees:
        (shown,) = await machine.run(show_bits(ways))
        (ways,) = await machine.run(select_ways(shown, z, trees))
    values = splits.values
    of_left, of_right, of_node, of_words = await machine.run(
        product(opened[:, :width], values[:, :width], "numbers"),
        product(opened[:, :width], values[:, width : 2 * width], "numbers"),
        product(opened[:, width:], values[:, 2 * width :], "numbers"),
        product(opened[:, :width].transposed, words[:, None]),
    )
    changes = [of_left.sum(axis=1), of_right.sum(axis=1) + of_node[:, 0]]
    children = [base[:, 0] + changes[0], base[:, 0] + changes[1]]
    below = Shared(np.stack([each.part for each in children], axis=1).reshape(-1, 1), base.fraction)
    return flags, ways, below, _add_gains(plan, of_words[:, 0], places)


def _add_gains(plan: TreesPlan, of_words: Shared, places: Shared) -> Shared:
    """How much each candidate gains in the nodes that it splits, exactly, [W]: of its words there, less its number in each."""
    counts = places.part[:, : plan.width].sum(axis=0, dtype=np.uint64)
    gains = of_words.part - counts * np.arange(plan.width, dtype=np.uint64)
    return Shared(gains, plan.gain_fraction + plan.index_bits)


def select_ways(shown: ShownBits, z: Opened, trees: int = 1) -> Operation[Bits]:
    """⊕ of a bit of each node of a tree, where the row is in the node: bits [T, n] of [K, n] under masks, packed."""
    rows = z.mask.shape[1]
    shape, words = (trees, len(z.mask) // trees, rows), words_of(trees * rows)

    def low_bits(numbers: Ring) -> NDArray[np.uint8]:
        return (numbers.astype(np.uint8) & np.uint8(1)).reshape(shape)

    def correlate(values: Material) -> Material:
        return {"both": pack_bits(np.bitwise_xor.reduce(unpack_bits(shown.mask, shape) & low_bits(z.mask), axis=1))}

    def result(place: int, opened: Sequence[Ring], material: Material) -> Bits:
        if place == DEALER:
            return Bits(np.zeros(words, np.uint64))
        known, own = unpack_bits(shown.difference, shape), unpack_bits(shown.mask, shape)
        z_known, z_own = low_bits(z.difference), low_bits(z.mask)
        part = (z_known & own) ^ (known & z_own) ^ (z_known & known if place == 0 else np.uint8(0))
        return Bits(pack_bits(np.bitwise_xor.reduce(part, axis=1)) ^ material["both"])

    return Operation(result, dealt={"both": (words,)}, correlated=correlate, binary=True)


def keep_left(shown: ShownBits, value: Opened, trees: int = 1, bits: int = BITS) -> Operation[Shared]:
    """A value of each node and row, times the row's bit in the tree: [K, n] of bits [T, n] under masks; modulo 2^bits.

    Nothing is sent between parties. From the dealer: a number for each tree and row, and one for each value.
    """
    shape, of_bits = value.mask.shape, (trees, value.mask.shape[1])

    def spread(of_trees: Ring) -> Ring:
        return np.repeat(of_trees, shape[0] // trees, axis=0)

    def correlate(values: Material) -> Material:
        ones = unpack_bits(shown.mask, of_bits).astype(np.uint64)
        return {"ones": ones, "both": spread(ones) * value.mask}

    def result(place: int, opened: Sequence[Ring], material: Material) -> Shared:
        if place == DEALER:
            return Shared(np.zeros(shape, np.uint64), value.fraction)
        known = spread(unpack_bits(shown.difference, of_bits).astype(np.uint64))
        masked = value.difference * spread(material["ones"]) + material["both"]
        return Shared(known * value.share(place).part + (_ONE - _TWO * known) * masked, value.fraction)

    return Operation(result, dealt={"ones": of_bits, "both": shape}, correlated=correlate, dealt_bits=bits)


def split_rows(machine: ShareMachine, whole: Opened, left: Opened) -> Opened:
    """Left and right children in turns."""
    each = tuple(interleave(*pair) for pair in zip(whole.each, left.each, strict=True))
    mask = interleave(whole.mask, left.mask)
    difference = np.zeros(mask.shape, np.uint64) if machine.place == DEALER else interleave(whole.difference, left.difference)
    return Opened(difference, mask, left.fraction, each)


def _split_sums(whole: Sums, left: Sums) -> Sums:
    pairs = (whole.gradients, left.gradients), (whole.hessians, left.hessians)
    return Sums(*(Shared(interleave(one.part, other.part), one.fraction) for one, other in pairs))


def interleave(whole: Ring, left: Ring) -> Ring:
    """What is left, and the rest, in turns."""
    made = np.empty((2 * len(left), left.shape[1]), np.uint64)
    made[::2] = left
    np.subtract(whole, left, out=made[1::2])
    return made


async def follow_trees(machine: ShareMachine, cells: Sequence[MaskedCells], trees: Sequence[Tree]) -> list[Shared]:
    """The leaves of each tree in which rows end, each [n] modulo 2^:data:`PLACE_BITS`; all trees at a time."""
    rows, width = cells[0].rows, sum(each.width for each in cells)
    places = [everywhere(rows)] * len(trees)
    for level in range(len(trees[0].chosen)):
        count = 1 << level
        flags = [unpack_bits(tree.chosen[level].part, (count, width)) for tree in trees]
        ways = [Bits(np.zeros(words_of(count * rows), np.uint64)) for _ in trees]
        first = 0
        for each in cells:
            own = [Bits(pack_bits(flag[:, first : first + each.width])) for flag in flags]
            picked = await machine.run(*(pick_cells(each, selected, count) for selected in own))
            ways = [one ^ more for one, more in zip(ways, picked, strict=True)]
            first += each.width
        if level:
            shown = await machine.run(*map(show_bits, ways))
            ways = await machine.run(*map(select_ways, shown, places))
        if level + 1 < len(trees[0].chosen):
            shown = await machine.run(*map(show_bits, ways))
            kept = await machine.run(*(keep_left(*pair, bits=PLACE_BITS) for pair in zip(shown, places, strict=True)))
            left = await machine.run(*(mask_value(each, PLACE_BITS) for each in kept))
            places = [split_rows(machine, *pair) for pair in zip(places, left, strict=True)]
    tables = await machine.run(*(mask_value(_leaf_table(tree.leaves)) for tree in trees))
    found = await machine.run(*map(product, tables, places))
    changes = await machine.run(*(mask_value(each[1:], PLACE_BITS) for each in found))
    shown = await machine.run(*map(show_bits, ways))
    moved = await machine.run(*(keep_left(*pair, bits=PLACE_BITS) for pair in zip(shown, changes, strict=True)))
    return [one[0] + other[0] for one, other in zip(found, moved, strict=True)]


async def scale_leaves(machine: ShareMachine, plan: TreesPlan, values: Shared) -> Shared:
    """Leaves of their G/(H + λ), [2·K]: times −η, and those of classes cut."""
    scaled = values.times(-round(plan.rate * 2**_RATE_FRACTION), _RATE_FRACTION)
    (leaves,) = await machine.run(truncate(scaled, scaled.fraction - SCORE_FRACTION))
    if plan.loss == "log":
        leaves = await cap(machine, leaves, round(MOST_LEAF * 2**SCORE_FRACTION))
    return leaves


async def cap(machine: ShareMachine, value: Shared, most: int) -> Shared:
    """Numbers cut to at most ``most`` and at least its negative. Six rounds."""
    bound = Shared(np.full(value.shape, most if machine.place == 0 else 0, np.uint64), value.fraction)
    low = await larger(machine, value, bound.times(-1))
    return (await larger(machine, low.times(-1), bound.times(-1))).times(-1)


async def add_leaves(machine: ShareMachine, z: Opened, ways: Bits, leaves: Shared) -> Shared:
    """The value of each row's leaf in each tree, [T, n] modulo 2^:data:`~.plan.PLACE_BITS`.

    Args:
        machine: of whoever runs it.
        z: of the last level's nodes, [K, n].
        ways: bits [T, n] of the rows that go left there.
        leaves: [T, 2·K/T].
    """
    trees = len(leaves.part)
    nodes = len(z.mask) // trees
    tables = await machine.run(*(mask_value(_leaf_table(leaves[tree])) for tree in range(trees)))
    found = await machine.run(*(product(table, z[tree * nodes : (tree + 1) * nodes]) for tree, table in enumerate(tables)))
    change, shown = await machine.run(mask_value(stack_rows([each[1:] for each in found]), PLACE_BITS), show_bits(ways))
    (moved,) = await machine.run(keep_left(shown, change, trees, PLACE_BITS))
    return stack_rows([each[:1] for each in found]) + moved


def _leaf_table(leaves: Shared) -> Shared:
    """The right leaves of the last nodes, and how much the left ones are above them, [2, K] of [2·K]."""
    pairs = leaves.part.reshape(-1, 2)
    return Shared(np.stack([pairs[:, 1], pairs[:, 0] - pairs[:, 1]]), leaves.fraction)
