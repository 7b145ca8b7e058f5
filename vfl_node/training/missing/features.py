"""Synthetic features: which of its own rows a party uses where it does not own the shared one.

``sampling`` (FLORIST, section 4.2) takes a whole real row, so that the columns keep their
joint distribution. Each shared position has *one* source row for the whole job, in every
epoch, repeat and evaluation: the peer meets the position again and again, and a row that is
drawn anew jumps where a real one drifts (redrawn rows are told apart at AUC .86 after two
epochs and 1.00 after ten; fixed ones stay at .50 under the same attack).

Source: Song et al. 2021, section 4.2 and Theorem 2; the fixed draw is ours.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.alignment import Alignment
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import DataError, UsageError

Strategy = Callable[[int, int, Randomness], NDArray[np.int64]]
"""(own rows, shared rows m, private randomness) → a source row for each of the m positions."""


def sampling(own_rows: int, shared_rows: int, randomness: Randomness) -> NDArray[np.int64]:
    """A uniform own row for every position, drawn whether it is needed or not.

    The draw at a position depends on the party's secret seed and the position alone.
    """
    return randomness.derive("synthetic rows").choices(own_rows, shared_rows)


def none(own_rows: int, shared_rows: int, randomness: Randomness) -> NDArray[np.int64]:
    """No substitute: fit only for an alignment whose rows both parties own."""
    raise UsageError(
        "some shared rows are not this party's own and train.missing.features is none",
        hint="set train.missing.features: sampling, or align by psi",
    )


FEATURES: dict[str, Strategy] = {"sampling": sampling, "none": none}


def source_rows(alignment: Alignment, own_rows: int, strategy: str, randomness: Randomness) -> NDArray[np.int64]:
    """The local row whose features this party uses at each shared position, int64[m].

    Args:
        alignment: this party's view of the shared rows.
        own_rows: number of rows in its table.
        strategy: name in :data:`FEATURES`.
        randomness: this party's own, kept with the job; the same gives the same rows.

    Raises:
        DataError: the party has no row at all (``E_EMPTY``).
        UsageError: rows are missing and the strategy does not fill them.
    """
    if own_rows == 0:
        raise DataError("this party's table has no rows", code="E_EMPTY")
    if alignment.owned.all():
        return alignment.rows
    return np.where(alignment.owned, alignment.rows, FEATURES[strategy](own_rows, len(alignment), randomness))
