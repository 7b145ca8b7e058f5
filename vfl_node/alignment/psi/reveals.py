"""What private set intersection declares before it runs."""

from __future__ import annotations

from collections.abc import Iterator

from vfl_node.alignment.reveals import all_pairs, overlaps, set_sizes
from vfl_node.job import Job
from vfl_node.ledger import Declaration


def declare(job: Job) -> Iterator[Declaration]:
    """Each thing that a party may learn."""
    parties = job.parties
    yield from set_sizes(job, all_pairs(job))
    for to in parties.data:
        others = " and ".join(parties.others(to))
        holds = f"{others} {'all have' if len(parties.passive) > 1 else 'has'}"
        yield Declaration(to, "intersection", f"which of its own records {holds}, too")
    if len(parties.passive) > 1:
        yield from overlaps(job)
