"""How much memory a job takes of a node, and how large its models and how many its steps are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from vfl_node.data.tables import NumericColumn, Table
from vfl_node.errors import PolicyError
from vfl_node.job import Job, Logistic, Train
from vfl_node.models import ARCHITECTURES, InputSchema, cut_width
from vfl_node.models.settings import LayerOptions
from vfl_node.settings import Limits, Role
from vfl_node.transport.bounds import MAX_FRAME_BYTES
from vfl_node.transport.streams import PIECE_BYTES, QUEUE_BYTES

PARAMETER_BYTES = 64
"""A weight with its gradient, the optimiser's two moments, and the copies while a checkpoint is written: 56 were measured."""

VALUE_BYTES = 16
"""A value of a layer for a row of a batch, its gradient, and what is under way between two layers."""

ROW_BYTES = 512
"""A record of this party: its identifier and place in the lists, and what training keeps for each."""

CELL_BYTES = 24
"""A cell of this party's table, as it is read and as it is encoded."""

FIGURES_BYTES = 96
"""What the passive party may be told of an epoch."""

EPOCH_BYTES = 2048
"""Figures of an epoch, until the report is written."""

FRAME_COPIES = 4
"""Of the largest message, while one is received."""

HEAD_BYTES = 4 << 10
"""More than a frame has beside the values of its tensor."""


@dataclass(frozen=True)
class Shape:
    """A party's table, as far as it is known.

    Attributes:
        rows: records.
        numeric: numeric columns as they are encoded: the values, and whether there is one.
        cardinalities: codes of each categorical column.
    """

    rows: int = 0
    numeric: int = 0
    cardinalities: tuple[int, ...] = ()

    @classmethod
    def of(cls, table: Table | None) -> Shape:
        """Of a table that has been read; nothing is known of none."""
        if table is None:
            return cls()
        numeric = sum(isinstance(column, NumericColumn) for column in table.columns.values())
        levels = (len(column.levels) + 1 for column in table.columns.values() if not isinstance(column, NumericColumn))
        return cls(len(table), 2 * numeric, tuple(levels))


@dataclass(frozen=True)
class Need:
    """Bytes that a job takes of this node, beside what the node takes with nothing to do.

    Attributes:
        model: weights, and all that goes with them.
        batch: what the networks compute for one batch.
        rows: the party's own records.
        figures: of the epochs.
        messages: what waits to be sent and to be read, of every conversation.
    """

    model: int
    batch: int
    rows: int
    figures: int
    messages: int

    @property
    def bytes(self) -> int:
        """In all."""
        return sum(getattr(self, field.name) for field in fields(self))

    def __str__(self) -> str:
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return ", ".join(f"{name} {mebibytes(count)}" for name, count in named.items() if count >= 1 << 20)


def need(job: Job, role: Role, table: Shape, model: Job | None = None) -> Need:
    """What ``job`` takes of the party in ``role`` with this table; ``model``: the job that trained what it predicts with."""
    train = job.train if role != "coordinator" else None
    columns = table.numeric + len(table.cardinalities)
    conversations = len(job.parties.all) - 1
    batch = figures = 0
    if isinstance(train, Train):
        units = sum(_bottom_sizes(train, role)) + (sum(train.top) if role == "active" else 0)
        values = LayerOptions.of(train).values * units + (train.outputs if role == "active" else 0)
        width = table.numeric + train.embedding_size * len(table.cardinalities)
        batch = VALUE_BYTES * train.batch_size * (width + values + 2 * cut_width(train))
        figures = EPOCH_BYTES * train.epochs * job.evaluate.repeats
    elif isinstance(train, Logistic):
        rows = table.rows if train.batch_size is None else min(train.batch_size, table.rows)
        batch = 4 * rows * (1 + train.outputs) * train.key_bits // 4  # ciphertexts of 2·key_bits
        figures = EPOCH_BYTES * train.iterations
    return Need(
        model=PARAMETER_BYTES * parameters(model or job, role, table),
        batch=batch,
        rows=table.rows * (ROW_BYTES + CELL_BYTES * columns),
        figures=figures,
        messages=conversations * (2 * QUEUE_BYTES + 2 * PIECE_BYTES + FRAME_COPIES * frame_bytes(job, model)),
    )


def parameters(job: Job, role: Role, table: Shape) -> int:
    """Weights of this party's networks, the active party's own model included; of the layers alone where no table is known."""
    train = job.train
    if role == "coordinator" or not isinstance(train, Train):
        return 0
    architecture, schema = ARCHITECTURES[train.model], InputSchema(table.numeric, table.cardinalities)
    bottom = architecture.bottom_weights(schema, _bottom_sizes(train, role), train)
    if role == "passive":
        return bottom
    own, theirs = train.active_bottom[-1], train.bottom[-1]
    joint, alone = (architecture.head_weights(widths, train) for widths in ([own, theirs], [own]))
    return 2 * bottom + joint + alone


def steps(job: Job, rows: int) -> int:
    """The fewest batches that training takes if at least ``rows`` rows are shared."""
    if isinstance(job.train, Train):
        trained = int(rows * (1 - job.evaluate.test_fraction))
        return job.evaluate.repeats * job.train.epochs * max(1, trained // job.train.batch_size)
    return job.train.iterations if isinstance(job.train, Logistic) else 0


def frame_bytes(job: Job, model: Job | None = None) -> int:
    """The largest message of the job's conversations: no larger one is received. ``model``: as for :func:`need`."""
    train, largest = job.train, 2 * PIECE_BYTES
    if isinstance(train, Train):
        largest = max(largest, _row_bytes(train) * train.batch_size + HEAD_BYTES)
        if job.evaluate.share_with_passive:
            largest = max(largest, FIGURES_BYTES * train.epochs * job.evaluate.repeats + HEAD_BYTES)
    elif isinstance(train, Logistic):
        rows = MAX_FRAME_BYTES if train.batch_size is None else train.batch_size
        largest = max(largest, 8 * train.outputs * rows + HEAD_BYTES)
    elif model and model.serve and isinstance(model.train, Train):
        largest = max(largest, _row_bytes(model.train) * model.serve.batch_size + HEAD_BYTES)
    return min(MAX_FRAME_BYTES, largest)


def _row_bytes(train: Train) -> int:
    """Of an embedding, or of what is predicted from it."""
    return max(4 * cut_width(train), 8 * train.outputs)


def check_limits(job: Job, role: Role, limits: Limits, table: Shape | None = None) -> None:
    """Refuse a job that is larger than this node's owner allows, as far as it tells without a table.

    Raises:
        PolicyError: it has more weights or more steps (``E_POLICY``).
    """
    table = table or Shape()
    _at_most(parameters(job, role, table), limits.max_model_parameters, "weights of a model", "max_model_parameters")
    fewest, _ = job.align.spec.lengths_of_one(table.rows, None) or (0, None)
    check_steps(job, fewest, limits)


def check_steps(job: Job, rows: int, limits: Limits) -> None:
    """Refuse a job that would train for longer than this owner allows over ``rows`` shared rows, or more (``E_POLICY``)."""
    _at_most(steps(job, rows), limits.max_steps, "training steps", "max_steps")


def _bottom_sizes(train: Train, role: Role) -> Sequence[int]:
    return train.bottom if role == "passive" else train.active_bottom


def _at_most(count: int, most: int, what: str, limit: str) -> None:
    if count > most:
        raise PolicyError(
            f"the job has {count:,} {what} at this node, and its limit is {most:,}",
            hint=f"see limits.{limit}",
            for_peer=f"the job has more {what} than its settings allow (limits.{limit})",
        )


def mebibytes(count: float) -> str:
    """A number of bytes for people."""
    return f"{count / 2**20:,.0f} MiB"
