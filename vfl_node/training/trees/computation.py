"""The whole training in shares, as every data party and the dealer run it.

::

    cells       each party's candidates under masks, once
    both        w in shares: 1 where a row is every party's and is trained on; and w under a mask
    tree t      gradients and one tree, for each tree; of several classes one tree each; with an ε as in noised.py
    measure     a histogram of scores by label on the rows held out; only sums with noise are opened
    gains       how much each column gains in all trees, in shares and rounded, if the job says that it is opened; not with an ε
    reveal      each party's splits and its columns' gains to it, and the leaves to the active one, if the job says so

Each line is a section (:class:`vfl_node.crypto.shares.machine.ShareMachine`), so a restarted party goes on at a tree: its cells
go once more over the wire, under the same masks, since they are the same. What is opened depends on shapes alone: all levels of
all trees are run, whatever the data are.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.bits import Bits, pack_bits, reveal_bits, unpack_bits
from vfl_node.crypto.shares.cells import mask_cells
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operations import known_product, mask_known, mask_value, reveal
from vfl_node.crypto.shares.ring import BITS, Ring, decode
from vfl_node.crypto.shares.rounding import round_off
from vfl_node.crypto.shares.steps import widen
from vfl_node.crypto.shares.tallies import SCORE_FRACTION as TALLIED_FRACTION
from vfl_node.crypto.shares.values import Opened, Shared, stack_rows
from vfl_node.training.schedule import Schedule
from vfl_node.training.shares.candidates import Candidates
from vfl_node.training.shares.measuring import BINS, OutputTally, tally
from vfl_node.training.shares.metric_noise import MetricNoise
from vfl_node.training.trees.config import Trees
from vfl_node.training.trees.gradients import find_pairs
from vfl_node.training.trees.noised import Flags, draw_splits, grow_noised_tree, no_splits
from vfl_node.training.trees.plan import PLACE_BITS, SCORE_FRACTION, TreesPlan
from vfl_node.training.trees.tree import Tree, grow_trees

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
        reveals: whether splits are opened to their owners, and columns' gains where there are any.
        leaves: whether leaves are opened to the active party.
        schedule: by which rows are drawn for a tree, and splits where leaves have noise; None: all rows count.
        row_fraction: which part of the rows trained on counts in a tree.
    """

    plan: TreesPlan
    training: Positions
    testing: Positions
    metric_noise: MetricNoise
    threshold: float = 0.5
    told: bool = False
    reveals: bool = True
    leaves: bool = True
    schedule: Schedule | None = None
    row_fraction: float = 1.0

    def draw_rows(self, number: int) -> Ring | None:
        """uint64[n], 1 where a row counts in tree ``number``: public, and never by what rows are. None: all count."""
        if self.schedule is None or self.row_fraction == 1:
            return None
        count = max(1, round(self.row_fraction * len(self.training)))
        order = Randomness(self.schedule.derive(f"rows of tree {number}")).permutation(len(self.training))
        drawn = np.zeros(self.plan.rows, np.uint64)
        drawn[self.training[order[:count]]] = 1
        return drawn

    def draw_splits(self, number: int, place: int, own: TreesOwn | None) -> Flags:
        """The party's part of :func:`~.noised.draw_splits` for tree ``number``; zeros at the dealer."""
        if own is None:
            return no_splits(self.plan)
        assert self.schedule is not None
        columns = [matrix.shape[1] for matrix in own.candidates.left]
        return draw_splits(self.schedule.derive("splits"), own.secret, number, self.plan, place, columns)


@dataclass(frozen=True, eq=False)
class TreesOwn:
    """What one party brings.

    Attributes:
        candidates: over the shared order.
        bits: uint64[n], 1 where a row is its own.
        targets: uint64[K, n] with 2·:data:`~vfl_node.crypto.shares.ring.FRACTION` fractional bits at the active party, 0 where
            a row is not its own; zeros at others.
        begin: the K scores that all rows begin with, at the active party; zeros at others.
        secret: 32 bytes, of which it draws its splits with an ε, the same in all attempts; else none.
    """

    candidates: Candidates
    bits: Ring
    targets: Ring
    begin: tuple[float, ...]
    secret: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, eq=False)
class Grown:
    """A party's shares of what there is so far: what a checkpoint has.

    Attributes:
        scores: uint64[K, n], modulo 2^:data:`~.plan.PLACE_BITS`.
        gains: uint64[W], how much each candidate has gained, with as many fractional bits as gain and number of a word have.
        trees: so far, K a round in the order of the classes.
    """

    scores: Ring
    gains: Ring
    trees: tuple[Tree, ...] = ()


@dataclass(frozen=True)
class TreesOutcome:
    """What a party has at the end.

    Attributes:
        grown: its shares.
        splits: for each tree and node, level by level, the number of its own candidate that was chosen; −1: none of its own.
            Empty if they are not opened.
        gains: float64[C], how much each of its own columns with candidates has gained in all trees, to a step. Empty likewise.
        leaves: float64[K·trees, 2^depth] at the active party, if they are opened; else empty.
        tallies: empty at a party that is not told.
    """

    grown: Grown
    splits: NDArray[np.int64]
    gains: NDArray[np.float64]
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
    targets = own.targets if own else np.zeros((plan.outputs, plan.rows), np.uint64)
    begin = own.begin if own else (0.0,) * plan.outputs
    scores = Shared(start.scores if start else first_scores(plan.rows, begin), SCORE_FRACTION)
    gains = Shared(start.gains if start else np.zeros(plan.width, np.uint64), plan.gain_fraction + plan.index_bits)
    trees = list(start.trees) if start else [Tree.nothing(plan)] * (first * plan.outputs)  # of which the dealer has no share
    for number in range(first, plan.trees):
        machine.begin(f"tree {number}")
        drawn, moved = training.draw_rows(number), []
        for some in plan.groups:
            pairs = await find_pairs(machine, plan, scores[some], targets[some], counted)
            if drawn is not None:  # in public, so without a message; x gets masks of its own in each tree
                pairs = Shared(pairs.part * drawn, pairs.fraction)
            if plan.deviation is None:
                grown, of_group, more = await grow_trees(machine, plan, cells, pairs, scores[some])
                trees += grown
                gains += more
            else:
                flags = training.draw_splits(number, place, own)
                tree, of_group = await grow_noised_tree(machine, plan, cells, pairs, scores[some], flags)
                trees.append(tree)
            moved.append(of_group)
        scores = Shared(stack_rows(moved).part & np.uint64((1 << PLACE_BITS) - 1), SCORE_FRACTION)
        await after(number, Grown(scores.part, gains.part, tuple(trees)))
    machine.begin("measure")
    tallies: list[OutputTally] = []
    if len(training.testing):
        tallies = await _measure(machine, training, scores, targets, both)
    by_column = await _sum_columns(machine, plan, gains, own) if training.reveals and plan.deviation is None else []
    machine.begin("reveal")
    splits = await _reveal_splits(machine, plan, trees) if training.reveals else np.zeros((0, 0), np.int64)
    gained = await _reveal_gains(machine, plan, by_column, own)
    leaves = await _reveal_leaves(machine, trees) if training.leaves else np.zeros((0, 0))
    return TreesOutcome(Grown(scores.part, gains.part, tuple(trees)), splits, gained, leaves, tuple(tallies))


def first_scores(rows: int, begin: Sequence[float]) -> Ring:
    """What rows begin with, uint64[K, rows], in the active party's share alone."""
    each = [round(score * 2**SCORE_FRACTION) % (1 << PLACE_BITS) for score in begin]
    return np.repeat(np.array(each, np.uint64)[:, None], rows, axis=1)


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
        wide = await widen(machine, scores[:, testing[rows]].transposed, PLACE_BITS)
        return wide.times(1 << shift, shift)

    tallies = await tally(
        machine,
        score,
        _tested_targets(targets[:, testing], numbers=training.metric_noise.numbers),
        both[testing],
        training.metric_noise,
        far_score=Trees.far_scores[0],
        bins=BINS,
        threshold=training.threshold,
        to=to,
    )
    return tallies if to in (None, machine.place) else []


def _tested_targets(targets: Ring, *, numbers: bool) -> Ring:
    """Targets as :func:`~vfl_node.training.shares.measuring.tally` takes them, uint64[t, K]."""
    shift = np.int64(SCORE_FRACTION if numbers else 2 * SCORE_FRACTION)
    return (targets.view(np.int64) >> shift).view(np.uint64).T


async def _reveal_splits(machine: ShareMachine, plan: TreesPlan, trees: Sequence[Tree]) -> NDArray[np.int64]:
    """Each party's own chosen candidates to it, int64[K·trees, 2^depth − 1]."""
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


async def _sum_columns(machine: ShareMachine, plan: TreesPlan, gains: Shared, own: TreesOwn | None) -> list[Shared]:
    """Gains of all columns up to each one, [W] of each party: at the last candidate of a column, and 0 elsewhere.

    Which one that is, the owner alone knows. So what all candidates up to each one have gained is multiplied by its bit. Then
    it is rounded to whole steps: the exact gain of a column with one candidate would tell how many labels are on each side.
    Of fewer rows than some thousands it may still do so.
    """
    machine.begin("gains")
    ends, firsts = own.candidates.ends if own else None, np.cumsum(plan.widths)[:-1]
    known = await machine.run(
        *(mask_known(owner, (width,), 0, ends if machine.place == owner else None) for owner, width in enumerate(plan.widths))
    )
    upward = [Shared(np.cumsum(part, dtype=np.uint64), gains.fraction) for part in np.split(gains.part, firsts)]
    summed = await machine.run(*(known_product(*pair, "numbers") for pair in zip(known, upward, strict=True)))
    every = Shared(np.concatenate([each.part for each in summed]), _bits_of_a_step(plan))
    rounded = await round_off(machine, every, BITS - every.fraction)
    return [Shared(part, 0) for part in np.split(rounded.part, firsts)]


def _bits_of_a_step(plan: TreesPlan) -> int:
    """How many bits of a sum of gains are below a step."""
    return plan.gain_fraction + plan.index_bits + plan.gain_step_bits


async def _reveal_gains(
    machine: ShareMachine, plan: TreesPlan, sums: Sequence[Shared], own: TreesOwn | None
) -> NDArray[np.float64]:
    """How much each of its columns has gained to each party, float64[C], of :func:`_sum_columns`."""
    if not sums:
        return np.zeros(0)
    bits = BITS - _bits_of_a_step(plan)
    opened = await machine.run(*(reveal(total, owner, bits) for owner, total in enumerate(sums)))
    if own is None:
        return np.zeros(0)
    upward = opened[machine.place][own.candidates.ends > 0]
    steps = np.diff(upward, prepend=np.uint64(0)) & np.uint64((1 << bits) - 1)
    return np.asarray(steps * 2.0**plan.gain_step_bits)


async def _reveal_leaves(machine: ShareMachine, trees: Sequence[Tree]) -> NDArray[np.float64]:
    leaves = Shared(np.stack([tree.leaves.part for tree in trees]), SCORE_FRACTION)
    (opened,) = await machine.run(reveal(leaves, 0))
    return decode(opened, SCORE_FRACTION) if machine.place == 0 else np.zeros((0, 0))
