"""The whole training in shares, as every data party and the dealer run it.

::

    cells       each party's candidates under masks, once
    both        w in shares: 1 where a row is every party's and is trained on; and w under a mask
    tree t      gradients and one tree, for each tree
    measure     a histogram of scores by label on the rows held out; only sums with noise are opened
    reveal      each party's splits to it, and the leaves to the active one, if the job says so

Each line is a section (:class:`vfl_node.crypto.shares.machine.ShareMachine`), so a restarted party goes on at a tree: its cells
go once more over the wire, under the same masks, since they are the same. What is opened depends on shapes alone: all levels of
all trees are run, whatever the data are.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.shares.bits import Bits, pack_bits, reveal_bits, unpack_bits
from vfl_node.crypto.shares.cells import mask_cells
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operations import known_product, mask_known, mask_value, reveal
from vfl_node.crypto.shares.ring import Ring, decode
from vfl_node.crypto.shares.steps import widen
from vfl_node.crypto.shares.values import Opened, Shared
from vfl_node.training.shares.measuring import BINS, OutputTally, tally
from vfl_node.training.shares.measuring import SCORE_FRACTION as TALLIED_FRACTION
from vfl_node.training.shares.metric_noise import MetricNoise
from vfl_node.training.trees.candidates import Candidates
from vfl_node.training.trees.gradients import find_pairs
from vfl_node.training.trees.noised import draw_splits, grow_noised_tree, no_splits
from vfl_node.training.trees.plan import PLACE_BITS, SCORE_FRACTION, TreesPlan
from vfl_node.training.trees.tree import Tree, grow_tree

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class TreesTraining:
    """What everybody knows of a training, the dealer too.

    Attributes:
        plan: its shapes.
        training: positions trained on.
        testing: positions measured on; none if nothing is measured.
        metric_noise: of the sums that metrics are made of.
        threshold: probability from which on label 1 is predicted.
        told: whether passive parties get the metrics, too.
        reveals: whether splits are opened to their owners.
        leaves: whether leaves are opened to the active party.
        splits: of which splits are drawn, where leaves have noise.
    """

    plan: TreesPlan
    training: Positions
    testing: Positions
    metric_noise: MetricNoise
    threshold: float = 0.5
    told: bool = False
    reveals: bool = True
    leaves: bool = True
    splits: bytes = bytes(32)


@dataclass(frozen=True, eq=False)
class TreesOwn:
    """What one party brings.

    Attributes:
        candidates: over the shared order.
        bits: uint64[n], 1 where a row is its own.
        targets: uint64[n] with 2·:data:`~vfl_node.crypto.shares.ring.FRACTION` fractional bits at the active party, 0 where a
            row is not its own; zeros at others.
        begin: the score that all rows begin with, at the active party; 0 at others.
    """

    candidates: Candidates
    bits: Ring
    targets: Ring
    begin: float = 0.0


@dataclass(frozen=True, eq=False)
class Grown:
    """A party's shares of what there is so far: what a checkpoint has.

    Attributes:
        scores: uint64[n], modulo 2^:data:`~.plan.PLACE_BITS`.
        trees: so far.
    """

    scores: Ring
    trees: tuple[Tree, ...] = ()


@dataclass(frozen=True)
class TreesOutcome:
    """What a party has at the end.

    Attributes:
        grown: its shares.
        splits: for each tree and node, level by level, the number of its own candidate that was chosen; −1: none of its own.
            Empty if they are not opened.
        leaves: float64[trees, 2^depth] at the active party, if they are opened; else empty.
        tallies: empty at a party that is not told.
    """

    grown: Grown
    splits: NDArray[np.int64]
    leaves: NDArray[np.float64]
    tallies: tuple[OutputTally, ...]


After = Callable[[int, Grown], Awaitable[None]]
"""What happens after a tree, counted from 0."""


async def compute(
    machine: ShareMachine, training: TreesTraining, own: TreesOwn | None, start: Grown | None, first: int, after: After
) -> TreesOutcome:
    """The training.

    Args:
        machine: of whoever runs it.
        training: the same for everybody.
        own: this party's; None at the dealer.
        start: this party's shares before tree ``first``; None at the dealer, and to begin.
        first: tree to begin with.
        after: called after each tree.
    """
    plan, place = training.plan, machine.place
    machine.begin("cells")
    cells = [
        await mask_cells(machine, owner, plan.rows, width, own.candidates if own and place == owner else None)
        for owner, width in enumerate(plan.widths)
    ]
    both, counted = await _multiply_bits(machine, training, own)
    targets = own.targets if own else np.zeros(plan.rows, np.uint64)
    scores = Shared(start.scores if start else first_scores(plan.rows, own), SCORE_FRACTION)
    trees = list(start.trees) if start else [Tree.nothing(plan)] * first  # of which the dealer has no share
    for number in range(first, plan.trees):
        machine.begin(f"tree {number}")
        pairs = await find_pairs(machine, plan, scores, targets, counted)
        if plan.deviation is None:
            tree, scores = await grow_tree(machine, plan, cells, pairs, scores)
        else:
            flags = no_splits(plan)
            if own:
                flags = draw_splits(training.splits, number, plan, place, [matrix.shape[1] for matrix in own.candidates.left])
            tree, scores = await grow_noised_tree(machine, plan, cells, pairs, scores, flags)
        scores = Shared(scores.part & np.uint64((1 << PLACE_BITS) - 1), SCORE_FRACTION)
        trees.append(tree)
        await after(number, Grown(scores.part, tuple(trees)))
    machine.begin("measure")
    tallies: list[OutputTally] = []
    if len(training.testing):
        tallies = await _measure(machine, training, scores, targets, both)
    machine.begin("reveal")
    splits = await _reveal_splits(machine, plan, trees) if training.reveals else np.zeros((0, 0), np.int64)
    leaves = await _reveal_leaves(machine, trees) if training.leaves else np.zeros((0, 0))
    return TreesOutcome(Grown(scores.part, tuple(trees)), splits, leaves, tuple(tallies))


def first_scores(rows: int, own: TreesOwn | None) -> Ring:
    """What rows begin with, in the active party's share alone."""
    begin = round((own.begin if own else 0.0) * 2**SCORE_FRACTION) % (1 << PLACE_BITS)
    return np.full(rows, begin, np.uint64)


async def _multiply_bits(machine: ShareMachine, training: TreesTraining, own: TreesOwn | None) -> tuple[Opened, Opened]:
    """w of all rows, [n, 1], and w of those trained on, [n], under masks."""
    plan = training.plan
    machine.begin("both")
    made = Shared((own.bits if own and machine.place == 0 else np.zeros(plan.rows, np.uint64))[:, None], 0)
    bits = await machine.run(
        *(
            mask_known(owner, (plan.rows, 1), 0, own.bits[:, None] if own and machine.place == owner else None)
            for owner in range(1, machine.parties)
        )
    )
    for bit in bits:
        (made,) = await machine.run(known_product(bit, made, "numbers"))
    trained = np.zeros(plan.rows, np.uint64)
    trained[training.training] = 1
    both, counted = await machine.run(mask_value(made), mask_value(Shared(made.part[:, 0] * trained, 0)))
    return both, counted


async def _measure(
    machine: ShareMachine, training: TreesTraining, scores: Shared, targets: Ring, both: Opened
) -> list[OutputTally]:
    testing, to = training.testing, None if training.told else 0
    shift = TALLIED_FRACTION - SCORE_FRACTION

    async def score(rows: slice) -> Shared:
        wide = await widen(machine, scores[testing[rows]], PLACE_BITS)
        return Shared(wide.part[:, None], SCORE_FRACTION).times(1 << shift, shift)

    tallies = await tally(
        machine,
        score,
        _tested_targets(targets[testing], numbers=training.metric_noise.numbers),
        both[testing],
        training.metric_noise,
        bins=BINS,
        threshold=training.threshold,
        to=to,
    )
    return tallies if to in (None, machine.place) else []


def _tested_targets(targets: Ring, *, numbers: bool) -> Ring:
    """Targets as :func:`~vfl_node.training.shares.measuring.tally` takes them, uint64[t, 1]."""
    shift = np.int64(SCORE_FRACTION if numbers else 2 * SCORE_FRACTION)
    return (targets.view(np.int64) >> shift).view(np.uint64)[:, None]


async def _reveal_splits(machine: ShareMachine, plan: TreesPlan, trees: Sequence[Tree]) -> NDArray[np.int64]:
    """Each party's own chosen candidates to it, int64[trees, 2^depth − 1]."""
    flags = np.concatenate([tree.flags(plan.width) for tree in trees])
    opened, first = [], 0
    for owner, width in enumerate(plan.widths):
        block = np.ascontiguousarray(flags[:, first : first + width])
        (words,) = await machine.run(reveal_bits(Bits(pack_bits(block)), owner))
        opened.append(unpack_bits(words, block.shape))
        first += width
    if machine.place < 0:
        return np.zeros((0, 0), np.int64)
    mine = opened[machine.place]
    return np.where(mine.any(axis=1), mine.argmax(axis=1), -1).reshape(len(trees), -1)


async def _reveal_leaves(machine: ShareMachine, trees: Sequence[Tree]) -> NDArray[np.float64]:
    leaves = Shared(np.stack([tree.leaves.part for tree in trees]), SCORE_FRACTION)
    (opened,) = await machine.run(reveal(leaves, 0))
    return decode(opened, SCORE_FRACTION) if machine.place == 0 else np.zeros((0, 0))
