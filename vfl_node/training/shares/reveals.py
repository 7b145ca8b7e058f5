"""What predictions by a model in shares declare before they run."""

from __future__ import annotations

from collections.abc import Iterator

from vfl_node.job import Job
from vfl_node.ledger import Declaration
from vfl_node.training.shares.config import DEALER
from vfl_node.training.shares.deviating import PREDICTIONS, declare_deviating


def declare_served(job: Job, trained: Job) -> Iterator[Declaration]:
    """The same of predictions by a model that the job ``trained`` has left."""
    parties, asker = job.parties, str(job.asker)
    for name in parties.data:
        yield Declaration(name, "masked values", "from the others uniform numbers, which tell nothing")
        if name == asker:
            text = "the score of each row asked for, to 9 bits: from enough of them the model, and others' columns, follow"
            yield Declaration(name, "scores", text)
        else:
            yield Declaration(name, "requests", f"how many records {asker} has predicted, when, and which batches of rows")
        if not parties.coordinator:
            yield from declare_deviating(name, parties.others(name), PREDICTIONS)
    if parties.coordinator:
        shapes = f"how many batches are asked for, and when; it deals the randomness, {DEALER}"
        yield Declaration(parties.coordinator, "shapes", shapes)
