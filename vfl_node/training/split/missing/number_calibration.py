"""Calibration of predicted numbers: the shift of :mod:`~vfl_node.training.split.missing.calibration` holds for means, too.

A network trained by squared errors learns the mean of what it is shown. In the shared rows that is a mixture as it is for
classes, so with the same weights, in scaled targets::

    shown      f = (w11 + w10)·r + w01·s        of which r is the mean of real targets, s that of made-up ones
    real       r = (w11·μ + w10·q) / (w11 + w10)
    wanted     μ, the mean where the other party's features are real; q is the mean by the active party's own features

s is a constant c where made-up targets have a fixed mean, and r itself where they follow the rows around them (neighbors).
The map is linear, so that it needs no logarithms and no limits. ``test`` learns f and solves for μ; ``train`` learns μ and
puts f into the loss.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from torch import Tensor
from torch.nn.functional import mse_loss
from typing_extensions import override

from vfl_node.errors import UsageError
from vfl_node.training.split.missing.calibration import Calibration, Composition, Identity, Probabilities, Rate, Shift


class AsPredicted(Identity):
    """``none``: the model's number is taken as it is."""

    def loss(self, logits: Tensor, targets: Tensor, base_rate: Tensor) -> Tensor:
        """Mean squared error over the batch, a scalar."""
        return mse_loss(logits, targets)

    def observed_output(self, logits: Tensor, base_rate: Tensor) -> Tensor:
        """f of each row, which the training data show, detached."""
        return logits.detach()

    def probability(self, logits: Tensor, base_rate: Tensor) -> Probabilities:
        """The number predicted for each row."""
        return _to_exact(logits)


class NumberShift(Shift):
    """What both shifts have in common; ``rate`` is c, or ``model`` where made-up targets follow the rows around them."""

    def _observe(self, real: Tensor) -> Tensor:
        """f of rows whose real targets have the mean ``real``."""
        mix = self.composition
        return real if isinstance(self.rate, str) else mix.labelled * real + mix.w01 * self.rate


class ShiftedAtTest(NumberShift):
    """``test``: the network learns f."""

    name: ClassVar[Literal["train", "test"]] = "test"

    @override
    def loss(self, logits: Tensor, targets: Tensor, base_rate: Tensor) -> Tensor:
        return mse_loss(logits, targets)

    @override
    def observed_output(self, logits: Tensor, base_rate: Tensor) -> Tensor:
        return logits.detach()

    def probability(self, logits: Tensor, base_rate: Tensor) -> Probabilities:
        """μ = (r·(w11 + w10) − w10·q) / w11."""
        mix = self.composition
        return np.asarray((self.expectation(logits, base_rate) * mix.labelled - mix.w10 * _to_exact(base_rate)) / mix.w11)

    def expectation(self, logits: Tensor, base_rate: Tensor) -> Probabilities:
        """r, of f."""
        mix, shown = self.composition, _to_exact(logits)
        return shown if isinstance(self.rate, str) else np.asarray((shown - mix.w01 * self.rate) / mix.labelled)


class ShiftedAtTraining(NumberShift):
    """``train``: the network learns μ, and the loss is taken on f."""

    name: ClassVar[Literal["train", "test"]] = "train"

    def loss(self, logits: Tensor, targets: Tensor, base_rate: Tensor) -> Tensor:
        """Mean squared error of f."""
        return mse_loss(self._observe(self._real_mean(logits, base_rate)), targets)

    def observed_output(self, logits: Tensor, base_rate: Tensor) -> Tensor:
        """f of each row."""
        return self._observe(self._real_mean(logits.detach(), base_rate))

    def probability(self, logits: Tensor, base_rate: Tensor) -> Probabilities:
        """μ, the network's output."""
        return _to_exact(logits)

    def expectation(self, logits: Tensor, base_rate: Tensor) -> Probabilities:
        """r = (w11·μ + w10·q) / (w11 + w10)."""
        return _to_exact(self._real_mean(logits.double(), base_rate.double()))

    def _real_mean(self, logits: Tensor, base_rate: Tensor) -> Tensor:
        share = self.composition.w11 / self.composition.labelled
        return share * logits + (1 - share) * base_rate


SHIFTS: dict[str, type[NumberShift]] = {"train": ShiftedAtTraining, "test": ShiftedAtTest}
"""Name in the job → calibration."""


def number_calibration(name: str, composition: Composition | None, rate: Rate) -> Calibration:
    """As :func:`~vfl_node.training.split.missing.calibration.calibration`, for numbers."""
    if name == "none":
        return AsPredicted()
    if composition is None:
        raise UsageError("calibration must know what the rows are made of", hint="set train.missing.calibration: none")
    return SHIFTS[name](composition, rate)


def _to_exact(values: Tensor) -> Probabilities:
    return np.asarray(values.detach().double().cpu().numpy())
