"""``gaussian``: f̃ ~ N(0, (s/d)·max ‖f(x_i)‖²·I_d), the maximum over the real rows of the batch, s = 1.

Source: Song et al. 2021, section 3.2 (fea-Gaussian).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.training.split.missing.features.noise import noise
from vfl_node.training.split.missing.strategies import FeatureStrategy

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
