"""What training over candidates declares before it runs."""

from __future__ import annotations

from collections.abc import Iterator

from vfl_node.job import Job
from vfl_node.ledger import Declaration
from vfl_node.training.candidates.config import Linked
from vfl_node.training.network.reveals import figures, stopping


def declare(job: Job) -> Iterator[Declaration]:
    """Each thing that a party may learn."""
    active, passive, train = job.parties.pair["active"], job.parties.pair["passive"], Linked.section_of(job)
    target = "residual" if train.task == "regression" else "label"
    yield Declaration(
        active,
        "linked embeddings",
        f"from {passive} an embedding of each distinct candidate of a batch, and which candidates are one record: values of "
        f"{passive}'s columns can be inferred in part, and keys located",
    )
    yield Declaration(
        passive,
        "linked gradients",
        f"from {active} a gradient of each distinct candidate of a batch: the {target} of a row can be read from one that "
        "stands beside this row alone",
    )
    yield figures(passive, active, job.evaluate, train.task)
    yield from stopping(active, (passive,), job.evaluate)
