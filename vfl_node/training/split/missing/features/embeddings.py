"""Synthetic embeddings: made up at the cut layer instead of from columns. For comparison only.

Both strategies are told from real embeddings almost surely (AUC close to 1, Table 2).

Source: Song et al. 2021, section 3.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from vfl_node.crypto.randomness import Randomness


class Substitute(Protocol):
    """Puts synthetic embeddings in the place of rows that the passive party does not own."""

    def __call__(self, label: str, embedding: Tensor, real: Tensor, *, learn: bool) -> Tensor:
        """float32[B, d]: ``embedding``, with its graph, where ``real``, a drawn one elsewhere.

        Args:
            label: names the draw (``step/17``, ``batch/3``): the same label, the same noise.
            embedding: float32[B, d] of every row; where it is not real, of one that sampling put there.
            real: bool[B], on the same device.
            learn: whether running averages go on with this batch.

        Leaks: which rows are synthetic, to whoever looks at the embeddings of one batch.
        """

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint, and a model that is kept for predictions, must hold; on the CPU."""

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`tensors` gave."""


def noise(randomness: Randomness, label: str, like: Tensor) -> Tensor:
    """Standard normal, float32, of the shape and on the device of ``like``; drawn on the CPU."""
    drawn = randomness.derive(f"synthetic embeddings/{label}").normal(tuple(like.shape))
    return torch.from_numpy(drawn).to(like.device)
