"""The normal draws of synthetic embeddings."""

from __future__ import annotations

import torch
from torch import Tensor

from vfl_node.crypto.randomness import Randomness


def noise(randomness: Randomness, label: str, like: Tensor) -> Tensor:
    """Standard normal, float32, of the shape and on the device of ``like``; drawn on the CPU."""
    drawn = randomness.derive(f"synthetic embeddings/{label}").normal(tuple(like.shape))
    return torch.from_numpy(drawn).to(like.device)
