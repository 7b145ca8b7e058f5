"""How much training over candidates exchanges and takes in memory: counted before it runs, from the job and numbers of rows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.costs import HEAD_BYTES, Beside, TableShape, TrainingCost, TrainingPlan
from vfl_node.models import InputSchema, architecture_of
from vfl_node.models.counts import dense_values, hidden_weights, linear_weights
from vfl_node.models.settings import LayerOptions
from vfl_node.roles import DataRole
from vfl_node.training.network.costs import DECISION_BYTES, VALUE_BYTES, figures_bytes

if TYPE_CHECKING:
    from vfl_node.job import Evaluate
    from vfl_node.training.candidates.config import Linked

EMBEDDINGS_BYTES = 100
"""Bytes of a message with embeddings beside their values and places: about so many."""

GRADIENT_BYTES = 74
"""Bytes of a message with gradients beside their values: about so many."""


def cost(train: Linked, evaluate: Evaluate, m: int, beside: Beside) -> TrainingCost:
    """What training over ``m`` rows takes at most, up to a few messages around it.

    The passive party sends an embedding of each distinct candidate of a batch, and 4 bytes for each of a row's K places; the
    active one sends a gradient of each. The fewer candidates there are, the more places of a batch have the same: it is less.
    """
    held_out = math.ceil(m * evaluate.test_fraction)
    validation = min(math.ceil(m * evaluate.validation_fraction), m - held_out)
    rows = m - held_out - validation
    epochs = evaluate.repeats * train.epochs
    back = epochs * (4 * train.bottom[-1] * _count_distinct(train, rows, beside) + _batches(train, rows) * GRADIENT_BYTES)
    passes = ((epochs, rows), (epochs, validation), (evaluate.repeats, held_out or rows))
    decisions = epochs if validation else 0
    return TrainingCost(
        rows=rows,
        batches=_batches(train, rows),
        steps=epochs * _batches(train, rows) + decisions,
        active_bytes=back + decisions * DECISION_BYTES,
        passive_bytes=sum(times * _forward_bytes(train, count, beside) for times, count in passes),
    )


def parameters(train: Linked, role: DataRole, table: TableShape, beside: Beside) -> int:
    """Weights of this party's networks, the active party's own model included; of the layers alone where no table is known."""
    architecture, options = architecture_of(train.model), LayerOptions.from_job(train)
    schema = InputSchema(table.numeric, table.cardinalities, lists=table.lists)
    if role == "passive":
        return architecture.bottom_weights(schema, train.bottom, train)
    alone = architecture.bottom_weights(schema, train.active_bottom, train)
    read = replace(schema, numeric=schema.numeric + 1) if train.how.each else schema
    bottom = architecture.bottom_weights(read, train.active_bottom, train)
    cuts, width = train.active_bottom[-1] + train.bottom[-1], _pair_width(train)
    local = hidden_weights(cuts, train.top, options) + linear_weights((cuts, *train.top)[-1], width)
    gate = linear_weights(1, train.similarity_hidden) + linear_weights(train.similarity_hidden, 1) if train.how.gates else 0
    merge = 0
    if flat := _convolution_outputs(train, beside):
        dense = hidden_weights(flat, train.merge_hidden, options) + linear_weights(
            (flat, *train.merge_hidden)[-1], train.outputs
        )
        merge = linear_weights(train.kernel, train.channels) + dense
    return bottom + local + gate + merge + alone + architecture.head_weights([train.active_bottom[-1]], train)


def batch_bytes(train: Linked, role: DataRole, table: TableShape, beside: Beside) -> int:
    """Memory of what the networks compute for one batch; each of its pairs is one row of the local network."""
    schema = InputSchema(table.numeric, table.cardinalities, lists=table.lists)
    pairs = train.batch_size * beside.candidates
    if role == "passive":
        return VALUE_BYTES * min(pairs, table.rows + 1) * dense_values(schema, train.bottom, train)
    own = dense_values(schema, train.active_bottom, train) * (pairs if train.how.each else train.batch_size)
    values, width, flat = LayerOptions.from_job(train).values, _pair_width(train), _convolution_outputs(train, beside)
    local = values * sum(train.top) + 2 * (train.bottom[-1] + train.active_bottom[-1]) + width
    weighted = train.similarity_hidden + width if train.how.gates else 0
    merged = values * (flat + sum(train.merge_hidden)) if flat else 0
    return VALUE_BYTES * (own + pairs * (local + weighted) + train.batch_size * merged)


def message_bytes(train: Linked, evaluate: Evaluate, beside: Beside) -> int:
    """The largest message: embeddings of a batch, or the figures that the passive party is told."""
    embeddings = train.batch_size * row_bytes(train, beside.candidates) + HEAD_BYTES
    return max(embeddings, figures_bytes(train, evaluate))


def row_bytes(train: Linked, candidates: int) -> int:
    """Most bytes of a row in a message: an embedding for each candidate, and its place."""
    return candidates * 4 * (train.bottom[-1] + 1)


def _pair_width(train: Linked) -> int:
    """Numbers that the local network gives of each pair."""
    return train.pair_outputs if train.how.gates and train.sorts else train.outputs


def _convolution_outputs(train: Linked, beside: Beside) -> int:
    """Numbers that the convolution gives of a row, of which there are many with a large kernel; 0 without one."""
    if not (train.how.gates and train.sorts):
        return 0
    return train.channels * (beside.candidates + train.kernel - 1) * _pair_width(train)


def _forward_bytes(train: Linked, rows: int, beside: Beside) -> int:
    """Bytes of the messages with embeddings of so many rows, once."""
    embeddings, places = 4 * train.bottom[-1] * _count_distinct(train, rows, beside), 4 * beside.candidates * rows
    return embeddings + places + _batches(train, rows) * EMBEDDINGS_BYTES


def _count_distinct(train: Linked, rows: int, beside: Beside) -> int:
    """The most distinct candidates of all batches of so many rows."""
    whole, rest = divmod(rows, train.batch_size)
    return whole * _count_distinct_of_batch(train.batch_size, beside) + _count_distinct_of_batch(rest, beside)


def _count_distinct_of_batch(rows: int, beside: Beside) -> int:
    places = rows * beside.candidates
    return places if beside.among is None else min(places, beside.among + 1)  # the mean record is one more


def _batches(train: Linked, rows: int) -> int:
    return -(-rows // train.batch_size)


class LinkedPlan(TrainingPlan["Linked"]):
    """What training over candidates takes."""

    def steps(self, evaluate: Evaluate, rows: int) -> int:
        """Batches of all epochs and repeats."""
        trained = int(rows * (1 - evaluate.test_fraction - evaluate.validation_fraction))
        return evaluate.repeats * self.train.epochs * max(1, trained // self.train.batch_size)

    def cost(self, evaluate: Evaluate, rows: int, protocol: str) -> TrainingCost | None:
        """The most: as if each place of a batch had another candidate, where there are enough of them."""
        return cost(self.train, evaluate, rows, self.beside) if ALIGNMENTS[protocol].by_similarity else None

    def parameters(self, role: DataRole, table: TableShape) -> int:
        """Weights of this party's half, the active party's own model included."""
        return parameters(self.train, role, table, self.beside)

    def batch_bytes(self, role: DataRole, table: TableShape) -> int:
        """Values of every layer for each pair of a batch, and their gradients."""
        return batch_bytes(self.train, role, table, self.beside)

    def reported_epochs(self, evaluate: Evaluate) -> int:
        """Those of all repeats."""
        return self.train.epochs * evaluate.repeats

    def message_bytes(self, evaluate: Evaluate) -> int:
        """The embeddings of a batch, or the figures that the passive party is told."""
        return message_bytes(self.train, evaluate, self.beside)
