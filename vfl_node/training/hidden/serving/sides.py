"""The halves of a model with opened weights: a passive party's part of the first layer, and the active party's rest.

A passive party j sends X_j W_j, float64[B, first width]: no more is needed, and no less. The active party adds all parts, its
own and the bias, and applies the layers behind. Every party owns every row, so no row is made up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from vfl_node.alignment.alignment import Alignment
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import Table
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.opened import HINT, WHAT, Floats, OpenedHalf, placed
from vfl_node.training.hidden.serving.stored import StoredBatches
from vfl_node.training.service.sides import EmbeddingSide, Positions, Probabilities, ScoringSide, ServiceSide, ServiceTerms
from vfl_node.training.serving import StoredModel
from vfl_node.versions import damaged

MOST = 2.0**40
"""What others send is cut off there, so that sums stay finite whatever it is; no true part is nearly as large."""


class OpenedSide(ServiceSide):
    """What every party has: its columns as they were trained on, and its weights.

    Args:
        model: its half.
        alignment: the one of the training, or a new one; every party owns every row.
        table: the party's records that were aligned.

    Raises:
        DataError: the table lacks a column of the model (``E_COLUMN``).
        StateError: the stored model is damaged (``E_STATE_CORRUPT``), or another version stored it (``E_STATE_VERSION``).
    """

    makes_rows_up: ClassVar[bool] = False

    def __init__(self, model: StoredModel, alignment: Alignment, table: Table) -> None:
        super().__init__(terms_of(model), alignment, table)
        self.draws = Randomness(self.terms.batches)  # for attacks on rows that are made up, of which there are none
        self._half = OpenedHalf(model)
        self._columns = self._half.columns(table)

    def _part(self, positions: Positions) -> Floats:
        return self._half.part(placed(self._columns, self.alignment, positions))


class PartOfScores(OpenedSide, EmbeddingSide):
    """A passive party's half."""

    def shared(self, positions: Positions) -> Tensor:
        """X W at shared ``positions``, float64[B, first width]."""
        return torch.from_numpy(self._part(positions))

    def new(self, positions: Positions) -> Tensor:
        """The same."""
        return self.shared(positions)


class SumOfScores(OpenedSide, ScoringSide):
    """The active party's half."""

    def __init__(self, model: StoredModel, alignment: Alignment, table: Table) -> None:
        super().__init__(model, alignment, table)
        if not self._half.active:
            raise damaged(WHAT, HINT)

    def expected(self, positions: Positions, embeddings: Sequence[Tensor]) -> Probabilities:
        """What the model says; every party owns every row, so it is the same for all."""
        return self.probability(positions, embeddings)

    def probability(self, positions: Positions, embeddings: Sequence[Tensor]) -> Probabilities:
        """What the model says."""
        parts = (np.clip(embedding.numpy(), -MOST, MOST) for embedding in embeddings)
        return self._half.predicted(sum(parts, self._part(positions)))


def terms_of(model: StoredModel) -> ServiceTerms:
    """What all parties of the model have in common."""
    train, serve = Hidden.of(model.job), model.job.serve
    assert serve is not None
    batches = bytes.fromhex(StoredBatches.from_json(model.state).batches)
    return ServiceTerms(serve, batches, train.task, train.classes, train.first_width, torch.float64)
