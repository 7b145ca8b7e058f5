"""What alignments declare before they run, where several of them declare the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vfl_node.job import Job
from vfl_node.ledger import Declaration


def set_sizes(job: Job, pairs: Iterable[tuple[str, str]]) -> Iterator[Declaration]:
    """How many records a party has, of each of ``pairs``: (who learns it, of whom)."""
    align, parties = job.align, job.parties
    for to, owner in pairs:
        role = "active" if owner == parties.active else "passive"
        rounded = ", rounded up" if align.padding and role in align.spec.padded_roles else ""
        yield Declaration(to, "set size", f"how many records {owner} has{rounded}")


def all_pairs(job: Job) -> Iterator[tuple[str, str]]:
    """Each data party with each other one."""
    return ((to, other) for to in job.parties.data for other in job.parties.others(to))


def overlaps(job: Job) -> Iterator[Declaration]:
    """What an alignment of lists with several passive parties tells beside its shared order."""
    names = " and ".join(job.parties.data)
    yield Declaration(
        job.parties.active,
        "overlap sizes",
        f"how many records exactly some of {names} have, for each choice of parties, and not which records",
    )
    for to in job.parties.data:
        least = "that each part of the overlap has at least as many records as an owner asks for (min_overlap)"
        yield Declaration(to, "smallest overlap", least)
