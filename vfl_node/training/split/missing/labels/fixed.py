"""Labels that stay the same for a whole job."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from vfl_node.training.split.missing.labels.contract import Known, Step


class Fixed:
    """One label a shared position.

    Args:
        labels: float32[m], 0 … classes−1; scaled targets of a regression.
        classes: number of classes K; 0 in a regression.
        rate: share of class 1 among them; the mean of targets.
    """

    def __init__(self, labels: NDArray[np.float32], classes: int, rate: float) -> None:
        self.labels = labels
        self.rate = rate
        self._classes = classes

    def targets(self, step: Step) -> Tensor:
        """As :meth:`Labels.targets`."""
        labels = torch.from_numpy(self.labels[step.positions]).to(step.real.device)  # (B,)
        return labels if self._classes <= 2 else one_hot(labels.long(), self._classes).float()  # or (B, K)


def constant(known: Known, label: int) -> Fixed:
    """``label`` for every row."""
    return Fixed(np.full(known.shared, label, dtype=np.float32), known.classes, float(label == 1))
