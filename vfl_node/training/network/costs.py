"""What every network of two halves exchanges and takes in memory beside its own tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vfl_node.job.costs import HEAD_BYTES

if TYPE_CHECKING:
    from vfl_node.job import Evaluate
    from vfl_node.training.network.config import NetworkConfig

VALUE_BYTES = 16
"""A value of a layer for a row of a batch, its gradient, and what is under way between two layers."""

FIGURES_BYTES = 96
"""What the passive party may be told of an epoch; as much again of its validation."""

DECISION_BYTES = 40
"""Whether an epoch of a job with validation was the best so far and the last: about so many."""


def figures_bytes(train: NetworkConfig, evaluate: Evaluate) -> int:
    """The message with the figures that a passive party is told; 0 where it is told none."""
    if not evaluate.share_with_passive:
        return 0
    figures = FIGURES_BYTES * (2 if evaluate.validation_fraction else 1)
    return figures * train.epochs * evaluate.repeats + HEAD_BYTES
