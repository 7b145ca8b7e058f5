"""Defences against a simulated decoder, or against likeness to the columns: ``naive`` and ``nopeek``."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from typing_extensions import override

from vfl_node.crypto.randomness import Randomness
from vfl_node.privacy.defences.defence import Defence, Leaving, Sender
from vfl_node.privacy.defences.simulated import SimulatedDecoder, example
from vfl_node.privacy.defences.specs import NaiveParams, NoPeekParams

# The paper's naive defence: f + λ·g is descended at once.
#
# It lags by one upload: what leaves is made before the step that would protect it.
#
# Source: arXiv 2104.14383, section 4.2, eq. 5 and 6, figure 1c.


class NaiveDefence(Defence):
    """Adds λ·g to the loss, g = −l. In predictions it does nothing.

    Args: as :class:`Defence`.

    Cost: M1 steps of the decoder and one more pass through it a batch, after the batch has left.
    """

    def __init__(self, params: NaiveParams, sender: Sender, randomness: Randomness) -> None:
        self._strength, self._steps = params.strength, params.decoder_steps
        self._decoder: SimulatedDecoder | None = None
        if sender.columns is not None and sender.model is not None and sender.inputs is not None:
            like = example(sender.model, sender.inputs)
            self._decoder = SimulatedDecoder(params, sender.columns(params.names), like, randomness.derive("decoder"))

    @override
    def penalty(self, embedding: Tensor, leaving: Leaving) -> Tensor | None:
        if self._decoder is None:
            return None
        rows = torch.from_numpy(leaving.positions).to(embedding.device)
        self._decoder.learn(embedding.detach(), rows, self._steps)
        return -self._strength * self._decoder.losses(embedding, rows).sum()

    @override
    def state(self) -> dict[str, Tensor]:
        return {} if self._decoder is None else self._decoder.tensors()

    @override
    def restore(self, state: Mapping[str, Tensor]) -> None:
        if self._decoder is not None:
            self._decoder.restore(state)


# NoPeek: the distance correlation between a batch's columns and embeddings is part of the loss.
#
# It lags by one upload, as ``naive`` does, and it trains no decoder.
#
# Source: Vepakomma, Singh, Gupta, Raskar 2020, "NoPeek: Information leakage reduction to share activations in distributed deep
# learning", section 3; distance correlation of Székely, Rizzo, Bakirov 2007.


SMALLEST = 1e-12
"""Added under each root, whose slope at 0 has no bound."""


class NoPeek(Defence):
    """Adds strength · distance correlation to the loss. In predictions it does nothing. It has no state.

    Args: as :class:`Defence`.

    Cost: memory and time for B² distances, twice a batch, after the batch has left.
    """

    def __init__(self, params: NoPeekParams, sender: Sender, randomness: Randomness) -> None:
        self._strength = params.strength
        self._real = torch.from_numpy(sender.real)
        self._targets = sender.columns(params.names) if sender.columns else None

    def penalty(self, embedding: Tensor, leaving: Leaving) -> Tensor | None:
        """As :meth:`Defence.penalty`; rows that are made up have weight 0."""
        if self._targets is None:
            return None
        rows = torch.from_numpy(leaving.positions)
        real = self._real[rows].to(embedding.device)
        columns = self._targets.values(rows.to(embedding.device))
        return self._strength * distance_correlation(columns, embedding, real.to(embedding.dtype))


def distance_correlation(x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    """Distance correlation, 0 (independent) to 1 (alike but for scale and rotation), a scalar; biased upwards in small batches.

    Args:
        x: float[B, p].
        y: float[B, d].
        weights: float[B], of the rows; none counts if all are 0.
    """
    weights = weights / weights.sum().clamp(min=1)
    exact = "donot_use_mm_for_euclid_dist"  # a product of matrices would give distances of equal rows, and huge slopes there
    a, b = (_centre(torch.cdist(rows, rows, compute_mode=exact), weights) for rows in (x.to(y.dtype), y))
    both = weights[:, None] * weights
    covariance, of_x, of_y = ((both * product).sum() for product in (a * b, a * a, b * b))
    return (covariance.clamp(min=0) / (of_x * of_y + SMALLEST).sqrt() + SMALLEST).sqrt()


def _centre(distances: Tensor, weights: Tensor) -> Tensor:
    """With weighted means of rows, of columns and of all taken away, float[B, B]."""
    means = distances @ weights
    return distances - means[:, None] - means + means @ weights
