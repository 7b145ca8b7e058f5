"""Halves that a job hands over (``export.joint``): what is refused before alignment, and the exchange after training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from vfl_node.configuration.registry import load
from vfl_node.errors import UsageError
from vfl_node.estimate.memory import parameters, shape_of
from vfl_node.execution.run import Run
from vfl_node.progress import PhaseBegan
from vfl_node.training.trainer import Trained
from vfl_node.transport.bounds import MOST_HALF_BYTES

EXCHANGE = "vfl_node.export.joint:exchange"
"""What sends and receives halves; it is loaded by jobs that do so."""

WEIGHT_BYTES = 4
"""What the smallest kind of weight takes in a file."""


def check_exportable(run: Run) -> None:
    """Refuse a table of which no half can be handed over, before anything is aligned. A model that can be reads no lists.

    Raises:
        UsageError: what it has that no file can hold, with what to change (``E_EXPORT``).

    Leaks: that it has something of the kind.
    """
    job, table, role = run.session.job, run.data.table, run.session.role
    weights = max(parameters(trial, role, shape_of(table), run.session.policy.models) for trial in job.trials)
    refused = (
        (table.image is not None, "it has an image", "declare the pixels numeric"),
        (table.offsets is not None, "it has data.offset or data.exposure", "leave them out of this node's settings"),
        (weights * WEIGHT_BYTES > MOST_HALF_BYTES, f"its half has {weights:,} weights", "train smaller layers"),
    )
    for _, what, way_out in (each for each in refused if each[0]):
        raise UsageError(
            f"{run.session.name}: the job hands halves over (export), and that of this table cannot be exported: {what}",
            code="E_EXPORT",
            hint=f"{way_out}, or leave export out of the job",
            for_peer="its half of this model cannot be exported",
        )


async def hand_over(run: Run, trained: Trained) -> tuple[Trained, Mapping[str, bytes]]:
    """Send this party's half, or get those of the others: the training with what was learnt by it, and files to be kept.

    Raises, and leaks: as :func:`vfl_node.export.joint.exchange`.
    """
    session, export = run.session, run.session.job.export
    assert export is not None
    session.progress.emit(PhaseBegan("export", 0, "halves"))
    halves: Mapping[str, bytes] = await load(EXCHANGE, what="the exchange of halves")(session, run.data.table, trained)
    receiver, told = export.receiver(session.job.parties), export.disclose(session.job.parties, session.job.label_holder)
    learnt = {name: entries + (told if name == receiver else ()) for name, entries in trained.disclosures.items()}
    return replace(trained, disclosures=learnt), halves
