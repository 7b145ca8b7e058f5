"""Fixed point: how many bits each encrypted tensor has, proven to fit before the first encryption.

Every tensor has one public scale. A feature is an integer of at most 20 bits
(``data.design.MOST``) times a private step. A residual, already divided by the number of genuine rows, is an
integer at :data:`RESIDUAL` fractional bits where it is computed in clear (two-party,
coordinator-open-scores), and at ``SCORE + WEIGHT`` where it is a product under encryption
(coordinator). A gradient entry is a sum of products of the two; it is hidden by a mask
64 bits wider than its bound, and shares a ciphertext with as many others as fit.

Residuals are divided by their number, so a bound of one before the division is also a bound of the sum of their
magnitudes: an entry's bound does not grow with the rows. It follows from the job alone, so the key's holder knows it, too.

Source: Yang et al. 2019 (arXiv 1911.09824); the widths are this product's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from vfl_node.crypto.fixed_point import RangeBound, slot_bits
from vfl_node.crypto.paillier.packing import join, slots
from vfl_node.data.design import MOST
from vfl_node.training.glm import masks
from vfl_node.training.glm.config import GeneralisedLinear
from vfl_node.training.glm.plain import LOSSES

RESIDUAL = 40
"""Fractional bits of a residual computed in clear: an error below 2⁻⁴¹ a row."""

SCORE, WEIGHT = 32, 48
"""Fractional bits of an encrypted score, and of the private factor it is multiplied by (1/|I| is one)."""

ROWS = 1 << 32
"""More rows than an iteration can have: by rounding, each adds less than 1 to a sum of magnitudes."""

SCORE_RANGE = 8
"""Scores lie within ±2⁸; beyond it training has diverged (the exact loss is linear and the Taylor loss useless long before).
Scaled targets lie there, too: a number so many deviations from the mean would rule the sums (:mod:`.prepared_inputs`)."""


@dataclass(frozen=True)
class Scales:
    """The widths of one job's tensors.

    Attributes:
        fraction: fractional bits of an encrypted residual, so of a gradient entry before its step.
        residual: bits of the sum of the magnitudes of an iteration's residuals, rounding left out.
        gradient: bits of an encrypted gradient entry, sign left out.
        loss: bits of a mean loss; 0 where it is not computed under encryption.
        groups: numbers of outputs, one for each model trained side by side, that share a ciphertext.
    """

    fraction: int
    residual: int
    gradient: int
    loss: int
    groups: tuple[int, ...]

    @property
    def slot(self) -> int:
        """Bits of one masked gradient entry inside a plaintext."""
        return slot_bits(self.gradient)

    @property
    def returned_bits(self) -> int:
        """Bits of a masked gradient entry that are sent back to its owner."""
        return masks.returned_bits(self.gradient)

    @classmethod
    def from_config(cls, train: GeneralisedLinear, passive_parties: int = 1) -> Scales:
        """The widths of a job, for any number of rows below :data:`ROWS`.

        By the exact loss the magnitudes of an iteration's residuals add up to at most 1 (each is below 1, divided by
        their number). By a polynomial they add up to at most the largest of one row, since scores lie within ±2⁸ at each of
        the k + 1 data parties, and targets likewise: 64·(k + 1) + ½ by the Taylor loss, or four times that where the passive
        party has the labels, and 256·(k + 2) by squares. The next power of two bounds them; in the clear flows it is checked
        where residuals are formed. Rounding adds half a last bit a row in clear; under encryption rounding and noise stay
        below 2⁴³ of 2⁸⁰ a row, so below 1 in all. For k = 1 a loss is below 33,026, by squares below 768²/2 = 294,912.

        Args:
            train: the job's section.
            passive_parties: k.

        Raises:
            UsageError: a masked value has more bits than a plaintext of this key (``E_OVERFLOW``, with the numbers).
        """
        blind, polynomial = train.flow == "coordinator", LOSSES[train.objective].polynomial
        scores = widest_score(passive_parties)
        fraction = SCORE + WEIGHT if blind else RESIDUAL
        shift = polynomial.shift if polynomial and train.labels == "passive" else 0
        residual = fraction + shift + (bits_of(polynomial.derivative_most(scores)) if polynomial else 0)
        gradient = RangeBound(factor=MOST, total=(1 << residual) + (-1 if blind else ROWS))
        widest = bits_of(polynomial.value_most(scores)) if polynomial else 0
        loss = RangeBound(factor=1, total=(1 << (loss_fraction(train) + widest)) - 1)
        fit = slots(train.key_bits, gradient.slot_bits(train.key_bits))
        if blind:
            loss.slot_bits(train.key_bits)
        full, rest = divmod(train.outputs, fit)
        return cls(fraction, residual, gradient.bits, loss.bits if blind else 0, (*[fit] * full, *([rest] if rest else [])))


def widest_score(passive_parties: int) -> float:
    """The joint score of a row lies between minus and plus this number."""
    return (passive_parties + 1) * 2.0**SCORE_RANGE


def bits_of(most: float) -> int:
    """Bits of a number of at most ``most``, with 1 to spare for rounding."""
    return int(most + 1).bit_length()


def loss_fraction(train: GeneralisedLinear) -> int:
    """Fractional bits of the encrypted loss: with the labels at the passive party it is a product of three."""
    return SCORE + WEIGHT + (SCORE if train.labels == "passive" else 0)


def pack_rows(values: Sequence[Sequence[int]], groups: Sequence[int], slot: int) -> list[list[int]]:
    """Rows of K integers as one signed integer a row and group, each value in a slot of its own.

    Args:
        values: [B][K].
        groups: how many of the K values each group takes; they add up to K.
        slot: bits between one value and the next.

    Returns:
        [group][B].
    """
    bounds = [sum(groups[:group]) for group in range(len(groups) + 1)]
    return [[join(row[low:high], slot) for row in values] for low, high in pairwise(bounds)]
