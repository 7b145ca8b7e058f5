"""The feature strategy ``mixed``."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from vfl_example.mixed_spec import Mixed
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Features

Cell = TypeVar("Cell", np.float32, np.int64)


class MixedRows:
    """Synthetic rows: each cell is taken from a row of the party's own, drawn at random."""

    def __init__(self, strategy: Mixed, own: Features, randomness: Randomness) -> None:
        self._own = own

    def __call__(self, sources: NDArray[np.int64], randomness: Randomness) -> Features:
        """One row for each of ``sources``, int64[b]. It is drawn for every position, whoever owns the row."""
        numeric = self._mixed(self._own.numeric, len(sources), randomness.derive("numeric"))
        categorical = self._mixed(self._own.categorical, len(sources), randomness.derive("categorical"))
        return Features(numeric, categorical, self._own.cardinalities)

    def _mixed(self, columns: NDArray[Cell], rows: int, randomness: Randomness) -> NDArray[Cell]:
        chosen = randomness.choices(len(columns), rows * columns.shape[1]).reshape(rows, columns.shape[1])
        return columns[chosen, np.arange(columns.shape[1])]
