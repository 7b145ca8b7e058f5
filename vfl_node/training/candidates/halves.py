"""What both halves of a training over candidates have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from vfl_node.models.storage import add_prefix


@dataclass
class Crossed:
    """How many embeddings and gradients have crossed the wire in a repeat.

    Attributes:
        distinct: embeddings, each once a batch.
        places: that they stand at: K for each row of each batch.
        gradients: of the embeddings of training batches.
    """

    distinct: int = 0
    places: int = 0
    gradients: int = 0

    def count(self, distinct: int, places: int) -> None:
        """Note a batch of embeddings."""
        self.distinct, self.places = self.distinct + distinct, self.places + places

    def to_json(self) -> dict[str, int]:
        """For the report."""
        return asdict(self)

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint must hold."""
        return add_prefix("crossed", {"counts": torch.tensor([self.distinct, self.places, self.gradients])})

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Crossed:
        """What :meth:`tensors` gave."""
        return cls(*map(int, tensors["counts"]))
