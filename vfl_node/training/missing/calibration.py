"""Logits shift: from the probability that the training data show back to the true one.

With synthetic labels and features the model meets another distribution than the one it is
asked about. Of the m shared rows a fraction w11 is real on both sides, w10 has a real label
and synthetic features of the peer, w01 has a synthetic label. So at a row with features x::

    P'(x) = w11·P(x) + w10·q(x) + w01·c

    P    probability of the label given x, the one that is wanted
    P'   the same in the training data
    q    rate of positives of a row whose peer features say nothing about it: the active
         party's local-only model, or the rate π of its labels if it has no features
    c    rate of positives among the synthetic labels (majority: 0 or 1)

The map is applied once: ``test`` learns P' = σ(l) and inverts the map when asked; ``train``
learns P = σ(l) and puts P' into the loss.

P is for a row known to carry real peer features: a prediction asked for with both parties'
columns. Of a shared row that it owns the active party knows only that they are real with
share s = w11/(w11 + w10), so what it can expect of the label, and what is measured and
reported on the rows it owns, is s·P + (1 − s)·q. For ``test`` q cancels in it::

    s·P + (1 − s)·q = (σ(l) − w01·c) / (1 − w01)

which undoes the synthetic labels alone and ranks as σ(l) does. It leaves 0 … 1 where the model
is surer than w01 and c allow (for c = 0, where σ(l) > 1 − w01) and is clipped there. For
``train`` it stays within 0 … 1 and q counts.

Deviations from the paper: it writes the weights as products of independent ownership rates
(eq. 3), but in a union without dummies a row that one party lacks is always the other's, so
they are counts here. With own features at the active party the paper's π is replaced by q,
which is exact only where the two parties' features are independent given that rate.

Source: Song et al. 2021, section 4.3 and Appendix C.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

from vfl_node.alignment.alignment import Alignment
from vfl_node.errors import DataError

Probabilities = NDArray[np.float64]


@dataclass(frozen=True)
class Composition:
    """What the shared rows are made of; the three weights sum to 1.

    Attributes:
        w11: share of rows with a real label and real features of the peer.
        w10: share with a real label and synthetic features of the peer.
        w01: share with a synthetic label.
        c: rate of positives among the synthetic labels.
    """

    w11: float
    w10: float
    w01: float
    c: float

    @classmethod
    def of(cls, alignment: Alignment, c: float) -> Composition:
        """From the counts that both parties know.

        Raises:
            DataError: the alignment hides the size of the intersection, or it is empty (``E_EMPTY``).
        """
        if not alignment.intersection:
            reason = "is hidden by this alignment" if alignment.intersection is None else "is zero"
            raise DataError(
                f"calibration needs to know how many records the parties share, and the number {reason}",
                code="E_EMPTY",
                hint="set train.missing.calibration: none",
            )
        labelled = int(np.count_nonzero(alignment.owned))
        m = len(alignment)
        return cls(alignment.intersection / m, (labelled - alignment.intersection) / m, 1 - labelled / m, c)


class Calibration(Protocol):
    """How a logit, the loss and the probability belong together."""

    def loss(self, logits: Tensor, labels: Tensor, base_rate: Tensor) -> Tensor:
        """Mean binary cross-entropy over the batch, a scalar.

        Args:
            logits: float32[B].
            labels: float32[B], real or synthetic.
            base_rate: float32[B], q of each row.
        """

    def probability(self, logits: Tensor, base_rate: Tensor) -> Probabilities:
        """P of each row, float64[B], *before* it is limited to 0 … 1: for a row known to carry real peer features."""

    def expectation(self, logits: Tensor, base_rate: Tensor) -> Probabilities:
        """What to expect of the label of an owned row, not knowing whether its peer features are real, float64[B].

        Metrics rank by this and report its value clipped to 0 … 1.
        """


class Identity:
    """``none``: the model's probability is taken as it is."""

    def loss(self, logits: Tensor, labels: Tensor, base_rate: Tensor) -> Tensor:
        """As :meth:`Calibration.loss`."""
        return binary_cross_entropy_with_logits(logits, labels)

    def probability(self, logits: Tensor, base_rate: Tensor) -> Probabilities:
        """As :meth:`Calibration.probability`."""
        return np.asarray(torch.sigmoid(logits.double()).cpu().numpy())

    def expectation(self, logits: Tensor, base_rate: Tensor) -> Probabilities:
        """As :meth:`Calibration.expectation`: the probability itself."""
        return self.probability(logits, base_rate)


class Shift(Identity):
    """What both shifts have in common.

    Args:
        composition: w11 above 0.
    """

    def __init__(self, composition: Composition) -> None:
        self.composition = composition

    def expectation(self, logits: Tensor, base_rate: Tensor) -> Probabilities:
        """As :meth:`Calibration.expectation`: s·P + (1 − s)·q."""
        mix = self.composition
        share = mix.w11 / (mix.w11 + mix.w10)
        return np.asarray(share * self.probability(logits, base_rate) + (1 - share) * _numbers(base_rate))


class AtTest(Shift):
    """``test`` (-te): P = (σ(l) − w10·q − w01·c) / w11.

    Its expectation, (σ(l) − w01·c) / (1 − w01), ranks rows as σ(l) does; P does where q is constant.
    """

    def probability(self, logits: Tensor, base_rate: Tensor) -> Probabilities:
        """As :meth:`Calibration.probability`."""
        mix = self.composition
        seen = super().probability(logits, base_rate)
        return np.asarray((seen - mix.w10 * _numbers(base_rate) - mix.w01 * mix.c) / mix.w11)


class AtTraining(Shift):
    """``train`` (-tr): the loss is taken on P' = w11·σ(l) + w10·q + w01·c.

    Both logarithms are formed without forming P'::

        log P'       = logaddexp(log w11 + log σ(l),  log(w10·q + w01·c))
        log (1 − P') = logaddexp(log w11 + log σ(−l), log(w10·(1 − q) + w01·(1 − c)))
    """

    def loss(self, logits: Tensor, labels: Tensor, base_rate: Tensor) -> Tensor:
        """As :meth:`Calibration.loss`."""
        mix = self.composition
        real = math.log(mix.w11)
        positive = torch.log(mix.w10 * base_rate + mix.w01 * mix.c)  # −∞ where nothing is added
        negative = torch.log(mix.w10 * (1 - base_rate) + mix.w01 * (1 - mix.c))
        log_p = torch.logaddexp(real + logsigmoid(logits), positive)
        log_not_p = torch.logaddexp(real + logsigmoid(-logits), negative)
        return -(labels * log_p + (1 - labels) * log_not_p).mean()


CALIBRATIONS: dict[str, Callable[[Alignment, float], Calibration]] = {
    "none": lambda alignment, c: Identity(),
    "train": lambda alignment, c: AtTraining(Composition.of(alignment, c)),
    "test": lambda alignment, c: AtTest(Composition.of(alignment, c)),
}
"""Name in the job → calibration for an alignment and the rate c of positives among its synthetic labels."""


def _numbers(values: Tensor) -> Probabilities:
    return np.asarray(values.double().cpu().numpy())
