"""What private set intersection in pairs declares before it runs."""

from __future__ import annotations

from collections.abc import Iterator

from vfl_node.alignment.reveals import set_sizes
from vfl_node.job import Job
from vfl_node.ledger import Declaration


def declare(job: Job) -> Iterator[Declaration]:
    """Each thing that a party may learn."""
    active, passive = job.parties.active, job.parties.passive
    pairs = [pair for name in passive for pair in ((active, name), (name, active))]
    yield from set_sizes(job, pairs)
    for to, other in pairs:
        also = ", and which of them all parties have" if len(passive) > 1 else ""
        yield Declaration(to, "intersection", f"which of its own records {other} has, too{also}")
