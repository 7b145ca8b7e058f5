"""What trainings of networks declare before they run, where several of them declare the same."""

from __future__ import annotations

from collections.abc import Iterator

from vfl_node.job import Evaluate
from vfl_node.ledger import Declaration
from vfl_node.roles import NUMBER_TASKS, Task


def figures(to: str, active: str, evaluate: Evaluate, task: Task) -> Declaration:
    """What a passive party is told of how good the model is."""
    if not evaluate.share_with_passive:
        return Declaration(to, "figures", f"from {active} neither loss nor metrics")
    spread = "; these tell how far the targets spread" if task in NUMBER_TASKS else ""
    return Declaration(to, "figures", f"from {active} the loss of each epoch and the metrics at the end{spread}")


def stopping(active: str, passive: tuple[str, ...], evaluate: Evaluate) -> Iterator[Declaration]:
    """What is learnt by when training stops."""
    if evaluate.validation_fraction:
        yield Declaration(active, "early stopping", "which epoch is the best, by the loss of its own labels")
        for to in passive:
            yield Declaration(
                to, "early stopping", f"after each epoch whether the loss of {active}'s labels was the smallest so far"
            )
