"""What training in shares, and predictions by its models, declare before they run."""

from __future__ import annotations

from collections.abc import Iterator

from vfl_node.job import Job
from vfl_node.ledger import Declaration
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.shares.config import DEALER
from vfl_node.training.shares.deviating import TRAINING, declare_deviating


def declare(job: Job) -> Iterator[Declaration]:
    """Each thing that a party may learn."""
    parties, train = job.parties, Hidden.section_of(job)
    bound = "without a bound on what it tells of one record" if train.epsilon is None else f"within ε = {train.epsilon:g}"
    for name in parties.data:
        others = " and ".join(parties.others(name))
        yield Declaration(name, "masked values", f"from {others} uniform numbers, which tell nothing")
        counted = ", each of weights of evidence of an earlier job" if train.reads_evidence else ""
        yield Declaration(name, "features", f"how many columns each of {others} has{counted}")
        if train.reveal == "owners":
            layers = ", and all layers behind the first" if name == parties.active and train.layers else ""
            yield Declaration(name, "weights", f"the weights of its own columns after training{layers}, {bound}")
        if train.metrics_by == "histogram" and (name == parties.active or job.evaluate.share_with_passive):
            yield Declaration(name, "metrics", "sums over the records that are measured on, each with noise")
        yield Declaration(name, "privacy", f"nothing more: all that is opened is {bound}")
        if not train.coordinated:
            yield from declare_deviating(name, parties.others(name), TRAINING)
    if train.coordinated:
        shapes = f"how many rows and columns there are, and how fast each party computes; it deals the randomness, {DEALER}"
        yield Declaration(str(parties.coordinator), "shapes", shapes)
