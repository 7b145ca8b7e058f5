"""How much memory a passive party's defences and its audit of columns take beside training, before a job begins.

A peer's job says how wide embeddings are and how many rows a batch has. Decoders and what is kept of embeddings grow with both,
so they are counted like its networks (:mod:`vfl_node.estimate.memory`). All figures are the most, rounded up; of the table only
its shape is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from vfl_node.job.costs import TableShape
from vfl_node.privacy.defences.decoding import DecoderParams
from vfl_node.privacy.defences.specs import NoPeekParams, SplittingParams
from vfl_node.settings.protection import Protection

WEIGHT_BYTES = 32
"""A weight of a decoder, its gradient, two moments, and the copies while a checkpoint is written; of the bottom that a defence
moves the same, with the weights that the task has left instead."""

VALUE_BYTES = 16
"""A value of a decoder's layer for a row, its gradient, and what is under way between two layers."""

DISTANCE_BYTES = 40
"""A pair of rows of a batch in ``nopeek``: 32 were measured."""

METER_ROWS = 4096
"""Rows that the label meter judges at most."""

METER_COPIES = 48
"""Copies of these rows' numbers: gradients and embeddings by step and in order, of the epoch under way and of the one being
judged, means before and after, what attacks compute in float64, and a checkpoint. 25 to 37 were measured at a width of 512."""

LEVELS = 257
"""Outputs of a decoder for one column at most: categories, and a missing one."""


def protection_bytes(protection: Protection, table: TableShape, *, rows: int, width: int, projected: int, weights: int) -> int:
    """What this party's defences and its audit of columns take.

    Args:
        protection: what its settings say.
        table: of this party.
        rows: of a batch.
        width: numbers of an embedding.
        projected: numbers of a projection; 0: none is sent.
        weights: of this party's networks.
    """
    needed = 0
    for params in protection.defences:
        if isinstance(params, DecoderParams):
            sizes = (width, *params.decoder, _outputs(params.names, table))
            needed += WEIGHT_BYTES * _weights(sizes) + VALUE_BYTES * rows * sum(sizes)
        if isinstance(params, SplittingParams):
            needed += WEIGHT_BYTES * weights
        if isinstance(params, NoPeekParams):
            needed += DISTANCE_BYTES * rows**2
    return needed + (_audit_bytes(protection.features.names, table, width, projected) if protection.features else 0)


def label_meter_bytes(width: int, peers: int) -> int:
    """What the active party's attacks on its labels take: gradients, embeddings and means of the rows that are judged.

    Args:
        width: of the cut.
        peers: passive parties, which are one attacker more together.
    """
    attackers = peers if peers == 1 else 2 * peers  # all together are as wide as the others
    return METER_COPIES * 4 * METER_ROWS * width * attackers


def _audit_bytes(columns: Sequence[str], table: TableShape, width: int, projected: int) -> int:
    from vfl_node.privacy.features.attacks import depth  # loads torch, which an estimate of others does without
    from vfl_node.privacy.features.fitting import EARLY, EFFORT
    from vfl_node.privacy.features.rows import MOST

    followed, outputs = min(table.rows, 2 * MOST), _outputs(columns, table)
    beside, projected_beside = depth(width) * width, depth(projected) * projected if projected else 0
    # side by side, standardised, in a checkpoint; their mean, and the newest
    kept = 4 * followed * (4 * (beside + projected_beside) + 4 * (width + projected))
    copies = len(EARLY) + EFFORT.steps // EFFORT.every + 8  # of a decoder's weights: one a look, and while it learns
    embeddings, projections = [beside, width], [projected_beside, projected, projected]
    if projected:
        embeddings.append(beside + projected_beside)
    decoders = max(
        sum(_weights((read, *shape, outputs)) for read in views for shape in EFFORT.shapes)
        for views in (embeddings, projections)
    )
    layers = VALUE_BYTES * followed * (sum(max(EFFORT.shapes, key=sum)) + len(EFFORT.factors) * outputs)
    return kept + EFFORT.folds * (4 * copies * decoders + layers)


def _outputs(columns: Sequence[str], table: TableShape) -> int:
    """Outputs of a decoder of these columns; none: of all."""
    most = table.numeric + sum(min(levels, LEVELS) for levels in table.cardinalities)
    return min(most, LEVELS * len(columns)) if columns else most


def _weights(sizes: Sequence[int]) -> int:
    return sum((before + 1) * after for before, after in pairwise(sizes))
