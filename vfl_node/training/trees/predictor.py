"""Predictions by trees in shares: between nodes, and in one place for a trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from vfl_node.crypto.shares.bits import unpack_bits
from vfl_node.crypto.shares.ring import Ring, decode
from vfl_node.job import Job
from vfl_node.settings.declared import Declared
from vfl_node.training.predictor import KeptHalf, StoredModel
from vfl_node.training.shares.binned import BinnedColumns
from vfl_node.training.shares.candidates import Candidates
from vfl_node.training.shares.prediction import answers
from vfl_node.training.shares.prediction.predictor import SharesPredictor
from vfl_node.training.trees.kept import KeptTrees, TreesForm
from vfl_node.training.trees.plan import SCORE_FRACTION


class TreesPredictor(SharesPredictor):
    """Predictions between nodes, as a `Predictor`."""

    @override
    def kept(self, model: StoredModel) -> KeptTrees:
        return KeptTrees.from_model(model)

    @override
    def form(self, trained: Job, widths: Sequence[int]) -> TreesForm:
        return TreesForm(trained, widths)

    @override
    def column_kinds(self, encoder: str) -> Mapping[str, Declared]:
        stored = BinnedColumns.from_json(encoder)
        return stored.declare(stored.kinds)


def predict(active: KeptHalf, passives: Sequence[KeptHalf], positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """Predictions in one place, for a trial whose tables have one owner, who so has all shares.

    Args:
        active: its part.
        passives: theirs, in the job's order.
        positions: shared ones, int64[k].

    Returns:
        As :func:`vfl_node.training.shares.prediction.answers.interpret`.
    """
    halves = [active, *passives]
    kept = [KeptTrees.from_model(half.model) for half in halves]
    form, train = kept[0].form, kept[0].form.train
    begin, *chosen, leaves = zip(*(party.shares for party in kept), strict=True)
    goes_left = np.concatenate([_candidates(*pair, positions) for pair in zip(kept, halves, strict=True)], axis=1)
    flags = [np.bitwise_xor.reduce(level) for level in chosen]
    values = decode(_add(leaves), SCORE_FRACTION)
    z = np.repeat(decode(_signed(_add(begin)), SCORE_FRACTION)[None], len(positions), axis=0)
    for number, of_leaves in enumerate(values):
        node = np.zeros(len(positions), np.int64)
        for level, words in enumerate(flags):
            of_nodes = unpack_bits(words[number], (1 << level, goes_left.shape[1])).astype(np.int64)
            left = (goes_left @ of_nodes.T)[np.arange(len(node)), node]
            node = 2 * node + 1 - left
        z[:, number % train.outputs] += of_leaves[node]
    return answers.interpret(answers.round_scores(z, form), train, kept[0].stored.target)


def _add(parts: Sequence[Ring]) -> Ring:
    return np.sum(parts, axis=0, dtype=np.uint64)


def _signed(numbers: Ring) -> Ring:
    """Numbers modulo 2³² as numbers modulo 2⁶⁴."""
    return numbers.astype(np.uint32).view(np.int32).astype(np.int64).view(np.uint64)


def _candidates(kept: KeptTrees, half: KeptHalf, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Whether rows go left under a party's candidates, int64[k, W]; 0 where a row is not its own."""
    rows = half.alignment.rows[positions]
    bins = kept.columns(half.table)[np.maximum(rows, 0)]
    cells = Candidates(bins, kept.encoder.matrices).block(0, len(positions))
    return np.asarray(np.where((rows >= 0)[:, None], cells, 0), np.int64)
