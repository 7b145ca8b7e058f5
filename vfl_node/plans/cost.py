"""What a recommended way costs, by the estimate that ``vfl-node estimate`` makes of its job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vfl_node.crypto.groups import group
from vfl_node.estimate.machine import measure_node
from vfl_node.estimate.plan import plan
from vfl_node.estimate.totals import Range, estimate, pace_of
from vfl_node.job.costs import TableShape
from vfl_node.plans.answers import Answers
from vfl_node.plans.recommend import Proposal

Span = tuple[float, float]
"""The least and the most."""

NOTHING: Span = (0.0, 0.0)


@dataclass(frozen=True)
class WayCost:
    """What a job costs, each figure from the least to the most.

    Attributes:
        align_s: seconds of alignment.
        train_s: seconds of training, on the wire and computing.
        align_bytes: that the active party sends and receives in alignment.
        train_bytes: sent by all parties with data in training.
        dealt_bytes: sent by a third party in training.
        memory_bytes: of the active party's node at most.
        rows: of the shared order, over which training runs.
    """

    align_s: Span
    train_s: Span
    align_bytes: Span
    train_bytes: Span
    dealt_bytes: Span
    memory_bytes: Span
    rows: Span


def cost_of(proposal: Proposal, answers: Answers, columns: Mapping[str, int], rate_mbit_s: float, rtt_ms: float) -> WayCost:
    """Measure this machine for about a second, and count; all parties are taken to have a machine like it.

    Args:
        proposal: the way.
        answers: what the owners know.
        columns: party → its columns as encoded, where it is known.
        rate_mbit_s: of the wire.
        rtt_ms: of the wire, there and back.
    """
    job, shape = proposal.job, TableShape()
    known = plan(job, None, answers.records, columns=columns, shared=answers.shared, rate_mbit_s=rate_mbit_s, rtt_ms=rtt_ms)
    machine = measure_node(group(job.align.group), None)
    found = estimate(known, machine, pace_of(known, shape, None))[job.align.protocol]
    return WayCost(
        align_s=found["wall_s"],
        train_s=_sum(found, "train_wire_s", "train_computing_s"),
        align_bytes=_sum(found, "sent_bytes", "received_bytes"),
        train_bytes=_sum(found, "train_bytes"),
        dealt_bytes=_sum(found, "dealt_bytes"),
        memory_bytes=found.get("peak_bytes", found["memory_bytes"]),
        rows=found["rows"],
    )


def _sum(found: Range, *names: str) -> Span:
    spans = [found.get(name, NOTHING) for name in names]
    return sum(low for low, _ in spans), sum(high for _, high in spans)
