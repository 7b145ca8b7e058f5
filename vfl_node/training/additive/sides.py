"""The halves of an additive model in predictions: a passive party's partial scores, and the active party's rest.

A passive party j sends X_j W_j, float64[B, width]. The active party adds all parts and its own, and applies what is behind.
Every party owns every row, so no row is made up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from vfl_node.alignment.alignment import Alignment
from vfl_node.configuration.versions import damage_error
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import Table
from vfl_node.training.additive.half import HINT, WHAT, AdditiveHalf, Floats
from vfl_node.training.additive.stored import StoredBatches
from vfl_node.training.prediction.sides import EmbeddingSide, Positions, Probabilities, ScoringSide, ServiceSide, ServiceTerms
from vfl_node.training.predictor import StoredModel

MOST = 2.0**40
"""What others send is cut off there, so that sums stay finite whatever it is; no true part is nearly as large."""


class AdditiveSide(ServiceSide):
    """What every party has: its columns as they were trained on, and its weights.

    Args:
        model: what it has stored.
        half: the same, opened.
        alignment: the one of the training, or a new one; every party owns every row.
        table: the party's records that were aligned.

    Raises:
        DataError: the table lacks a column of the model (``E_COLUMN``).
        StateError: the stored model is damaged (``E_STATE_CORRUPT``), or another version stored it (``E_STATE_VERSION``).
    """

    makes_rows_up: ClassVar[bool] = False

    def __init__(self, model: StoredModel, half: AdditiveHalf, alignment: Alignment, table: Table) -> None:
        super().__init__(terms_of(model, half), alignment, table)
        self.table_name = model.table
        self.draws = Randomness(self.terms.batches)  # for attacks on rows that are made up, of which there are none
        self._half, self._columns = half, half.columns(table)

    @override
    def own(self, positions: Positions) -> list[bytes]:
        return [row.tobytes() for row in self._columns[self.alignment.rows[positions]]]

    def _part(self, positions: Positions) -> Floats:
        return self._half.part(self._columns, self.alignment, positions)


class PartOfScores(AdditiveSide, EmbeddingSide):
    """A passive party's half."""

    def embed_shared(self, positions: Positions) -> Tensor:
        """X W at shared ``positions``, float64[B, width]."""
        return torch.from_numpy(self._part(positions))

    def embed_new(self, positions: Positions) -> Tensor:
        """The same: a row has the same bits in every batch and alignment, on one machine."""
        return self.embed_shared(positions)


class SumOfScores(AdditiveSide, ScoringSide):
    """The active party's half."""

    def __init__(self, model: StoredModel, half: AdditiveHalf, alignment: Alignment, table: Table) -> None:
        super().__init__(model, half, alignment, table)
        if half.predicted is None:
            raise damage_error(WHAT, HINT)
        self._predicted = half.predicted

    def own_probability(self, positions: Positions, embeddings: Sequence[Tensor]) -> Probabilities:
        """What the model says; every party owns every row, so it is the same for all."""
        return self.probability(positions, embeddings)

    def probability(self, positions: Positions, embeddings: Sequence[Tensor]) -> Probabilities:
        """What the model says."""
        parts = (np.clip(embedding.numpy(), -MOST, MOST) for embedding in embeddings)
        return self._predicted(sum(parts, self._part(positions)))


def terms_of(model: StoredModel, half: AdditiveHalf) -> ServiceTerms:
    """What all parties of the model have in common."""
    train, serve = model.job.train, model.job.serve
    assert train is not None
    assert serve is not None
    batches = bytes.fromhex(StoredBatches.from_json(model.state).batches)
    return ServiceTerms(serve, batches, train.task, train.classes, half.weight.shape[1], torch.float64)
