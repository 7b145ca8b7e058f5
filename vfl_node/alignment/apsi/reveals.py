"""What asymmetric private set intersection declares before it runs."""

from __future__ import annotations

from collections.abc import Iterator

from vfl_node.alignment.reveals import all_pairs, set_sizes
from vfl_node.job import Job
from vfl_node.ledger import Declaration


def declare(job: Job) -> Iterator[Declaration]:
    """Each thing that a party may learn."""
    active, passive = job.parties.pair["active"], job.parties.pair["passive"]
    yield from set_sizes(job, all_pairs(job))
    yield Declaration(active, "intersection", f"which of its own records {passive} has, too")
    yield Declaration(
        active,
        "foreign hashed ids",
        f"hashes of those identifiers in the obfuscated set that {passive} alone has, which a dictionary of identifiers opens",
    )
    yield Declaration(
        passive, "obfuscated set", f"some of its own records, among which are all that {active} has, too; not which of them"
    )
    if job.align.obfuscation != "private":
        size = "between which two numbers the shared records lie, if the obfuscated set has to be larger than asked for"
        yield Declaration(passive, "intersection size", size)
