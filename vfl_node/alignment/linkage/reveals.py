"""What linkage with a coordinator declares before it runs."""

from __future__ import annotations

from collections.abc import Iterator

from vfl_node.alignment.reveals import all_pairs, set_sizes
from vfl_node.job import Job
from vfl_node.ledger import Declaration


def declare(job: Job) -> Iterator[Declaration]:
    """Each thing that a party may learn."""
    active, passive, candidates = job.parties.pair["active"], job.parties.pair["passive"], job.align.candidates
    coordinator = str(job.parties.coordinator)
    yield from set_sizes(job, all_pairs(job))
    yield Declaration(
        active,
        "similarities",
        f"for each of its records how similar the {candidates} most similar ones of {passive} are, with the job's noise; from "
        "many of them the keys of a record can be located",
    )
    yield Declaration(
        passive,
        "candidate rows",
        f"for each record of {active} which {candidates} of its own are the most similar: that locates the keys of the record",
    )
    if job.align.comparison == "shares":
        sizes = f"how many records {active} and {passive} have, and whether these or their keys have changed since earlier jobs"
        yield Declaration(coordinator, "set sizes", sizes)
        return
    yield Declaration(
        coordinator, "encodings", f"the encoded keys of all records of {active} and {passive}, and so which keys are equal"
    )
    yield Declaration(
        coordinator, "distances", "how far any two of these records lie apart: with a public list that may name the records"
    )
