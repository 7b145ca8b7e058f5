"""What split training declares before it runs (docs/explanations/privacy)."""

from __future__ import annotations

from collections.abc import Iterator

from vfl_node.job import Job
from vfl_node.ledger import Declaration
from vfl_node.roles import NUMBER_TASKS
from vfl_node.training.network.reveals import figures, stopping
from vfl_node.training.split.config import Train


def declare(job: Job) -> Iterator[Declaration]:
    """Each thing that a party may learn."""
    active, passive, evaluate = job.parties.active, job.parties.passive, job.evaluate
    yield from (each for name in passive for each in _declare_of_passive(job, name))
    yield from (each for name in passive for each in _declare_of_active(job, name))
    yield from stopping(active, passive, evaluate)
    if Train.section_of(job).unaligned.used:
        yield from _declare_rows_outside(job)
    if job.sweep:
        trials = len(job.sweep.settings())
        yield Declaration(active, "sweep", f"which of {trials} settings is the best, by the loss of its own labels")
        for name in passive:
            text = f"after each of {trials} trainings, or a part of it, which of them suit {active}'s labels best so far"
            yield Declaration(name, "sweep", text)


def _times(job: Job) -> str:
    """How often a row is sent in training at most, in all trials of a sweep together."""
    count = job.evaluate.repeats * job.add_trials(Train.section_of(each).epochs for each in job.trials)
    return f"{count:,} times" if count > 1 else "once"


def _declare_of_passive(job: Job, name: str) -> Iterator[Declaration]:
    """What the active party may learn of a passive one."""
    active, evaluate = job.parties.active, job.evaluate
    times = _times(job)
    yield Declaration(
        active,
        "embeddings",
        f"from {name} an embedding of each shared row, {times} at most: values of {name}'s columns can be inferred in part",
    )
    if "passive" in job.align.spec.synthetic_rows_at:
        yield Declaration(active, "membership", f"in part, which of its own records {name} lacks")
    if evaluate.matched:
        text = f"of held-out records with one label and about one score how many are {name}'s, too, over many records each"
        yield Declaration(active, "matched rows", text)
        yield Declaration(active, "encrypted membership", f"whether {name} has each held-out record, under {name}'s key")


def _declare_of_active(job: Job, name: str) -> Iterator[Declaration]:
    """What the passive party ``name`` may learn of the active one, and of other passive ones."""
    parties, train, evaluate = job.parties, Train.section_of(job), job.evaluate
    active, target = parties.active, "residual" if train.task in NUMBER_TASKS else "label"
    times = _times(job)
    yield Declaration(
        name,
        "gradients",
        f"from {active} a gradient of each row trained on, {times} at most: unless {active} has a defence, the {target} can be "
        "read from it",
    )
    yield Declaration(
        name, "randomised labels", f"if {active} has the defence randomised-labels, of a label a randomised answer at most"
    )
    yield Declaration(name, "noised gradients", f"if {active} has the defence dp alone, of a label no more than its ε")
    yield figures(name, active, evaluate, train.task)
    if "active" in job.align.spec.synthetic_rows_at:
        yield Declaration(name, "membership", f"in part, which of its own records {active} lacks")
    if evaluate.matched:
        yield Declaration(name, "matched rows", f"from {active} random numbers, and nothing by them")
    if evaluate.hold_out:
        text = f"which shared records are the last ones in the order of a private column of {active}; not their order"
        yield Declaration(name, "held-out rows", text)
    if others := [other for other in parties.passive if other != name]:
        them = " and ".join(others)
        text = f"no message from {them}; how well {them}'s columns explain the label of a row, from {active}'s gradients"
        yield Declaration(name, "other passive parties", text)


def _declare_rows_outside(job: Job) -> Iterator[Declaration]:
    """What may be learnt where rows outside of the alignment are used."""
    method, active = Train.section_of(job).unaligned, job.parties.active
    for to, sender in (pair for name in job.parties.passive for pair in ((active, name), (name, active))):
        yield Declaration(
            to, "pace", f"no message about {sender}'s records outside of the alignment; by its time about how many"
        )
        each = f"of each aligned row, {method.epochs_before:,} times before the training with labels"
        if method.exchanges == "projections":
            yield Declaration(to, "projections", f"from {sender} a projection {each}: its columns can be inferred in part")
        elif method.exchanges == "embeddings and gradients":
            received = "an embedding" if to == active else "a gradient"
            yield Declaration(to, "matched pairs", f"from {sender} {received} {each}")
