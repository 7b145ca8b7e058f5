"""How much memory a job takes of a node, and how large its models and how many its steps are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from vfl_node.alignment import costs
from vfl_node.alignment.plan import plan_of
from vfl_node.data.dates import parts_of
from vfl_node.data.tables import CategoricalColumn, ListColumn, NumericColumn, Table
from vfl_node.errors import PolicyError
from vfl_node.estimate.linkage import PLACE_BYTES
from vfl_node.job import Job
from vfl_node.job.costs import TableShape, TrainingPlan
from vfl_node.models import NONE_DECLARED
from vfl_node.privacy.memory import label_meter_bytes, protection_bytes
from vfl_node.roles import Role
from vfl_node.settings.limits import Limits
from vfl_node.settings.node import role_in
from vfl_node.settings.protection import Protection
from vfl_node.settings.refusals import tell_why
from vfl_node.transport.bounds import MAX_FRAME_BYTES
from vfl_node.transport.frames import PIECE_BYTES
from vfl_node.transport.streams import QUEUE_BYTES

PARAMETER_BYTES = 64
"""A weight with its gradient, the optimiser's two moments, and the copies while a checkpoint is written: 56 were measured."""

ROW_BYTES = 512
"""A record of this party in a job that trains or predicts: its identifier and place, and what is kept for each."""

CELL_BYTES = 24
"""A cell of this party's table, as it is read and as it is encoded."""

EPOCH_BYTES = 2048
"""Figures of an epoch, until the report is written."""

FRAME_COPIES = 4
"""Copies of the largest message, while one is received."""

UNPROTECTED = Protection()


def shape_of(table: Table | None) -> TableShape:
    """The shape of a table that has been read; nothing is known of none."""
    if table is None:
        return TableShape()
    read = [part for column in table.columns.values() for _, part in parts_of(column)]
    numeric = sum(isinstance(column, NumericColumn) for column in read)
    levels = (
        len(column.levels) + 1 + bool((column.codes < 0).any()) for column in read if isinstance(column, CategoricalColumn)
    )
    pixels = len(table.image.columns) if table.image else 0  # none of them is missing
    lists = ((len(column.levels) + 2, int(column.lengths.max(initial=1))) for column in read if isinstance(column, ListColumn))
    image = table.image.shape if table.image else None
    return TableShape(len(table), 2 * numeric - pixels, tuple(levels), image, tuple(lists))


@dataclass(frozen=True)
class Need:
    """Bytes that a job takes of this node, beside what the node takes with nothing to do.

    Attributes:
        model: weights, and all that goes with them.
        batch: what the networks compute for one batch.
        protection: what a passive party's defences and its audit of columns take, and an active party's attacks on its labels.
        rows: the party's own records.
        figures: of the epochs.
        messages: what waits to be sent and to be read, of every conversation.
    """

    model: int
    batch: int
    protection: int
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


def need(
    job: Job,
    role: Role,
    table: TableShape,
    model: Job | None = None,
    models: Mapping[str, str] = NONE_DECLARED,
    protection: Protection = UNPROTECTED,
) -> Need:
    """What ``job`` takes of the party in ``role``.

    Args:
        job: the job.
        role: of the party.
        table: its table.
        model: the job that trained what it predicts with.
        models: of the node's settings: name → ``module:Class`` of an architecture.
        protection: of the node's settings.
    """
    if job.sweep:
        needs = [need(each, role, table, model, models, protection) for each in job.trials]
        return max(needs, key=lambda each: each.bytes)
    columns = table.numeric + len(table.cardinalities) + sum(length for _, length in table.lists)
    conversations = {role_in(job.parties, name): len(job.parties.peers_of(name)) for name in job.parties.all}
    plan = plan_training(job, models) if role != "coordinator" else None
    linked = 2 * PLACE_BYTES * job.align.candidates if job.align.spec.by_similarity else 0
    weights = parameters(model or job, role, table, models)
    only_aligns = not (job.train or job.predict or job.align.spec.by_similarity)
    row_bytes = costs.ID_BYTES if only_aligns else ROW_BYTES
    return Need(
        model=PARAMETER_BYTES * weights,
        batch=plan.batch_bytes(role, table) if plan and role != "coordinator" else 0,
        protection=_protection_bytes(job, protection, role, table, weights) if plan else 0,
        rows=table.rows * (row_bytes + CELL_BYTES * columns + linked),
        figures=EPOCH_BYTES * plan.reported_epochs(job.evaluate) if plan else 0,
        messages=conversations[role] * (2 * QUEUE_BYTES + 2 * PIECE_BYTES + FRAME_COPIES * frame_bytes(job, model)),
    )


def _protection_bytes(job: Job, protection: Protection, role: Role, table: TableShape, weights: int) -> int:
    plan = plan_training(job)
    assert plan is not None
    rows, width, projected = plan.sent_sizes()
    if not width or role == "coordinator":
        return 0
    if role == "active":
        return label_meter_bytes(width, len(job.parties.passive)) if protection.labels else 0
    _, most = plan_of(job.align.spec).lengths_of_one(table.rows, None) or (0, None)
    rows = rows if most is None else min(rows, most)
    return protection_bytes(protection, table, rows=rows, width=width, projected=projected, weights=weights)


def parameters(job: Job, role: Role, table: TableShape, models: Mapping[str, str] = NONE_DECLARED) -> int:
    """Weights of this party's networks; of the layers alone where no table is known. ``models``: as for :func:`need`."""
    plan = plan_training(job, models)
    return plan.parameters(role, table) if plan and role != "coordinator" else 0


def plan_training(job: Job, models: Mapping[str, str] = NONE_DECLARED) -> TrainingPlan[Any] | None:
    """What the job's training will send and compute; None where it trains nothing. ``models``: as for :func:`need`."""
    return job.train.make_plan(len(job.parties.passive), job.beside, models) if job.train else None


def frame_bytes(job: Job, model: Job | None = None) -> int:
    """The largest message of the job's conversations: no larger one is received. ``model``: as for :func:`need`."""
    largest = 2 * PIECE_BYTES
    if job.train:
        largest = max(largest, *(plan.message_bytes(job.evaluate) for each in job.trials if (plan := plan_training(each))))
    elif model and model.serve and (trained := plan_training(model)):
        largest = max(largest, trained.served_message_bytes(model.serve.batch_size))
    return min(MAX_FRAME_BYTES, largest)


def check_limits(
    job: Job, role: Role, limits: Limits, table: TableShape | None = None, models: Mapping[str, str] = NONE_DECLARED
) -> None:
    """Refuse a job that is larger than this node's owner allows, as far as it tells without a table.

    Raises:
        PolicyError: it has more weights or more steps (``E_POLICY``).
    """
    table = table or TableShape()
    weights = max(parameters(each, role, table, models) for each in job.trials)
    _check_at_most(weights, limits.size.parameters, "weights of a model", "size.parameters")
    fewest, _ = plan_of(job.align.spec).lengths_of_one(table.rows, None) or (0, None)
    check_steps(job, fewest, limits)


def check_steps(job: Job, rows: int, limits: Limits) -> None:
    """Refuse a job that would train for longer than this owner allows over ``rows`` shared rows, or more (``E_POLICY``)."""
    steps = job.add_trials(plan.steps(job.evaluate, rows) for each in job.trials if (plan := plan_training(each)))
    _check_at_most(steps, limits.size.steps, "training steps", "size.steps")


def _check_at_most(count: int, most: int, what: str, limit: str) -> None:
    if count > most:
        raise PolicyError(
            f"the job has {count:,} {what} at this node, and its limit is {most:,}",
            hint=f"see {limit} in the policy",
            for_peer=tell_why("size"),
        )


def mebibytes(count: float) -> str:
    """A number of bytes for people."""
    return f"{count / 2**20:,.0f} MiB"
