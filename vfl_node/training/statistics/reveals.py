"""What statistics in shares declare before they run."""

from __future__ import annotations

from collections.abc import Iterator

from vfl_node.job import Job
from vfl_node.ledger import Declaration
from vfl_node.training.shares.config import DEALER
from vfl_node.training.statistics.config import Statistics


def declare(job: Job) -> Iterator[Declaration]:
    """Each thing that a party may learn."""
    parties, section = job.parties, Statistics.section_of(job)
    for name in parties.data:
        others = " and ".join(parties.others(name))
        yield Declaration(name, "masked values", f"from {others} uniform numbers, which tell nothing")
        yield Declaration(name, "features", f"how many columns each of {others} has")
        if section.epsilon is None:
            text = "weights of evidence of its own bins and four figures of each of its columns, rounded, without a bound on "
            text += "what they tell"
            if section.worth and name != parties.active:
                text += f"; and the bits that each says beyond the columns of {parties.active}, rounded"
        else:
            text = "how many shared records of each label are in each bin of its own columns, each number with noise"
        yield Declaration(name, "statistics", text)
        if section.correlations:
            yield Declaration(name, "correlations", "how columns of all parties and the label move together, with noise")
        if name == parties.active:
            text = "four figures of each column of the others: information value, KS, χ² and stability index"
            text += ", rounded" if section.epsilon is None else ", made of what its owner gets"
            text += "; and the bits that each says beyond its own columns, rounded" if section.worth else ""
            yield Declaration(name, "statistics of others", text)
    shapes = f"how many rows and columns there are, and how fast each party computes; it deals the randomness, {DEALER}"
    yield Declaration(str(parties.coordinator), "shapes", shapes)
