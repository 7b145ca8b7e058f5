"""What predictions by models that the active party completes declare before they run."""

from __future__ import annotations

from collections.abc import Iterator

from vfl_node.job import Job
from vfl_node.ledger import Declaration


def declare_embeddings(job: Job, trained: Job) -> Iterator[Declaration]:
    """Each thing that a party may learn by predictions of a split network, which the job ``trained`` has left."""
    for name in job.parties.passive:
        text = f"from {name} an embedding of each row predicted: values of {name}'s columns can be inferred in part"
        yield Declaration(job.parties.active, "embeddings", text)
    yield from _declare_asking(job)


def declare_scores(job: Job, trained: Job) -> Iterator[Declaration]:
    """The same of a regression, whose scores are sums of each party's part."""
    for name in job.parties.passive:
        text = f"from {name} its part of the score of each row predicted, a linear function of its columns"
        yield Declaration(job.parties.active, "partial scores", text)
    yield from _declare_asking(job)


def _declare_asking(job: Job) -> Iterator[Declaration]:
    active, asker = job.parties.active, str(job.asker)
    if job.is_service:
        for name in job.parties.others(asker):
            yield Declaration(name, "requests", f"which of the agreed batches of rows {asker} asks for, and when")
    if asker != active:
        text = f"from {active} the model's prediction of each row asked for: from enough of them the model can be copied"
        yield Declaration(asker, "predictions", text)
