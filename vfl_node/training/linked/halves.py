"""What both halves of a training over candidates have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.models.storage import prefixed
from vfl_node.privacy.audit import Audit
from vfl_node.session.session import Session
from vfl_node.training.network.half import Positions
from vfl_node.training.trainer import TrainingData


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
        return prefixed("crossed", {"counts": torch.tensor([self.distinct, self.places, self.gradients])})

    @classmethod
    def restored(cls, tensors: Mapping[str, Tensor]) -> Crossed:
        """What :meth:`tensors` gave."""
        return cls(*map(int, tensors["counts"]))


def no_audit(session: Session, data: TrainingData, training: Positions, randomness: Randomness) -> Audit:
    """Attacks that find synthetic rows: none, since there is no such row."""
    real = np.zeros(len(data.alignment), dtype=np.bool_)
    return Audit(session.name, real, training, randomness.derive("audit"), limit=None, attacks={})
