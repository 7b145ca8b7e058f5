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
        self._fetched: tuple[NDArray[np.int64], ModelInput] | None = None

    @classmethod
    def from_features(
        cls, features: Features, source: NDArray[np.int64], device: torch.device, *, images: bool = False
    ) -> PositionedInput:
        """The rows of a table, from its encoded columns.

        Args:
            features: n rows.
            source: int64[m], the row that is used at each shared position.
            device: where the model is.
            images: whether the model reads images (:meth:`vfl_node.models.Architecture.reads_images`); else pixels are numeric
                columns as any other.
        """
        numeric, categorical = features.numeric, torch.from_numpy(features.categorical)
        bags = None if features.bags is None else torch.from_numpy(features.bags)
        if features.pixels is None or not images:
            schema = InputSchema(numeric.shape[1], features.cardinalities, lists=features.lists)
            return cls(schema, ModelInput(torch.from_numpy(numeric), categorical, bags=bags), source, device)
        pixels, shape = features.pixels.columns, features.pixels.shape
        other = np.delete(numeric, pixels, axis=1)
        image = torch.from_numpy(numeric[:, pixels].reshape(-1, *shape))  # (n, c, h, w)
        schema = InputSchema(other.shape[1], features.cardinalities, shape, lists=features.lists)
        return cls(schema, ModelInput(torch.from_numpy(other), categorical, image, bags=bags), source, device)

    def __len__(self) -> int:
        """Shared positions."""
        return len(self._source)

    def fetch(self, positions: NDArray[np.int64]) -> None:
        """Look up the rows that are taken next."""
        self._fetched = positions, self._look_up(positions)

    def take(self, positions: NDArray[np.int64]) -> ModelInput:
        """The rows at shared ``positions``, int64[B]."""
        fetched, self._fetched = self._fetched, None
        return fetched[1] if fetched and fetched[0] is positions else self._look_up(positions)

    def _look_up(self, positions: NDArray[np.int64]) -> ModelInput:
        return self._rows.take(torch.from_numpy(self._source[positions]).to(self._device))

    def select(self, source: NDArray[np.int64]) -> PositionedInput:
        """The same rows, looked up by place in ``source``, int64[u]; no row is copied."""
        return PositionedInput(self.schema, self._rows, source, self._device)
