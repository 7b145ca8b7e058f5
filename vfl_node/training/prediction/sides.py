"""The contract of one party's half of a model that is asked for predictions, and what every half has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.alignment.alignment import NOT_MINE, Alignment
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import LabelColumn, Table
from vfl_node.job import Serve
from vfl_node.roles import Task
from vfl_node.settings.node import DEFAULT_TABLE
from vfl_node.training.prediction.batches import Batches

Positions = NDArray[np.int64]
Probabilities = NDArray[np.float64]


@dataclass(frozen=True)
class ServiceTerms:
    """What all parties of a model have in common when it is asked for predictions.

    Attributes:
        serve: the section of the training job.
        batches: 32 bytes that all parties know: the seed by which the shared rows are cut into batches.
        task: of the model.
        classes: how many classes it has; of no meaning in a regression.
        width: d, how many numbers an embedding has.
        dtype: of these numbers.
    """

    serve: Serve
    batches: bytes
    task: Task
    classes: int
    width: int
    dtype: torch.dtype = torch.float32

    @property
    def outputs(self) -> tuple[int, ...]:
        """The shape of one row's prediction: one number, or K of K > 2 classes."""
        return () if self.classes == 2 else (self.classes,)


class ServiceSide(ABC):
    """What every party has: the shared rows, and the batches in which they are hidden.

    Args:
        terms: of the model.
        alignment: the one of the training, or a new one.
        table: the party's records that were aligned.

    Attributes:
        draws: what this party's attacks on what it sends draw from.
        table_name: what this party's settings call its table.
        makes_rows_up: whether some of the rows that it sends may be synthetic, so that they are attacked first.
    """

    draws: Randomness
    table_name: str = DEFAULT_TABLE
    makes_rows_up: ClassVar[bool] = True

    def __init__(self, terms: ServiceTerms, alignment: Alignment, table: Table) -> None:
        self.terms, self.alignment = terms, alignment
        self._table = table
        self._position = np.full(len(table), NOT_MINE)
        self._position[alignment.rows[alignment.owned]] = np.flatnonzero(alignment.owned)

    @property
    def labels(self) -> LabelColumn | None:
        """[n] of this party's table, if it has any."""
        return self._table.labels

    @property
    def label_column(self) -> str:
        """Its name; empty without."""
        return self._table.label

    @property
    def table_ids(self) -> Identifiers:
        """Ids of this party's table."""
        return self._table.ids

    @cached_property
    def batches(self) -> Batches:
        """How the shared rows are cut into batches."""
        return Batches(self.terms.batches, len(self.alignment), self.terms.serve.batch_size)

    @cached_property
    def _keys(self) -> NDArray[np.uint64]:
        """Keys of this party's ids, ascending."""
        return _keys(self._table.ids)[self._table.ids.canonical_order]

    def rows(self, ids: Identifiers) -> Positions:
        """The row of each of ``ids`` in this party's table, int64[k]; :data:`NOT_MINE` if it has none. Takes 1 µs an id."""
        own = self._table.ids
        order = own.canonical_order
        near = order[np.minimum(np.searchsorted(self._keys, _keys(ids)), len(order) - 1)]
        same = np.fromiter((ours == theirs for ours, theirs in zip(own.take(near), ids, strict=True)), np.bool_, len(ids))
        return np.where(same, near, NOT_MINE)

    @abstractmethod
    def own(self, positions: Positions) -> list[bytes]:
        """This party's own columns of each row at shared ``positions``, int64[B], as its model reads them; all equally long.

        The same for the same columns, in whatever table and alignment.
        """

    def ids(self, positions: Positions) -> list[bytes]:
        """The id of each row at shared ``positions``, int64[B]; this party owns all of them."""
        return self._table.ids.take(self.alignment.rows[positions])

    def positions(self, ids: Identifiers) -> Positions:
        """The shared position of each of ``ids``, int64[k]; :data:`NOT_MINE` if this party has no shared record of that id."""
        rows = self.rows(ids)
        return np.where(rows == NOT_MINE, NOT_MINE, self._position[rows])


@dataclass(frozen=True)
class Unnamed:
    """Full batches of rows that are not named.

    Attributes:
        count: how many batches.
        embedding: number of a batch → its embedding, float[B, d].
        synthetic: number of a batch → bool[B], which of its rows are synthetic.
        agreed: number of a batch → the shared positions of its rows, int64[B]; None if it is not one of the agreed batches.
        places: int64[n], the place of each row of the request in all batches together.
    """

    count: int
    embedding: Callable[[int], Tensor]
    synthetic: Callable[[int], NDArray[np.bool_]]
    agreed: Callable[[int], Positions | None]
    places: Positions


class EmbeddingSide(ServiceSide):
    """A passive party's half. Its embeddings may be sent as they are."""

    @abstractmethod
    def embed_shared(self, positions: Positions) -> Tensor:
        """Embedding float[B, d] at shared ``positions`` of the training; on one machine the same bits every time."""

    @abstractmethod
    def embed_new(self, positions: Positions) -> Tensor:
        """As :meth:`embed_shared`, for rows of a new alignment: a function of their columns, up to rounding."""

    def draw_positions(self, most: int) -> Positions:
        """At most ``most`` different shared positions: those of whole batches, in a random order."""
        positions = np.empty(0, dtype=np.int64)
        for number in self.draws.derive("audit of predictions").permutation(len(self.batches)).tolist():
            if len(positions) >= most:
                break
            positions = np.union1d(positions, self.batches.positions(number))
        return positions[:most]

    def hide_rows(self, table: Table) -> Unnamed:
        """The rows of ``table``, whose ids need not be known, hidden in full batches.

        Called only if the active party's half is :attr:`ScoringSide.unnamed`.

        Raises:
            DataError: the table lacks a column of the model (``E_COLUMN``).
        """
        raise NotImplementedError(f"{type(self).__name__} sends named rows only")


class ScoringSide(ServiceSide):
    """The active party's half.

    Attributes:
        unnamed: whether only one party has columns, a passive one, so nobody need know to which row an embedding belongs.
    """

    unnamed: bool = False

    @abstractmethod
    def own_probability(self, positions: Positions, embeddings: Sequence[Tensor]) -> Probabilities:
        """Predictions for this party, float64[B] or float64[B, K], of the rows at ``positions``.

        They are probabilities; in a regression numbers in the target's unit.

        Args:
            positions: int64[B].
            embeddings: of these rows, float[B, d] of each passive party, in the job's order.
        """

    @abstractmethod
    def probability(self, positions: Positions, embeddings: Sequence[Tensor]) -> Probabilities:
        """As :meth:`own_probability`, for a passive party."""

    def probability_unnamed(self, embeddings: Sequence[Tensor]) -> Probabilities:
        """As :meth:`probability`, for rows that are not named; possible only if this party is :attr:`unnamed`."""
        raise NotImplementedError(f"{type(self).__name__} predicts named rows only")


def _keys(ids: Identifiers) -> NDArray[np.uint64]:
    """The first 64 bits of each id's SHA-256, by which :attr:`Identifiers.canonical_order` sorts."""
    return ids.ranks()[:, 0].astype(np.uint64)
