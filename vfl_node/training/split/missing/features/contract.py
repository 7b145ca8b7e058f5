"""What a feature strategy gives: rows of columns, or embeddings in the place of those of copied rows.

Synthetic embeddings are for comparison only: they are told from real ones almost surely (AUC close to 1, Table 2).

Source: Song et al. 2021, section 3.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.configuration.registry import load
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Features
from vfl_node.training.split.missing.strategies import FeatureStrategy


class Rows(Protocol):
    """Makes up rows; called once for each block of consecutive shared positions."""

    def __call__(self, sources: NDArray[np.int64], randomness: Randomness) -> Features:
        """One row for each of ``sources``.

        Args:
            sources: int64[b], a random own row for each position of the block.
            randomness: of this block alone.
        """


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


def synthetic_rows(strategy: FeatureStrategy, own: Features, randomness: Randomness) -> Rows:
    """What makes rows up by a ``strategy`` that has :attr:`~FeatureStrategy.rows`.

    Args:
        strategy: as the job chose it.
        own: the party's n rows, in the scaling of its whole table.
        randomness: of this strategy alone.

    Raises:
        UsageError: its package cannot be loaded (``E_EXTENSION``).
    """
    rows: Rows = load(strategy.rows, what="a strategy of train.missing.features")(strategy, own, randomness)
    return rows


def substitute(strategy: FeatureStrategy, randomness: Randomness) -> Substitute | None:
    """What puts synthetic embeddings in the place of those of copied rows; None where the ``strategy`` makes up columns only.

    Raises:
        UsageError: its package cannot be loaded (``E_EXTENSION``).
    """
    if not strategy.embeddings:
        return None
    embeddings: Substitute = load(strategy.embeddings, what="a strategy of train.missing.features")(strategy, randomness)
    return embeddings
