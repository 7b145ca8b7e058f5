"""What the owner of the asking party requests of a service."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vfl_node.data.tables import Table
from vfl_node.errors import VflError


class Request(Protocol):
    """Rows that the asker's owner needs predictions of."""

    @property
    def table(self) -> Table:
        """The ids of the rows. If rows are not named to the peer, also the model's columns, which are read then."""

    def line(self, row: int) -> int:
        """The line of the owner's file that has row ``row`` of the table."""

    def answer(self, probabilities: NDArray[np.float64]) -> None:
        """Receive the predictions: float64[n] or, with more than two classes, float64[n, K], in the table's order."""

    def fail(self, error: VflError) -> None:
        """Receive the reason why this request cannot be answered; other requests can still be."""


class RequestQueue(Protocol):
    """The requests at the asker's node."""

    @property
    def closed(self) -> bool:
        """Whether the service ends once no request is left."""

    def take(self) -> Request | None:
        """The next request, or None if there is none at the moment; never blocks.

        A request that was taken and not answered comes again in the next attempt.
        """
