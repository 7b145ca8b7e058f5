"""Which of its own records the active party learns from by itself, and on which its own models are measured."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.alignment import Alignment

Rows = NDArray[np.int64]

NO_POSITIONS: Rows = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class OwnRows:
    """Rows of the active party's table, all of which have a label.

    Its own models need nobody else's columns, so they learn from records outside of the alignment, too. Only the records at
    held-out shared positions stay out, which are those that every model is measured on.

    Attributes:
        training: int64[n], those it learns from, ascending.
        tested: int64[k], those it is measured on, in the order of the shared positions.
        positions: number of shared positions measured on, whoever owns them.
        validation: int64[v], those that decide when training stops, in the order of the shared positions.
        validation_positions: number of shared positions set apart for that, whoever owns them.
    """

    training: Rows
    tested: Rows
    positions: int
    validation: Rows = field(default_factory=lambda: NO_POSITIONS)
    validation_positions: int = 0

    @classmethod
    def select(
        cls,
        alignment: Alignment,
        testing: Rows,
        *,
        held_out: bool,
        records: int,
        validation: Rows = NO_POSITIONS,
        order: NDArray[np.float64] | None = None,
    ) -> OwnRows:
        """The rows of one repeat.

        Args:
            alignment: as this party sees it.
            testing: shared positions measured on.
            held_out: whether they are held out of the training; without, all rows are learnt from.
            records: number of rows of the table.
            validation: shared positions set apart for validation.
            order: float64[records], where the last shared rows are held out. Then records after the last shared one that is
                trained on stay out, too: from later records a model would know what no model can know in time.
        """
        tested, decide = (alignment.rows[positions][alignment.owned[positions]] for positions in (testing, validation))
        free = np.ones(records, np.bool_)
        free[tested] = not held_out
        free[decide] = False
        if order is not None:
            trained = np.setdiff1d(alignment.rows[alignment.owned], np.concatenate([tested, decide]))
            free &= order <= order[trained].max()
        return cls(np.flatnonzero(free), tested, len(testing), decide, len(validation))

    def exclude(self, rows: Rows) -> OwnRows:
        """The same, but that a model learns from none of ``rows``, int64[u]."""
        return replace(self, training=np.setdiff1d(self.training, rows))

    @property
    def not_held_out(self) -> Rows:
        """All that a model may learn from that needs no validation, int64[n + v], ascending."""
        return np.sort(np.concatenate([self.training, self.validation]))
