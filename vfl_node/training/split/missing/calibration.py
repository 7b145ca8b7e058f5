"""Logits shift: from the probability that the training data show back to the true one.

With synthetic labels and features the model meets another distribution than the one it is
asked about. Of the m shared rows a fraction w11 is real on both sides, w10 has a real label
and synthetic features of the peer, w01 has a synthetic label. So at a row with features x::

    r(x)  = (w11·P(x) + w10·q(x)) / (w11 + w10)
    P'(x) = (1 − w01)·r(x) + w01·s(x)

    P    probability of the label given x, the one that is wanted
    q    rate of positives of a row whose peer features say nothing about it: the active
         party's local-only model, or the rate π of its labels if it has no features
    r    rate of positives among the real labels
    s    rate of positives among the synthetic labels
    P'   the same among all labels that the training data show

What s is depends on the label strategy: a constant c (majority, minority: 0 or 1; random-pos:
the rate of the real labels), r itself (random-pred, whose draws from P' leave P' = r), or
3r² − 2r³, the majority of three independent labels of rate r (neighbors, as far as the three
are rows of the same r).

The map is applied once: ``test`` learns P' = σ(l) and inverts the map when asked; ``train``
learns P = σ(l) and puts P' into the loss.

P is for a row known to carry real peer features: a prediction asked for with both parties'
columns. Of a shared row that it owns the active party knows only that they are real with
share w11/(w11 + w10), so what it can expect of the label, and what is measured and reported on
the rows it owns, is r. For ``test`` q does not enter it: r undoes the synthetic labels alone and
ranks as σ(l) does. With a constant c, r = (σ(l) − w01·c) / (1 − w01); it leaves 0 … 1 where the
model is surer than w01 and c allow (for c = 0, where σ(l) > 1 − w01) and is clipped there. For
``train`` it stays within 0 … 1 and q counts.

With several passive parties w01 is what it is with one: the share of rows that the active party lacks, whoever has them. So r
follows from P' as above, whatever columns are real. P does not: a row with a real label has real columns of any subset of the
passive parties, each subset with a rate q of its own, and no count and no model of the active party alone gives those of the
subsets between none and all. So with several of them only labels are calibrated (``calibration_for: labels``).

Deviations from the paper: it writes the weights as products of independent ownership rates
(eq. 3), but in a union without dummies a row that one party lacks is always the other's, so
they are counts here; the products stand where the counts are hidden. It shifts for majority
labels only. With own features at the active party its π is replaced by q, which is exact only
where the two parties' features are independent given that rate.

Source: Song et al. 2021, section 4.3 and Appendices E to G.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, logsigmoid
from typing_extensions import override

from vfl_node.alignment.alignment import Alignment
from vfl_node.errors import DataError, StateError, UsageError
from vfl_node.training.split.missing.section import OwnedShares

Probabilities = NDArray[np.float64]
Rate = float | Literal["model", "vote"]
"""Rate of positives among synthetic labels: a constant, as the model predicts, or a vote of three real ones."""
HALVINGS = 100
"""Steps of the bisection that inverts a vote: to the last bit, also near 0."""


@dataclass(frozen=True)
class Composition:
    """What the shared rows are made of; the three weights sum to 1.

    Attributes:
        w11: share of rows with a real label and real features of the peer, above 0.
        w10: share with a real label and synthetic features of the peer.
        w01: share with a synthetic label.
    """

    w11: float
    w10: float
    w01: float

    @property
    def labelled(self) -> float:
        """Share of rows with a real label."""
        return self.w11 + self.w10

    @classmethod
    def from_view(
        cls,
        alignment: Alignment,
        shares: OwnedShares | None = None,
        calibration_for: Literal["both", "labels", "features"] = "both",
    ) -> Composition:
        """The composition by the counts that both parties know, or from agreed shares where they are hidden.

        Args:
            alignment: the active party's view.
            shares: p_a and p_p; rows are then taken as owned independently (eq. 3).
            calibration_for: ``labels`` takes all features of the peer as real, ``features`` all labels. With several peers
                a job can have nothing but ``labels``.

        Raises:
            DataError: the alignment hides the size of the intersection, or it is empty (``E_EMPTY``).
        """
        if len(alignment.peers) > 1:
            w01 = alignment.missing / len(alignment)
            return cls(1 - w01, 0.0, w01)
        if shares is not None:
            whole = cls(shares.active * shares.passive, shares.active * (1 - shares.passive), 1 - shares.active)
        else:
            whole = cls._from_counts(alignment)
        if calibration_for == "labels":
            return cls(whole.labelled, 0.0, whole.w01)
        if calibration_for == "features":
            return cls(whole.w11 / whole.labelled, whole.w10 / whole.labelled, 0.0)
        return whole

    @classmethod
    def _from_counts(cls, alignment: Alignment) -> Composition:
        shared = alignment.peer.intersection
        if not shared:
            reason = "is hidden by this alignment" if shared is None else "is zero"
            raise DataError(
                f"calibration needs to know how many records the parties share, and the number {reason}",
                code="E_EMPTY",
                hint="set train.missing.calibration: none, or say train.missing.shares",
            )
        m, labelled = len(alignment), len(alignment) - alignment.missing
        return cls(shared / m, (labelled - shared) / m, 1 - labelled / m)


class Calibration(ABC):
    """How a logit, the loss and the probability belong together. B rows, K classes.

    ``base_rate`` is q of each row, float32[B]; where there are more than two classes it is not used.
    """

    @abstractmethod
    def loss(self, logits: Tensor, targets: Tensor, base_rate: Tensor) -> Tensor:
        """Mean cross-entropy over the batch, a scalar.

        Args:
            logits: float32[B], or [B, K] for K above 2.
            targets: the same shape, real or synthetic; 0 … 1, rows of K sum to 1.
            base_rate: q.
        """

    @abstractmethod
    def observed_output(self, logits: Tensor, base_rate: Tensor) -> Tensor:
        """P' of each row, which the training data show: like ``logits``, detached, within 0 … 1."""

    @abstractmethod
    def probability(self, logits: Tensor, base_rate: Tensor) -> Probabilities:
        """P of each row, float64[B] or [B, K], *before* it is limited to 0 … 1: for rows known to carry real peer features."""

    @abstractmethod
    def expectation(self, logits: Tensor, base_rate: Tensor) -> Probabilities:
        """What to expect of the label of an owned row, not knowing whether its peer features are real: r, as P.

        Metrics rank by this and report its value clipped to 0 … 1.
        """

    @abstractmethod
    def to_json(self) -> str:
        """Plain JSON, exact to the last bit."""

    @staticmethod
    def from_json(text: str, build: Callable[[str, Composition | None, Rate], Calibration] | None = None) -> Calibration:
        """What :meth:`to_json` wrote; ``build`` is :func:`calibration`, or its twin for numbers.

        Raises:
            StateError: it is not a calibration (``E_STATE_CORRUPT``).
        """
        try:
            stored = _StoredCalibration.model_validate_json(text)
            return (build or calibration)(stored.name, stored.composition, stored.rate)
        except (ValidationError, UsageError):
            raise StateError("the stored calibration is damaged or of another version", code="E_STATE_CORRUPT") from None


class _StoredCalibration(BaseModel, extra="forbid"):
    name: Literal["none", "train", "test"]
    composition: Composition | None = None
    rate: Literal["model", "vote"] | float = 0.0


class Identity(Calibration):
    """``none``: the model's probability is taken as it is; softmax where there are more than two classes."""

    @override
    def loss(self, logits: Tensor, targets: Tensor, base_rate: Tensor) -> Tensor:
        return cross_entropy(logits, targets) if logits.ndim == 2 else binary_cross_entropy_with_logits(logits, targets)

    def observed_output(self, logits: Tensor, base_rate: Tensor) -> Tensor:
        """As :meth:`Calibration.observed_output`: the model's probability."""
        return _likelihood(logits.detach())

    @override
    def probability(self, logits: Tensor, base_rate: Tensor) -> Probabilities:
        return _numbers(_likelihood(logits.detach().double()))

    def expectation(self, logits: Tensor, base_rate: Tensor) -> Probabilities:
        """As :meth:`Calibration.expectation`: the probability itself."""
        return self.probability(logits, base_rate)

    @override
    def to_json(self) -> str:
        return _StoredCalibration(name="none").model_dump_json()


class Shift(Identity):
    """What both shifts have in common.

    Args:
        composition: of the shared rows.
        rate: of positives among synthetic labels.
    """

    name: ClassVar[Literal["train", "test"]]

    def __init__(self, composition: Composition, rate: Rate) -> None:
        self.composition, self.rate = composition, rate

    @override
    def to_json(self) -> str:
        return _StoredCalibration(name=self.name, composition=self.composition, rate=self.rate).model_dump_json()


class AtTest(Shift):
    """``test`` (-te): P = (r·(w11 + w10) − w10·q) / w11, with r from P' = σ(l).

    Its expectation, r, ranks rows as σ(l) does; P does where q is constant.
    """

    name = "test"

    @override
    def probability(self, logits: Tensor, base_rate: Tensor) -> Probabilities:
        mix = self.composition
        return np.asarray((self.expectation(logits, base_rate) * mix.labelled - mix.w10 * _numbers(base_rate)) / mix.w11)

    def expectation(self, logits: Tensor, base_rate: Tensor) -> Probabilities:
        """As :meth:`Calibration.expectation`: r such that (1 − w01)·r + w01·s(r) = σ(l)."""
        mix, seen = self.composition, super().probability(logits, base_rate)
        if self.rate == "model":
            return seen
        if self.rate == "vote":
            return _invert_vote(seen, mix)
        return np.asarray((seen - mix.w01 * self.rate) / mix.labelled)


class AtTraining(Shift):
    """``train`` (-tr): the loss is taken on P', with P = σ(l).

    Both logarithms are formed without forming P' or 1 − P', so that neither is lost to rounding::

        log r  = logaddexp(log w11 + log σ(l), log w10·q) − log (w11 + w10)
        log P' = logaddexp(log (1 − w01) + log r, log w01·c)          for a constant c
               = log r                                                for s = r
               = log r + log(1 − w01 + w01·r·(3 − 2r))                for s = 3r² − 2r³

    and log (1 − P') by the same with the classes exchanged: −l, 1 − q, 1 − c, and r as it is.
    """

    name = "train"

    @override
    def loss(self, logits: Tensor, targets: Tensor, base_rate: Tensor) -> Tensor:
        positive, negative = self._log_positive(logits, base_rate), self._log_negative(logits, base_rate)
        return -(targets * positive + (1 - targets) * negative).mean()

    @override
    def observed_output(self, logits: Tensor, base_rate: Tensor) -> Tensor:
        return self._log_positive(logits.detach(), base_rate).exp().clamp(max=1)

    def expectation(self, logits: Tensor, base_rate: Tensor) -> Probabilities:
        """As :meth:`Calibration.expectation`: (w11·P + w10·q) / (w11 + w10)."""
        share = self.composition.w11 / self.composition.labelled
        return np.asarray(share * self.probability(logits, base_rate) + (1 - share) * _numbers(base_rate))

    def _log_positive(self, logits: Tensor, base_rate: Tensor) -> Tensor:
        return self._log_share(logsigmoid(logits), base_rate, self.rate)

    def _log_negative(self, logits: Tensor, base_rate: Tensor) -> Tensor:
        return self._log_share(logsigmoid(-logits), 1 - base_rate, self.rate if isinstance(self.rate, str) else 1 - self.rate)

    def _log_share(self, log_true: Tensor, base_rate: Tensor, rate: Rate) -> Tensor:
        """Logarithm of the share of one class in what is seen, float32[B]; all arguments are of this class."""
        mix = self.composition
        log_real = _log_mix(mix.w11 / mix.labelled, log_true, mix.w10 / mix.labelled * base_rate)
        if rate == "model":
            return log_real
        if rate == "vote":
            real = log_real.exp()
            return log_real + (mix.labelled + mix.w01 * real * (3 - 2 * real)).log()
        return _log_mix(mix.labelled, log_real, log_real.new_tensor(mix.w01 * rate))


CALIBRATIONS: dict[str, type[Shift]] = {"train": AtTraining, "test": AtTest}
"""Name in the job → calibration; ``none``, which needs to know nothing, is :class:`Identity`."""


def calibration(name: str, composition: Composition | None, rate: Rate) -> Calibration:
    """The calibration called ``name`` in the job.

    Args:
        name: ``none`` or one of :data:`CALIBRATIONS`.
        composition: of the shared rows; None is enough for ``none``.
        rate: :attr:`Labels.rate` of the label strategy.

    Raises:
        UsageError: it is not ``none`` and there is no composition.
    """
    if name == "none":
        return Identity()
    if composition is None:
        raise UsageError("calibration must know what the rows are made of", hint="set train.missing.calibration: none")
    return CALIBRATIONS[name](composition, rate)


def _log_mix(weight: float, log_first: Tensor, second: Tensor) -> Tensor:
    """Logarithm of weight·first + second; ``second`` may be 0."""
    return torch.logaddexp(math.log(weight) + log_first, second.log())


def _invert_vote(seen: Probabilities, mix: Composition) -> Probabilities:
    """r such that (1 − w01)·r + w01·(3r² − 2r³) = ``seen``, which rises from 0 to 1 with r; by bisection."""
    low, high = np.zeros_like(seen), np.ones_like(seen)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        below = middle * (mix.labelled + mix.w01 * middle * (3 - 2 * middle)) < seen
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return high


def _likelihood(logits: Tensor) -> Tensor:
    """Probability of class 1, or of each of K classes."""
    return torch.softmax(logits, dim=1) if logits.ndim == 2 else torch.sigmoid(logits)


def _numbers(values: Tensor) -> Probabilities:
    return np.asarray(values.double().cpu().numpy())
