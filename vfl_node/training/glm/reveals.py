"""What a regression under encryption declares before it runs."""

from __future__ import annotations

from collections.abc import Iterator

from vfl_node.job import Job
from vfl_node.ledger import Declaration
from vfl_node.training.glm.config import GeneralisedLinear


def declare(job: Job) -> Iterator[Declaration]:
    """Each thing that a party may learn."""
    train = GeneralisedLinear.section_of(job)
    for name in job.parties.all:
        yield Declaration(name, "rounds", f"that training takes {train.iterations:,} iterations at most, over how many rows")
    yield from _declare_of_active(job, train)
    for name in job.parties.passive:
        yield from _declare_of_passive(job, train, name)
    if coordinator := job.parties.coordinator:
        yield from _declare_of_key(job, train, coordinator)


def _declare_of_active(job: Job, train: GeneralisedLinear) -> Iterator[Declaration]:
    """What the active party may learn."""
    active = job.parties.active
    counted = ", each of weights of evidence of an earlier job" if train.reads_evidence else ""
    for name in job.parties.passive:
        if train.flow != "coordinator":
            text = f"from {name} its linear score of each shared row in each iteration: its columns follow but for a linear map"
            yield Declaration(active, "scores", text)
        elif train.labels == "active":
            yield Declaration(active, "encrypted scores", f"from {name} its scores under the coordinator's key")
        if train.labels == "active":
            yield Declaration(active, "held-out scores", f"from {name} its score of each row measured on, once, in clear")
        else:
            yield Declaration(active, "residuals", f"from {name} the residuals of the shared rows under the coordinator's key")
        yield Declaration(active, "features", f"how many columns {name} has{counted}")
    if train.flow == "two-party":
        yield from _declare_of_key(job, train, active)
    if train.flow == "coordinator":
        yield Declaration(active, "gradient", "its own gradient in each iteration: sums over its records")
    if train.labels == "active" and (train.flow != "coordinator" or train.tolerance > 0):
        yield Declaration(active, "loss", "the loss of each iteration over its own labels")


def _declare_of_passive(job: Job, train: GeneralisedLinear, name: str) -> Iterator[Declaration]:
    """What a passive party may learn."""
    active = job.parties.active
    key = f"{active}'s key" if train.flow == "two-party" else "the coordinator's key"
    if train.labels == "active":
        yield Declaration(name, "residuals", f"from {active} a residual of each shared row under {key}")
    else:
        yield Declaration(name, "encrypted weights", f"from {active} whether each row counts, and its score, under {key}")
        yield Declaration(name, "features", f"how many columns {active} has")
        if train.tolerance > 0:
            yield Declaration(name, "loss", f"the loss of each iteration over {active}'s records")
    yield Declaration(name, "gradient", f"its own gradient in each iteration, in clear: a linear image of {active}'s residuals")
    if job.evaluate.share_with_passive:
        yield Declaration(name, "figures", f"from {active} the loss of each iteration and the metrics at the end")


def _declare_of_key(job: Job, train: GeneralisedLinear, holder: str) -> Iterator[Declaration]:
    """What the holder of the key may learn."""
    parties = job.parties
    how = "masked by noise" if train.mask == "additive" else "each times a secret factor, so that a 0 shows"
    for sender in (*parties.passive, *([parties.active] if train.flow == "coordinator" else [])):
        yield Declaration(holder, "masked gradient", f"from {sender} the entries of its gradients, {how}")
    if train.flow == "coordinator" and train.tolerance > 0:
        yield Declaration(holder, "masked loss", "the loss of each iteration, masked by noise")
