"""One party's rows as a bottom reads them, looked up by shared position."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from vfl_node.data.features import Features
from vfl_node.models.inputs import ModelInput
from vfl_node.models.schema import InputSchema


class PositionedInput:
    """All rows that a party reads, on the device of its model.

    Args:
        schema: of the rows.
        rows: n rows.
        source: int64[m], the row that is used at each shared position.
        device: where the model is.
    """

    def __init__(self, schema: InputSchema, rows: ModelInput, source: NDArray[np.int64], device: torch.device) -> None:
        self.schema = schema
        self._rows = rows.to(device)
        self._source = source
        self._device = device

    @classmethod
    def of(cls, features: Features, source: NDArray[np.int64], device: torch.device) -> PositionedInput:
        """Of a table's encoded columns."""
        schema = InputSchema(features.numeric.shape[1], features.cardinalities)
        return cls(
            schema, ModelInput(torch.from_numpy(features.numeric), torch.from_numpy(features.categorical)), source, device
        )

    def at(self, positions: NDArray[np.int64]) -> ModelInput:
        """The rows at shared ``positions``, int64[B]."""
        return self._rows.take(torch.from_numpy(self._source[positions]).to(self._device))
