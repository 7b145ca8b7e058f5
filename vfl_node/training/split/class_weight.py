"""Rows that count by their class (``train.class_weight``).

With weight w_k for class k and a target y (one class, or shares of several) a row's loss is −Σ_k w_k·y_k·log p_k. What the
model learns is then not the probability P'_k of a class but w_k·P'_k / Σ_j w_j·P'_j: probabilities are shifted towards classes
of large weight, and are reported so. Divided by the weights they are P' again, which synthetic labels that are drawn from the
model need (``random-pred``): otherwise each drawn label would shift the next one further.

Every row counts by the label it is trained with, real or synthetic, so that the length of a gradient does not tell which it is.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.training.network.tasks import weighted_losses
from vfl_node.training.split.missing.calibration import Identity


class WeightedIdentity(Identity):
    """As :class:`~vfl_node.training.split.missing.calibration.Identity`, with a weight for each class in the loss.

    Args:
        weights: float64[K], above 0.
    """

    def __init__(self, weights: NDArray[np.float64]) -> None:
        self._weights = torch.from_numpy(weights).float()
        shift = torch.from_numpy(np.log(weights))
        self._shift = (shift[1] - shift[0] if len(weights) == 2 else shift).float()

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss of each row, float32[B]; shapes as for :meth:`loss`."""
        return weighted_losses(self._weights.to(logits.device), logits, targets)

    def loss(self, logits: Tensor, targets: Tensor, base_rate: Tensor) -> Tensor:
        """As :meth:`Calibration.loss`: the mean over the batch's rows, not over their weights."""
        return self.losses(logits, targets).mean()

    def observed_output(self, logits: Tensor, base_rate: Tensor) -> Tensor:
        """As :meth:`Calibration.observed_output`: without the weights."""
        return super().observed_output(logits - self._shift.to(logits.device), base_rate)
