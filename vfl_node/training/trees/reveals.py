"""What training trees in shares declares before it runs."""

from __future__ import annotations

from collections.abc import Iterator

from vfl_node.job import Job
from vfl_node.ledger import Declaration
from vfl_node.training.shares.config import DEALER
from vfl_node.training.trees.config import Trees


def declare(job: Job) -> Iterator[Declaration]:
    """Each thing that a party may learn."""
    parties, train = job.parties, Trees.section_of(job)
    bound = "without a bound on what that tells of one record" if train.epsilon is None else f"within ε = {train.epsilon:g}"
    of_each = " of each class's trees" if train.outputs > 1 else ""
    for name in parties.data:
        others = " and ".join(parties.others(name))
        yield Declaration(name, "masked values", f"from {others} uniform numbers, which tell nothing")
        yield Declaration(
            name, "features", f"how many candidates for splits each of {others} has, which hints at columns and missing values"
        )
        if train.epsilon is not None:
            text = (
                "whose each node is, drawn in public; and which of its own candidates splits its nodes, drawn by itself alone"
            )
            yield Declaration(name, "splits", f"{text}: neither tells anything of data")
        elif train.reveal == "owners":
            text = f"which of its own candidates splits each node{of_each}, and how much each of its own columns gains, in "
            yield Declaration(name, "splits", f"{text}steps, {bound}")
        if train.leaves == "active" and name == parties.active:
            text = f"the values of all leaves{of_each}, "
            text += "and so which nodes are split" if train.epsilon is None else "of sums with noise"
            yield Declaration(name, "leaf values", f"{text}, {bound}")
        if train.metrics_by == "histogram" and (name == parties.active or job.evaluate.share_with_passive):
            yield Declaration(name, "metrics", "sums over the records that are measured on, each with noise")
        if train.epsilon is not None:
            yield Declaration(name, "privacy", f"nothing more: all that is opened is {bound}")
    of_nodes = "" if train.epsilon is None else "whose each node is, "
    shapes = (
        f"how many rows and candidates there are, {of_nodes}and how fast each party computes; it deals the randomness, {DEALER}"
    )
    yield Declaration(str(parties.coordinator), "shapes", shapes)
