"""Recovering the strong party's columns from its scores in the clear.

In the two-party flow, and where a coordinator only decrypts, the active (weak) party receives
u = Xθ of all m rows in every round. U = [u¹ … uᵀ] = XΘ has rank d_s, so X follows up to an
invertible map, and the map follows from about d_s rows whose columns are known
(:func:`extend`). The active party also chose the residuals d that moved θ; with them the map
is a rotation, so that all distances and inner products between rows are known without
knowing any row (:func:`rotate`). The dummies' rows are no exception.

In the coordinator flow scores cross encrypted, and neither applies.

Who attacks: the active party, which follows the protocol.

Source: the reference notes on asymmetrical vertical federated learning (Liu et al. 2020); the
rotation is the project's own finding.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def extend(scores: Floats, known: NDArray[np.int64], columns: Floats) -> Floats:
    """All rows' columns, float64[m, d_s], from those of a few.

    Args:
        scores: U, float64[m, T], one column a round.
        known: int64[k], rows whose columns the attacker knows; d_s of them, or more.
        columns: float64[k, d_s], these rows'.

    Returns:
        Right up to rounding if T ≥ d_s rounds and the known rows span all columns.
    """
    map_, *_ = np.linalg.lstsq(scores[known], columns, rcond=1e-14)  # rounds differ little: directions far apart in size count
    return scores @ map_


def rotate(scores: Floats, residuals: Floats, learning_rate: float, l2: float = 0.0) -> Floats:
    """All rows' columns up to a rotation, float64[m, r]: distances and inner products are the true ones.

    A step is Δu = −η·XXᵀd. With the residuals D = LΣRᵀ of T rounds, XXᵀL = −ΔU·RΣ⁻¹/η = P is
    known, and with it P(LᵀP)⁻¹Pᵀ = XXᵀ if L meets all columns of X. LᵀP = QΛQᵀ gives PQΛ^(−½), X
    times an orthonormal matrix.

    Args:
        scores: U, float64[m, T + 1].
        residuals: D, float64[m, T], as sent: divided by |I|, 0 for a dummy.
        learning_rate: η.
        l2: λ of θ ← θ − η(g + λθ).

    Returns:
        r ≤ d_s coordinates, all d_s after enough rounds.
    """
    steps = scores[:, 1:] - (1 - learning_rate * l2) * scores[:, :-1]  # (m, T)
    left, values, right = np.linalg.svd(residuals, full_matrices=False)
    significant = values > 1e-9 * values.max(initial=0.0)  # smaller ones drown in the rounding of scores
    products = -steps @ right[significant].T / values[significant] / learning_rate  # XXᵀL, (m, k)
    inner = left[:, significant].T @ products
    values, directions = np.linalg.eigh((inner + inner.T) / 2)
    significant = values > 1e-7 * values.max(initial=0.0)
    return products @ (directions[:, significant] / np.sqrt(values[significant]))
