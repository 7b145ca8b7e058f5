"""What private set union declares before it runs."""

from __future__ import annotations

from collections.abc import Iterator

from vfl_node.alignment.reveals import all_pairs, overlaps, set_sizes
from vfl_node.job import Job
from vfl_node.ledger import Declaration


def declare(job: Job) -> Iterator[Declaration]:
    """Each thing that a party may learn."""
    align, parties = job.align, job.parties
    yield from set_sizes(job, all_pairs(job))
    for to in parties.data:
        if not align.dummies:
            yield Declaration(to, "union size", "how many records all parties have together, each counted once")
        if len(parties.passive) > 1:
            continue
        (other,) = parties.others(to)
        exact = f"how many records it shares with {other}, and not which"
        rough = f"roughly how many records it shares with {other}: {align.dummies + 1:,} numbers stay possible"
        yield Declaration(to, "intersection size", rough if align.dummies else exact)
    if len(parties.passive) > 1:
        yield from overlaps(job)
