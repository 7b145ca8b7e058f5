"""Trees in shares, step by step, by what all shares add up to: each step is right for what the one before it has made."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.crypto.shares.together import Run, check_cost, spread, total, total_bits
from tests.training.trees.plain import cap, derivatives, gains, step
from vfl_node.crypto.shares.bits import unpack_bits
from vfl_node.crypto.shares.cells import mask_cells
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operations import mask_value
from vfl_node.crypto.shares.ring import FRACTION
from vfl_node.crypto.shares.values import Shared
from vfl_node.training.shares.candidates import Candidates
from vfl_node.training.trees import tree as tree_module
from vfl_node.training.trees.gradients import find_pairs
from vfl_node.training.trees.plan import PLACE_BITS, SCORE_FRACTION, TreesPlan
from vfl_node.training.trees.tree import grow_trees

ROWS, BINS, TREES, DEPTH = 900, (5, 4, 3), 2, 3
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Case:
    """Parties, data and settings; all have the same shapes for one number of parties."""

    parties: int = 2
    loss: Any = "log"
    shared: str = "half"
    labels: str = "learnable"
    settings: dict[str, Any] = field(default_factory=dict)
    bins: tuple[int, ...] = BINS
    seed: int = 0

    @property
    def plan(self) -> TreesPlan:
        plan = TreesPlan(ROWS, tuple(of.width for of in self.candidates), TREES, DEPTH, 0.3, 1.0, 0.01, 8, self.loss)
        return replace(plan, **self.settings)

    @property
    def candidates(self) -> list[Candidates]:
        """Three columns of each party, in bins."""
        rng, found = np.random.default_rng(self.seed), []
        for _ in range(self.parties):
            bins = np.stack([rng.integers(0, count, ROWS) for count in self.bins], axis=1).astype(np.uint16)
            found.append(Candidates(bins, [np.arange(count)[:, None] <= np.arange(count - 1) for count in self.bins]))
        return found

    @property
    def cells(self) -> NDArray[np.bool_]:
        return np.concatenate([of.block(0, ROWS) for of in self.candidates], axis=1).astype(bool)

    @property
    def counted(self) -> Ints:
        """w."""
        rows = np.arange(ROWS)
        return {"half": rows % 2, "none": 0 * rows, "five": rows < 5, "all": 0 * rows + 1}[self.shared].astype(np.int64)

    @property
    def targets(self) -> NDArray[np.float64]:
        """y of each output, [K, n]."""
        rng, cells = np.random.default_rng(self.seed + 50), self.cells
        score = (
            cells[:, 1] * 2.0 - 1.5 * cells[:, -2] + cells[:, -3 % len(cells.T)] * cells[:, 0] + rng.logistic(size=ROWS) * 0.7
        )
        if self.labels == "same":
            return np.ones((1, ROWS))
        if self.plan.outputs > 1:
            ranks = score.argsort().argsort() * self.plan.outputs // ROWS
            return (ranks == np.arange(self.plan.outputs)[:, None]).astype(float)
        return ((score > 0.3).astype(float) if self.loss == "log" else np.round(score - score.mean(), 3))[None]


@dataclass(frozen=True, eq=False)
class Level:
    """What one party has of a level."""

    gradients: Any
    hessians: Any
    words: Any
    every: Any


@dataclass(frozen=True, eq=False)
class Grown:
    """What one party has of one tree."""

    pairs: Any
    before: Any
    after: Any
    chosen: Any
    leaves: Any
    gained: Any


class Grower:
    """All trees, run by all, with all shares kept."""

    def __init__(self, case: Case) -> None:
        self.case, self.plan = case, case.plan
        self.levels: dict[int, list[Level]] = defaultdict(list)
        choose = tree_module.choose_splits

        async def noted(machine: ShareMachine, plan: Any, sums: Any, base: Any) -> Any:
            splits = await choose(machine, plan, sums, base)
            if machine.place >= 0:
                level = Level(sums.gradients.part, sums.hessians.part, splits.words.part, splits.every.part)
                self.levels[machine.place].append(level)
            return splits

        with mock.patch.object(tree_module, "choose_splits", noted):
            self.run = Run(self.program, case.parties)

    async def program(self, machine: ShareMachine) -> list[Grown]:
        case, plan = self.case, self.plan
        targets = np.round(case.targets * 2.0 ** (2 * FRACTION)).astype(np.int64).view(np.uint64)
        machine.begin("cells")
        own = dict(enumerate(case.candidates))
        cells = [
            await mask_cells(machine, place, ROWS, width, own[place] if machine.place == place else None)
            for place, width in enumerate(plan.widths)
        ]
        (counted,) = await machine.run(mask_value(spread(machine, case.counted)))
        scores, grown = [Shared(np.zeros((plan.outputs, ROWS), np.uint64), SCORE_FRACTION)] * len(plan.groups), []
        for number in range(plan.trees):
            machine.begin(f"tree {number}")
            for group, some in enumerate(plan.groups):
                before = scores[group][some] if number == 0 else scores[group]
                own = targets[some] if machine.place == 0 else 0 * targets[some]
                pairs = await find_pairs(machine, plan, before, own, counted)
                trees, after, gained = await grow_trees(machine, plan, cells, pairs, before)
                after = Shared(after.part & np.uint64((1 << PLACE_BITS) - 1), SCORE_FRACTION)
                scores[group] = after
                for k, tree in enumerate(trees):
                    chosen = [of.part for of in tree.chosen]
                    grown.append(Grown(pairs.part[k], before.part[k], after.part[k], chosen, tree.leaves.part, gained.part))
        return grown

    def sum(self, number: int, name: str) -> Ints:
        return total(getattr(of[number], name) for of in self.run.results)

    def level(self, number: int, level: int, name: str) -> Ints:
        of_round, output = divmod(number, self.plan.outputs)
        group, place = divmod(output, self.plan.at_once)
        grown = (of_round * len(self.plan.groups) + group) * DEPTH + level
        return total(getattr(of[grown], name) for of in self.levels.values())[place << level : (place + 1) << level]

    def scores(self, number: int, name: str) -> Ints:
        """Before or after a tree, as integers of so many bits as scores have."""
        high = 64 - PLACE_BITS
        return self.sum(number, name) << high >> high

    def picks(self, number: int, level: int) -> Ints:
        """The candidate of each node by the bits that are kept; W: none."""
        words = total_bits(of[number].chosen[level] for of in self.run.results)
        bits = unpack_bits(words, (1 << level, self.plan.width))
        assert bits.sum(axis=1).max() <= 1
        return np.where(bits.any(axis=1), bits.argmax(axis=1), self.plan.width)


@cache
def grown(
    parties: int, loss: str, shared: str = "half", labels: str = "learnable", bins: tuple[int, ...] = BINS, **settings: Any
) -> Grower:
    return Grower(Case(parties, loss, shared, labels, settings, bins))


def trees_of(of: Grower) -> range:
    """All trees, of all outputs."""
    return range(TREES * of.plan.outputs)


def split(pairs: Ints) -> tuple[Ints, Ints]:
    """g and h of each row, as integers."""
    low = (pairs + (1 << 20) & 0xFFFFFFFF) - (1 << 20)
    return pairs - low >> 32, low


CASES: list[tuple[int, str, dict[str, Any]]] = [
    (2, "log", {}),
    (3, "log", {}),
    (4, "log", {}),
    (2, "squares", {}),
    (3, "squares", {}),
    (2, "log", {"shared": "all"}),
    (2, "log", {"shared": "none"}),
    (2, "log", {"shared": "five"}),
    (2, "log", {"labels": "same"}),
    (2, "log", {"min_gain": 1e4}),
    (2, "log", {"l2": 0.0}),
    (2, "squares", {"shared": "none", "l2": 0.0}),
    (2, "log", {"least_rows": 1}),
    (2, "squares", {"bins": (2,)}),  # two candidates and no split: three words
    (2, "log", {"bins": (3,)}),
    (2, "log", {"outputs": 3, "at_once": 3}),
    (3, "log", {"outputs": 3, "at_once": 2}),
]
cases = pytest.mark.parametrize(("parties", "loss", "rest"), CASES, ids=str)


@cases
def test_gradients_are_those_of_the_rows_that_count(parties: int, loss: str, rest: dict[str, Any]) -> None:
    of = grown(parties, loss, **rest)
    case, plan = of.case, of.plan
    for number in trees_of(of):
        g, h = split(of.sum(number, "pairs"))
        targets = case.targets[number % plan.outputs]
        true_g, true_h = derivatives(plan, of.scores(number, "before") / 2.0**SCORE_FRACTION, targets)
        assert np.abs(g / 2.0**plan.gradient_fraction - true_g * case.counted).max() < 3.5e-4
        assert np.abs(h / 2.0**plan.hessian_fraction - true_h * case.counted).max() < 4.5e-4


@cases
def test_every_node_splits_by_its_best_candidate_and_rows_go_where_that_says(
    parties: int, loss: str, rest: dict[str, Any]
) -> None:
    """Sums and ways are exact; gains are to 3 units of their 8 bits, so the winner's is the best but for 2⁻⁷ and these."""
    of = grown(parties, loss, **rest)
    plan, cells = of.plan, of.case.cells
    mask = (1 << plan.index_bits) - 1
    gained = np.zeros((TREES * plan.outputs, plan.width + 1), np.int64)
    for number in trees_of(of):
        g, h = split(of.sum(number, "pairs"))
        nodes = np.zeros(ROWS, np.int64)
        for level in range(DEPTH):
            count = 1 << level
            every = np.column_stack([cells, np.ones(ROWS, np.bool_)]).astype(np.int64)
            for name, of_rows in (("gradients", g), ("hessians", h)):
                expected = [(of_rows * (nodes == node)) @ every for node in range(count)]
                np.testing.assert_array_equal(of.level(number, level, name), expected)
            words, winners = of.level(number, level, "every"), of.level(number, level, "words")
            np.testing.assert_array_equal(winners, words.max(axis=1))
            picks = of.picks(number, level)
            np.testing.assert_array_equal(picks, winners & mask)
            np.add.at(gained[number], picks, winners - picks)
            np.testing.assert_array_equal(words & mask, np.broadcast_to(np.arange(plan.width + 1), words.shape))
            for node in range(count):
                inside = nodes == node
                true_g, true_h = g[inside] / 2.0**plan.gradient_fraction, h[inside] / 2.0**plan.hessian_fraction
                true = gains(plan, cells[inside], true_g, true_h)
                said = (words[node] >> plan.index_bits) / 2.0**plan.gain_fraction
                sure = true >= 0
                assert np.abs(said - true)[sure].max() <= 3 / 256 + 1e-4 * np.abs(true).max()
                assert true[picks[node]] >= true.max() - 2**-7 - 3 / 256
            nodes = step(nodes, picks.tolist(), cells)
        group = next(some for some in plan.groups if number % plan.outputs < some.stop)
        if (number + 1) % plan.outputs == group.stop % plan.outputs:  # those before it have grown beside it
            beside = slice(number + 1 - (group.stop - group.start), number + 1)
            np.testing.assert_array_equal(of.sum(number, "gained"), gained[beside, :-1].sum(axis=0))
        leaves = of.sum(number, "leaves")
        moved = of.scores(number, "after") - of.scores(number, "before")
        np.testing.assert_array_equal(moved, leaves[nodes])
        all_g = np.bincount(nodes, g, 2**DEPTH) / 2.0**plan.gradient_fraction
        all_h = np.bincount(nodes, h, 2**DEPTH) / 2.0**plan.hessian_fraction
        true_leaves, found = cap(plan, -plan.rate * all_g / (all_h + plan.l2 + 1e-9)), leaves / 2.0**SCORE_FRACTION
        enough = all_h >= plan.least_hessian
        assert (np.abs(found - true_leaves)[enough] < 2e-3 * (np.abs(true_leaves[enough]) + 0.01)).all()
        assert (np.abs(found) < 10).all()


def test_where_there_is_nothing_to_split_nothing_is_split() -> None:
    """And in all other cases something is: the dummy is chosen in some nodes of each kind."""
    for rest in ({"shared": "none"}, {"shared": "five"}, {"min_gain": 1e4}):
        of = grown(2, "log", **rest)
        assert all((of.picks(number, level) == of.plan.width).all() for number in range(TREES) for level in range(DEPTH))
    of = grown(2, "log")
    assert any((of.picks(number, level) < of.plan.width).all() for number in range(TREES) for level in range(DEPTH))


def test_bytes_and_rounds_are_the_same_whatever_the_data_are_and_as_many_as_are_counted() -> None:
    """For the same public settings; another number of candidates is the control."""
    alike = [grown(2, "log", **rest) for parties, loss, rest in CASES if (parties, loss) == (2, "log")]
    alike = [of for of in alike if {"l2", "least_rows", "outputs"}.isdisjoint(of.case.settings) and of.case.bins == BINS]
    assert len(alike) > 4
    costs = {(of.run.table.rounds, *of.run.table.sent.values(), *of.run.queues.bytes.values()) for of in alike}
    assert len(costs) == 1
    for parties, loss, rest in CASES:
        of = grown(parties, loss, **rest)
        check_cost(of.run, of.program, parties)
    assert grown(3, "log").run.table.sent != grown(2, "log").run.table.sent
