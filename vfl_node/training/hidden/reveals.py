"""What training in shares, and predictions by its models, declare before they run."""

from __future__ import annotations

from collections.abc import Iterator

from vfl_node.job import Job
from vfl_node.ledger import Declaration
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.shares.config import DEALER


def declare(job: Job) -> Iterator[Declaration]:
    """Each thing that a party may learn."""
    parties, train = job.parties, Hidden.section_of(job)
    bound = "without a bound on what it tells of one record" if train.epsilon is None else f"within ε = {train.epsilon:g}"
    for name in parties.data:
        others = " and ".join(parties.others(name))
        yield Declaration(name, "masked values", f"from {others} uniform numbers, which tell nothing")
        yield Declaration(name, "features", f"how many columns each of {others} has")
        if train.reveal == "owners":
            layers = ", and all layers behind the first" if name == parties.active and train.layers else ""
            yield Declaration(name, "weights", f"the weights of its own columns after training{layers}, {bound}")
        if train.metrics_by == "histogram" and (name == parties.active or job.evaluate.share_with_passive):
            yield Declaration(name, "metrics", "sums over the records that are measured on, each with noise")
        yield Declaration(name, "privacy", f"nothing more: all that is opened is {bound}")
    shapes = f"how many rows and columns there are, and how fast each party computes; it deals the randomness, {DEALER}"
    yield Declaration(str(parties.coordinator), "shapes", shapes)


def declare_served(job: Job, trained: Job) -> Iterator[Declaration]:
    """The same of predictions by a model that the job ``trained`` has left."""
    parties, asker = job.parties, str(job.asker)
    for name in parties.data:
        yield Declaration(name, "masked values", "from the others uniform numbers, which tell nothing")
        if name == asker:
            text = "the score of each row asked for, to 9 bits: from enough of them the weights, and others' columns, follow"
            yield Declaration(name, "scores", text)
        else:
            yield Declaration(name, "requests", f"how many records {asker} has predicted, when, and which batches of rows")
    if parties.coordinator:
        shapes = f"how many batches are asked for, and when; it deals the randomness, {DEALER}"
        yield Declaration(parties.coordinator, "shapes", shapes)
