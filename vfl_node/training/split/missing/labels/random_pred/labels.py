"""``random-pred``: as the model itself predicts."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from vfl_node.training.split.missing.labels.contract import Known, Step
from vfl_node.training.split.missing.labels.random_pred.spec import RandomPred


class PredictedLabels:
    """Labels drawn by the model's probability P' in every step; their mean over R draws is the target.

    The gradient of such a label is P' − y, whose expectation is zero: it does not bias the
    model, for any number of classes. It only adds noise, which shrinks as 1/R; but with it
    shrinks the gradient that hides the row.

    Leaks: nothing to the spectral attack for one draw (the paper: AUC .50), more with each (.74 for R = 10). To others much
        more: gradients of a mean are short, and their norm tells them within the first epoch (folded AUC .72, .81 and .98
        for R = 2, 3 and 10 on a made-up table, more with several classes); and a position's gradients of two epochs
        differ (.74 and .94 after two and five epochs with two classes, .86 and 1.00 with four).

    Source: Song et al. 2021, section 4.1 and Appendix H, "label-random-pred".
    """

    rate: Literal["model"] = "model"

    def __init__(self, strategy: RandomPred, known: Known) -> None:
        self._draws, self._randomness = strategy.draws, known.randomness.derive("random-pred")

    def targets(self, step: Step) -> Tensor:
        """As :meth:`Labels.targets`. Costs B·R·K comparisons; the same step gives the same uniform numbers."""
        seen = step.seen.detach().double().cpu().numpy()
        binary = seen.ndim == 1
        bounds = 1 - seen[:, None] if binary else np.cumsum(seen, axis=1)[:, :-1]  # (B, K−1), upper ends of the classes
        uniform = self._randomness.derive(f"step/{step.number}").uniform((self._draws, len(seen), 1))
        shares = np.zeros((len(seen), bounds.shape[1] + 1), dtype=np.float32)  # (B, K)
        rows = np.arange(len(seen))
        for draw in uniform:
            shares[rows, (draw >= bounds).sum(axis=1)] += 1
        shares /= self._draws
        return torch.from_numpy(shares[:, 1] if binary else shares).to(step.real.device)
