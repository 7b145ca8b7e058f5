"""What unbalanced private set intersection declares before it runs."""

from __future__ import annotations

from collections.abc import Iterator

from vfl_node.alignment.reveals import all_pairs, set_sizes
from vfl_node.job import Job
from vfl_node.ledger import Declaration


def declare(job: Job) -> Iterator[Declaration]:
    """Each thing that a party may learn."""
    server = job.parties.pair[job.align.server]
    (client,) = job.parties.others(server)
    yield from set_sizes(job, all_pairs(job))
    for to, other in ((server, client), (client, server)):
        yield Declaration(to, "intersection", f"which of its own records {other} has, too")
    yield Declaration(
        client,
        "tag list",
        f"a one-way tag for each record of {server}, in a list that it keeps: by it {client} learns of each id that it asks "
        f"about whether {server} has it, until {server} changes its key",
    )
    yield Declaration(
        client,
        "added tags",
        f"only if {server}'s owner lets lists grow: how many records have come since an earlier list, and which ids that "
        f"{client} has asked about are among them; by another key, that some have gone or many came",
    )
