"""What a party keeps of trees in shares, and how a batch of rows is scored by them: nobody sees a row's way.

::

    cells      each party's candidates of the rows under masks of the batch
    for each level, of many trees at a time:
        which way each row goes at each node; z of the children          as in training (tree.py)
    score      of each class the sum of the leaves where the rows end, and what all rows begin with
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from vfl_node.crypto.shares.bits import Bits
from vfl_node.crypto.shares.cells import mask_cells
from vfl_node.crypto.shares.kits import DEALT, Kit
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.ring import Ring
from vfl_node.crypto.shares.sizes import words_of
from vfl_node.crypto.shares.steps import widen
from vfl_node.crypto.shares.values import Shared
from vfl_node.data.tables import Table
from vfl_node.job import Job
from vfl_node.training.predictor import StoredModel
from vfl_node.training.shares.binned import BinnedColumns
from vfl_node.training.shares.candidates import Candidates
from vfl_node.training.shares.kept import AnswerForm, KeptModel, StoredShares, read_shares, read_stored
from vfl_node.training.trees import memory
from vfl_node.training.trees.config import Trees
from vfl_node.training.trees.plan import PLACE_BITS, SCORE_FRACTION
from vfl_node.training.trees.tree import Tree, follow_trees


class TreesForm(AnswerForm):
    """Trees in shares that answer.

    Args:
        job: that trained them.
        widths: candidates of each party.
        left: as of :class:`~.candidates.Candidates`, at the party whose candidates they are.
    """

    follows_columns = True

    def __init__(self, job: Job, widths: Sequence[int], left: Sequence[NDArray[np.bool_]] = ()) -> None:
        self.train, self.widths, self._left = Trees.section_of(job), tuple(widths), left
        self.outputs, self.numbers = self.train.outputs, self.train.task == "regression"

    @property
    @override
    def shapes(self) -> Sequence[tuple[int, ...]]:
        train, width = self.train, sum(self.widths)
        return shapes_of(train.outputs, train.trees, train.depth, width)

    @override
    async def score(self, machine: ShareMachine, shares: Sequence[Ring], rows: int, own: Any, kit: Kit = DEALT) -> Shared:
        candidates = Candidates(own, self._left) if own is not None else None
        cells = [
            await mask_cells(machine, owner, rows, width, candidates if machine.place == owner else None)
            for owner, width in enumerate(self.widths)
        ]
        begin, trees = join_shares(shares, self.train.depth)
        total = np.repeat(begin[None], rows, axis=0)
        at_once = memory.trees_at_once(self.train, rows)
        for first in range(0, len(trees), at_once):
            found = await follow_trees(machine, cells, trees[first : first + at_once])
            for number, leaves in enumerate(found, first):
                total[:, number % self.outputs] += leaves.part
        return await widen(machine, Shared(total & np.uint64((1 << PLACE_BITS) - 1), SCORE_FRACTION), PLACE_BITS)

    @override
    def memory(self, rows: int) -> int:
        return memory.answer_bytes(self.train, rows, self.widths)


@dataclass(frozen=True, eq=False)
class KeptTrees(KeptModel):
    """One party's shares of trees, read back."""

    form: TreesForm
    shares: tuple[Ring, ...] = field(repr=False)
    encoder: BinnedColumns
    stored: StoredShares = field(repr=False)

    @classmethod
    def from_model(cls, model: StoredModel) -> KeptTrees:
        """What a party has stored. Raises as :meth:`vfl_node.training.shares.prediction.predictor.SharesPredictor.kept`."""
        encoder, regression = BinnedColumns.from_json(model.encoder), Trees.section_of(model.job).task == "regression"
        left = encoder.matrices
        stored = read_stored(model, width=sum(each.shape[1] for each in left), intercept=0, regression=regression)
        form = TreesForm(model.job, stored.widths, left)
        kept = cls(form, read_shares(model, form.shapes), encoder, stored)
        kept.check_commitment()
        return kept

    @override
    def columns(self, table: Table) -> NDArray[np.uint16]:
        """Bins uint16[n, C]. Raises DataError: the table lacks a column (``E_COLUMN``)."""
        return self.encoder.bins(table)


def shapes_of(outputs: int, rounds: int, depth: int, width: int) -> tuple[tuple[int, ...], ...]:
    """The shapes of a party's shares: the scores to begin with, flags level by level, and leaves."""
    trees = rounds * outputs
    return ((outputs,), *((trees, words_of((1 << level) * width)) for level in range(depth)), (trees, 1 << depth))


def list_shares(begin: Ring, trees: Sequence[Tree]) -> tuple[Ring, ...]:
    """A party's shares as they are stored."""
    levels = range(len(trees[0].chosen))
    chosen = [np.stack([tree.chosen[level].part for tree in trees]) for level in levels]
    return (begin, *chosen, np.stack([tree.leaves.part for tree in trees]))


def join_shares(shares: Sequence[Ring], depth: int) -> tuple[Ring, list[Tree]]:
    """What :func:`list_shares` has made."""
    begin, *chosen, leaves = shares
    assert len(chosen) == depth
    return begin, [
        Tree(tuple(Bits(level[number]) for level in chosen), Shared(each, SCORE_FRACTION)) for number, each in enumerate(leaves)
    ]
