"""``random``: f̃ ~ N(μ, σ²), coordinate by coordinate; μ and σ are moving averages of the real embeddings' own.

Source: Song et al. 2021, section 3.2 (fea-random, "fea-generation" in figure 2).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.training.split.missing.features.noise import noise
from vfl_node.training.split.missing.strategies import FeatureStrategy

WEIGHT = 0.1
"""Share of the newest batch in the moving averages; the paper does not say one."""


class RandomEmbeddings:
    """A :class:`~vfl_node.training.split.missing.features.contract.Substitute` with moving averages.

    They begin with the first batch of two real rows or more and leave out batches with
    fewer. Before that a batch goes by all its rows, embeddings of sampled ones among them.
    """

    def __init__(self, strategy: FeatureStrategy, randomness: Randomness) -> None:
        self._randomness = randomness
        self._averages: tuple[Tensor, Tensor] | None = None

    def __call__(self, label: str, embedding: Tensor, real: Tensor, *, learn: bool) -> Tensor:
        """As :meth:`Substitute.__call__`."""
        if learn and int(real.sum()) > 1:
            self._learn(*_moments(embedding.detach()[real]))
        mean, sd = self._averages or _moments(embedding.detach())
        drawn = mean.to(embedding.device) + sd.to(embedding.device) * noise(self._randomness, label, embedding)
        return torch.where(real[:, None], embedding, drawn)

    def tensors(self) -> dict[str, Tensor]:
        """``mean`` and ``sd``, float32[d]; nothing before the first batch."""
        return {} if self._averages is None else dict(zip(("mean", "sd"), self._averages, strict=True))

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """As :meth:`Substitute.restore`."""
        self._averages = (tensors["mean"].clone(), tensors["sd"].clone()) if tensors else None

    def _learn(self, mean: Tensor, sd: Tensor) -> None:
        """Let a batch's mean and standard deviation into the averages, which lie on the CPU."""
        mean, sd = mean.cpu(), sd.cpu()
        if self._averages is not None:
            mean, sd = self._averages[0].lerp(mean, WEIGHT), self._averages[1].lerp(sd, WEIGHT)
        self._averages = mean, sd


def _moments(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each coordinate, float32[d]."""
    return rows.mean(dim=0), rows.std(dim=0, correction=0)
