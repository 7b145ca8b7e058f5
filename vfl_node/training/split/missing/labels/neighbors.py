"""``neighbors``: a vote of the nearest rows of the batch whose label is real, or the mean of their targets."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from vfl_node.training.split.missing.labels.contract import Known, Step
from vfl_node.training.split.missing.strategies import LabelStrategy

NEIGHBORS = 3
BLOCK = 1024
"""Rows compared with the whole batch at a time, which bounds the memory at 4·BLOCK·B bytes."""


class VotedLabels:
    """The class that most of the three nearest rows have, by cosine of the embeddings received.

    Only *other* rows of the batch with a real label vote: fewer than three where there are
    fewer, and the most frequent class where there is none. Even classes: the one that is more
    frequent among the real labels.

    Source: Song et al. 2021, section 4.1, "label-neighbors"; that the neighbours are rows of
    the same batch with real labels, and the ties, are ours.
    """

    rate: Literal["vote"] = "vote"

    def __init__(self, strategy: LabelStrategy, known: Known) -> None:
        self._classes = known.classes
        self._preference = torch.zeros(known.classes)  # (K,), below one vote and different for each class
        self._preference[torch.from_numpy(known.ranked)] = torch.linspace(0.5, 0, known.classes)

    def targets(self, step: Step) -> Tensor:
        """As :meth:`Labels.targets`.

        Costs B²·d multiplications, whichever rows are real: at B = 8,192 and d = 128 half a second
        of one core, eight times a step of 2×128 units a party.
        """
        binary = step.targets.ndim == 1
        classes = torch.stack([1 - step.targets, step.targets], dim=1) if binary else step.targets  # (B, K)
        classes = torch.where(step.real[:, None], classes, 0.0)  # what is not real has no vote
        votes = nearest_sums(step, classes)
        winner = (votes + self._preference.to(votes.device)).argmax(dim=1)  # (B,)
        return winner.float() if binary else one_hot(winner, self._classes).float()


class MeanOfNeighbors:
    """The mean target of the three nearest rows, by cosine of the embeddings received; 0, the mean of all, where there is none.

    As :class:`VotedLabels`, for numbers.
    """

    rate: Literal["model"] = "model"

    def targets(self, step: Step) -> Tensor:
        """As :meth:`Labels.targets`; costs as :meth:`VotedLabels.targets`."""
        each = torch.stack([step.targets, torch.ones_like(step.targets)], dim=1)  # (B, 2)
        total, count = nearest_sums(step, torch.where(step.real[:, None], each, 0.0)).unbind(dim=1)
        return total / count.clamp_min(1)


def neighbors(strategy: LabelStrategy, known: Known) -> VotedLabels | MeanOfNeighbors:
    """The strategy for classes, or for numbers."""
    return VotedLabels(strategy, known) if known.scale is None else MeanOfNeighbors()


def nearest_sums(step: Step, values: Tensor) -> Tensor:
    """Sums of ``values``, float32[B, K], over the nearest real rows of each row, float32[B, K]."""
    directions = normalize(step.embedding.detach())  # (B, d)
    return torch.cat([_sums(step, values, directions, start) for start in range(0, len(values), BLOCK)])


def _sums(step: Step, values: Tensor, directions: Tensor, start: int) -> Tensor:
    """Those of the rows from ``start`` on, float32[BLOCK, K]."""
    rows = torch.arange(start, min(start + BLOCK, len(directions)), device=directions.device)
    cosine = directions[rows] @ directions.T  # (BLOCK, B)
    cosine.masked_fill_(~step.real, -torch.inf)
    cosine[rows - start, rows] = -torch.inf  # a row is not its own neighbour
    near = cosine.topk(min(NEIGHBORS, len(directions)))  # (BLOCK, 3)
    return (values[near.indices] * near.values.isfinite()[..., None]).sum(dim=1)
