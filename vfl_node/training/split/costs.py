"""How much split training exchanges and takes in memory: counted before it runs, from the job and the number of rows alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.costs import (
    HEAD_BYTES,
    ROWS_AT_ONCE,
    Computing,
    Network,
    Operations,
    OutsideCost,
    Passes,
    TableShape,
    TrainingCost,
    TrainingPlan,
)
from vfl_node.job.unaligned import Sizes
from vfl_node.models import ARCHITECTURES, Architecture, InputSchema, architecture_of, cut_width
from vfl_node.models.settings import LayerOptions
from vfl_node.roles import DataRole
from vfl_node.training.network.costs import DECISION_BYTES, VALUE_BYTES, figures_bytes

if TYPE_CHECKING:
    from vfl_node.job import Evaluate
    from vfl_node.training.split.config import Train

FRAME_BYTES = 74
"""Bytes of a message beside the values of its tensor: about so many at 256 rows of width 128."""

AUDIT_BYTES = 84
"""What the audit of one peer's gradients stores of a row: 73 were measured. That of an only peer is in what a record takes."""

MOST_METERED = 1 << 14
"""Rows from which the active party measures what its gradients tell of labels (:mod:`vfl_node.privacy.labels`), at most."""

PACE = "vfl_node.training.split.pace:MeasuredPace"

HELD_OUT_BYTES = 2
"""For each eight shared rows, where the active party names the last ones: which are held out, and which are for validation."""

KEY_BITS = 3072
"""Bits of the key for ``evaluate.matched``. Strength 128, as the group of the alignment: what the active party stores of the
flags must stay closed for as long."""

BINS = 30
"""Most cells a label of ``evaluate.matched``; each costs 26 ms at the active party and 9 ms at the peer. With a
third as many the bias is seven times as large."""

FEWEST = 5
"""Fewest cells a label: from fewer, metrics say little of the matched rows (with 2 and 400 rows AUC is .04 too low)."""

ROWS_A_BIT = 8
"""For each bit that a party which departs from the protocol can get there are so many held-out rows."""


def cost(train: Train, evaluate: Evaluate, m: int, protocol: str, passive_parties: int = 1) -> TrainingCost:
    """What training over ``m`` shared rows takes, up to a few messages around it.

    The active party sends gradients; each passive one embeddings, those of held-out rows included, and for
    ``evaluate.matched`` an encrypted flag of each of these. With validation also embeddings of the rows set apart and a
    decision in each epoch; then all of this is the most, since training may stop before the last epoch. With
    ``evaluate.hold_out`` also which rows are held out. What ``train.unaligned`` exchanges before the training with
    labels is in both.

    Args:
        train: the job's section.
        evaluate: the job's section.
        m: length of the shared order.
        protocol: name of the alignment; where matched rows cannot be counted ``evaluate.matched`` costs nothing.
        passive_parties: how many there are. They send and wait at once, so that there are as many steps as with one.
    """
    rows, held_out, validation = _parts(evaluate, m)
    tested = held_out or rows
    batches, tests, validations = (-(-count // train.batch_size) for count in (rows, tested, validation))
    row_bytes = 4 * cut_width(train)
    counted = evaluate.matched and ALIGNMENTS[protocol].can_count_matched_rows and bins_of(tested)
    flags = tested * 2 * KEY_BITS // 8 if counted else 0  # a ciphertext each
    epochs = evaluate.repeats * train.epochs
    each_way = epochs * (rows * row_bytes + batches * FRAME_BYTES)
    decisions = epochs if validation else 0
    validating = epochs * (validation * row_bytes + validations * FRAME_BYTES)
    named = HELD_OUT_BYTES * -(-m // 8) if evaluate.hold_out else 0
    before = train.unaligned.epochs_before * evaluate.repeats
    width = train.unaligned.exchanged_width(cut_width(train))
    pretraining = before * (rows * 4 * width + batches * FRAME_BYTES) if width else 0
    once = evaluate.repeats * (tested * row_bytes + tests * FRAME_BYTES)
    return TrainingCost(
        rows=rows,
        batches=batches,
        steps=epochs * batches + decisions + (before * batches if width else 0),
        active_bytes=passive_parties * (each_way + pretraining + decisions * DECISION_BYTES + named),
        passive_bytes=passive_parties * (each_way + pretraining + validating + once + flags),
    )


def unaligned_cost(train: Train, evaluate: Evaluate, m: int, records: Mapping[DataRole, int]) -> OutsideCost | None:
    """What ``train.unaligned`` computes beside the federated batches over ``m`` shared rows; None: it is not used.

    With ``evaluate.hold_out`` this is the most: later rows than the last one trained on are left out.

    Args:
        train: the job's section.
        evaluate: the job's section.
        m: length of the shared order.
        records: of each party that take part.
    """
    if not train.unaligned.used:
        return None
    aligned, *_ = _parts(evaluate, m)
    unshared = {role: max(0, count - m) for role, count in records.items()}
    sizes = Sizes(
        outside=unshared["active"],
        aligned=aligned,
        passive=unshared.get("passive", 0) + aligned,
        epochs=train.epochs,
        batch=train.batch_size,
        own=train.active_bottom[-1],
        received=cut_width(train),
        top=train.top,
        outputs=train.outputs,
    )
    work = tuple(replace(part, rows=part.rows * evaluate.repeats) for part in train.unaligned.work(sizes))
    return OutsideCost(sizes.outside, train.unaligned.epochs_text(train.epochs), work, PACE)


def computing(
    train: Train, evaluate: Evaluate, m: int, protocol: str, records: Mapping[DataRole, int], passive_parties: int
) -> Computing:
    """What the networks compute over ``m`` shared rows; arguments as :meth:`~vfl_node.job.costs.TrainingPlan.computing`.

    The active party trains a network of its own columns, too, over all of its records. Where rows are made up, each party
    attacks what it gets to find them, and a passive one estimates the joint attack.
    """
    rows, held_out, validation = _parts(evaluate, m)
    epochs, own = evaluate.repeats * train.epochs, train.active_bottom[-1]
    joint = Network(True, (own + passive_parties * cut_width(train), *train.top, train.outputs))
    alone, bottom = Network(True, (own, *train.top, train.outputs)), Network(True)
    measured = evaluate.repeats * (held_out or rows) + epochs * validation
    attacked = "passive" in ALIGNMENTS[protocol].synthetic_rows_at
    messages = 2 * epochs * -(-rows // train.batch_size)
    return Computing(
        (
            Passes("active", joint, epochs * rows, train.batch_size),
            Passes("active", alone, epochs * max(m, records.get("active", 0)), train.batch_size),
            Passes("active", joint, measured, ROWS_AT_ONCE, learns=False),
            Passes("passive", bottom, epochs * rows, train.batch_size),
            Passes("passive", bottom, measured, ROWS_AT_ONCE, learns=False),
            Operations("active", "message", messages * passive_parties),
            Operations("active", "meter", passive_parties),
            Operations("active", "metered row", passive_parties * min(rows, MOST_METERED)),
            Operations("active", "attacked epoch", attacked * passive_parties * epochs),
            Operations("passive", "joint attack", attacked),
            Operations("passive", "message", messages),
        ),
        PACE,
    )


def _parts(evaluate: Evaluate, m: int) -> tuple[int, int, int]:
    """How many of ``m`` shared rows are trained on, held out and validated on."""
    held_out = math.ceil(m * evaluate.test_fraction)
    validation = min(math.ceil(m * evaluate.validation_fraction), m - held_out)
    return m - held_out - validation, held_out, validation


def bins_of(rows: int) -> int:
    """How many cells a label may have with so many held-out ``rows``: 5 from 800 on, 30 at most; 0: there are too few rows."""
    bins = min(BINS, rows // (2 * ROWS_A_BIT * max(1, rows.bit_length())))
    return bins if bins >= FEWEST else 0


def parameters(train: Train, role: DataRole, table: TableShape, architecture: Architecture, passive_parties: int = 1) -> int:
    """Weights of this party's networks, the active party's own model and its branch for rows outside included.

    Of the layers alone where no table is known.
    """
    schema = input_schema(table, images=architecture.reads_images())
    bottom = architecture.bottom_weights(schema, _bottom_sizes(train, role), train)
    if role == "passive":
        return bottom
    own, theirs = train.active_bottom[-1], passive_parties * [train.bottom[-1]]
    joint, alone = (architecture.head_weights(widths, train) for widths in ([own, *theirs], [own]))
    return 2 * bottom + joint * (1 + train.unaligned.fills) + alone


def batch_bytes(train: Train, role: DataRole, table: TableShape, passive_parties: int = 1) -> int:
    """Memory of what the networks compute for one batch, and of what is kept of each row beside its columns.

    That is of audits that only a job with several passive parties has, and of embeddings for rows outside of the alignment.
    """
    kind = architecture_of(train.model if train.model in ARCHITECTURES else "mlp")  # an own one is counted as a dense one
    bottom = kind.bottom_values(input_schema(table, images=kind.reads_images()), _bottom_sizes(train, role), train)
    head = LayerOptions.from_job(train).values * sum(train.top) + train.outputs if role == "active" else 0
    crossing = 2 * cut_width(train) * (passive_parties if role == "active" else 1)
    audits = passive_parties if role == "active" and passive_parties > 1 else 0  # one of each peer and one of all, less one
    kept = AUDIT_BYTES * table.rows * audits
    if role == "active":
        kept += train.unaligned.kept_bytes(table.rows, train.active_bottom[-1], cut_width(train))
    return VALUE_BYTES * train.batch_size * (bottom + head + crossing) + kept


def message_bytes(train: Train, evaluate: Evaluate) -> int:
    """The largest message: an embedding of a batch, or the figures that the passive party is told."""
    return max(tensor_bytes(train, train.batch_size), figures_bytes(train, evaluate))


def tensor_bytes(train: Train, rows: int) -> int:
    """A message with an embedding of ``rows`` rows, or with what is predicted from it."""
    width = max(cut_width(train), train.unaligned.exchanged_width(cut_width(train)))
    return max(4 * width, 8 * train.outputs) * rows + HEAD_BYTES


def input_schema(table: TableShape, *, images: bool) -> InputSchema:
    """What a bottom reads of a table, whether it reads ``images`` or takes their pixels for numeric columns."""
    if table.image is None or not images:
        return InputSchema(table.numeric, table.cardinalities, lists=table.lists)
    return InputSchema(table.numeric - math.prod(table.image), table.cardinalities, table.image, lists=table.lists)


def _bottom_sizes(train: Train, role: DataRole) -> Sequence[int]:
    return train.bottom if role == "passive" else train.active_bottom


class SplitPlan(TrainingPlan["Train"]):
    """What split training takes, counted exactly, up to a few messages around it."""

    def steps(self, evaluate: Evaluate, rows: int) -> int:
        """Batches of all epochs and repeats."""
        train, trained = self.train, int(rows * (1 - evaluate.test_fraction - evaluate.validation_fraction))
        epochs = train.unaligned.epochs_before + train.epochs
        return evaluate.repeats * epochs * max(1, trained // train.batch_size)

    @override
    def cost(self, evaluate: Evaluate, rows: int, protocol: str) -> TrainingCost:
        return cost(self.train, evaluate, rows, protocol, self.passive_parties)

    @override
    def computing(self, evaluate: Evaluate, rows: int, protocol: str, records: Mapping[DataRole, int]) -> Computing:
        return computing(self.train, evaluate, rows, protocol, records, self.passive_parties)

    @override
    def cost_outside(self, evaluate: Evaluate, rows: int, records: Mapping[DataRole, int]) -> OutsideCost | None:
        return unaligned_cost(self.train, evaluate, rows, records)

    def parameters(self, role: DataRole, table: TableShape) -> int:
        """Weights of this party's half, the active party's own model included."""
        return parameters(self.train, role, table, architecture_of(self.train.model, self.models), self.passive_parties)

    def batch_bytes(self, role: DataRole, table: TableShape) -> int:
        """Values of every layer for each row of a batch, and their gradients."""
        return batch_bytes(self.train, role, table, self.passive_parties)

    @override
    def sent_sizes(self) -> tuple[int, int, int]:
        width, method = cut_width(self.train), self.train.unaligned
        return self.train.batch_size, width, method.exchanged_width(width) if method.exchanges == "projections" else 0

    def reported_epochs(self, evaluate: Evaluate) -> int:
        """Those of all repeats."""
        return self.train.epochs * evaluate.repeats

    def message_bytes(self, evaluate: Evaluate) -> int:
        """An embedding of a batch, or the figures that the passive party is told."""
        return message_bytes(self.train, evaluate)

    def served_message_bytes(self, rows: int) -> int:
        """An embedding of a batch, or what is predicted from it."""
        return tensor_bytes(self.train, rows)
