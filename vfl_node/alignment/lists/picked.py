"""Identifiers in a secret order, which workers gather from the table's own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.texts import LaidOut, Offsets
from vfl_node.data.identifiers import Identifiers


class Picked:
    """Some identifiers in an order of their own. The worker of a block gathers it; to another process goes its text alone.

    Args:
        ids: all of them.
        places: which, int64[k].
    """

    def __init__(self, ids: Identifiers, places: NDArray[np.int64]) -> None:
        self._ids, self._places = ids, places

    def __len__(self) -> int:
        return len(self._places)

    def part(self, start: int, stop: int) -> Picked:
        """Those from ``start`` to ``stop``."""
        return Picked(self._ids, self._places[start:stop])

    def lay_out(self) -> tuple[bytes, Offsets]:
        """Their text, and where in it each begins and ends."""
        return self._ids.gather(self._places)

    def __reduce__(self) -> tuple[type[LaidOut], tuple[bytes, Offsets]]:
        return LaidOut, self.lay_out()
