"""Synthetic labels: what the active party takes for the label of a row it does not own.

It always generates a label and lets the gradient follow; gradients made up directly are
told apart (FLORIST, section 4.1).

Source: Song et al. 2021, section 4.1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.alignment import Alignment
from vfl_node.errors import DataError, UsageError

Strategy = Callable[[NDArray[np.float32], int], NDArray[np.float32]]
"""(real labels seen in training, number of missing ones) → the missing ones."""


def majority(real: NDArray[np.float32], missing: int) -> NDArray[np.float32]:
    """The more frequent class of the real labels; the negative one if they are even."""
    return np.full(missing, 1.0 if real.mean() > 0.5 else 0.0, dtype=np.float32)


def none(real: NDArray[np.float32], missing: int) -> NDArray[np.float32]:
    """No substitute: fit only for an alignment whose rows the active party owns."""
    raise UsageError(
        "some shared rows have no label at the active party and train.missing.labels is none",
        hint="set train.missing.labels: majority, or align by psi",
    )


LABELS: dict[str, Strategy] = {"majority": majority, "none": none}


def shared_labels(
    alignment: Alignment, labels: NDArray[np.float32], train: NDArray[np.int64], strategy: str
) -> NDArray[np.float32]:
    """The label used at each shared position: real where owned, else synthetic. float32[m].

    Args:
        alignment: the active party's view.
        labels: float32[n], its own.
        train: shared positions trained on; only their labels decide what the others are.
        strategy: name in :data:`LABELS`.

    Raises:
        DataError: no row trained on has a label (``E_EMPTY``).
        UsageError: labels are missing and the strategy does not fill them.
    """
    rows = alignment.rows[train]
    real = labels[rows[alignment.owned[train]]]
    if len(real) == 0:
        raise DataError(
            "the active party owns none of the shared rows drawn for training, so there is no label to learn from",
            code="E_EMPTY",
            hint="use more records, or a smaller evaluate.test_fraction",
        )
    used = np.where(alignment.owned, labels[alignment.rows], np.float32(0))
    missing = int(np.count_nonzero(~alignment.owned))
    if missing:
        used[~alignment.owned] = LABELS[strategy](real, missing)
    return used
