"""What the asker's owner asks of a model that is served: requests, and the queue in which they wait."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vfl_node.data.tables import Table
from vfl_node.errors import VflError


class Request(Protocol):
    """Rows that the asker's owner needs predictions of.

    Attributes:
        over: whether nobody waits for it any more.
    """

    over: bool

    @property
    def table(self) -> Table:
        """The ids of the rows. If rows are not named to the peer, also the model's columns, which are read then."""

    def place(self, row: int) -> str:
        """Where the owner's file has row ``row`` of the table: ``line 7``, or ``row 6`` in a file without lines."""

    def answer(self, probabilities: NDArray[np.float64]) -> None:
        """Receive the predictions: float64[n] or, with more than two classes, float64[n, K], in the table's order."""

    def fail(self, error: VflError) -> None:
        """Receive the reason why this request cannot be answered; other requests can still be."""


class RequestQueue(Protocol):
    """The requests at the asker's node.

    Attributes:
        bell: set by each request that comes, and when no more are taken; cleared by whoever answers them, who then looks.
    """

    bell: Event

    @property
    def closed(self) -> bool:
        """Whether the service ends once no request is left."""

    def take(self) -> Request | None:
        """The next request, or None if there is none at the moment; never blocks.

        A request that was taken and not answered comes again in the next attempt.
        """

    def take_all(self) -> Sequence[Request]:
        """As :meth:`take`, but all that wait, in the order in which they came."""
