"""Embeddings in place of those that a party lacks: ``gaussian`` and ``random``."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.training.split.missing.strategies import FeatureStrategy

# ``gaussian``: f̃ ~ N(0, (s/d)·max ‖f(x_i)‖²·I_d), the maximum over the real rows of the batch, s = 1.
#
# Source: Song et al. 2021, section 3.2 (fea-Gaussian).


SCALE = 1.0
"""The paper's s."""


class GaussianEmbeddings:
    """A :class:`~vfl_node.training.split.missing.features.contract.Substitute` without a state.

    A batch without a real row takes the maximum over all its rows, embeddings of sampled ones.
    """

    def __init__(self, strategy: FeatureStrategy, randomness: Randomness) -> None:
        self._randomness = randomness

    def __call__(self, label: str, embedding: Tensor, real: Tensor, *, learn: bool) -> Tensor:
        """As :meth:`Substitute.__call__`."""
        norms = embedding.detach().square().sum(dim=1)  # (B,)
        counted = real | ~real.any()
        largest = torch.where(counted, norms, 0).amax()
        drawn = noise(self._randomness, label, embedding) * (SCALE / embedding.shape[1] * largest).sqrt()
        return torch.where(real[:, None], embedding, drawn)

    def tensors(self) -> dict[str, Tensor]:
        """Nothing."""
        return {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Nothing is kept."""


def noise(randomness: Randomness, label: str, like: Tensor) -> Tensor:
    """Standard normal, float32, of the shape and on the device of ``like``; drawn on the CPU."""
    drawn = randomness.derive(f"synthetic embeddings/{label}").normal(tuple(like.shape))
    return torch.from_numpy(drawn).to(like.device)


# ``random``: f̃ ~ N(μ, σ²), coordinate by coordinate; μ and σ are moving averages of the real embeddings' own.
#
# Source: Song et al. 2021, section 3.2 (fea-random, "fea-generation" in figure 2).


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
