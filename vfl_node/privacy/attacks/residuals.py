"""Telling dummies from genuine rows by one's own gradients.

In asymmetric training the strong (passive) party processes m rows, of which only those in I
are genuine: the residual dᵢ of a dummy is 0. It never sees d, but in each round its own
gradient g = Xᵀd / scale in the clear, a linear image of d with d_s equations, and it knows X
and the batch. Three ways lead from g back to d:

* **exactly**, for every row of leverage 1 (:func:`leverages`): all rows of a batch of at most
  d_s rows of full rank, and at any size a row that alone fills some column;
* **statistically** (:func:`scores`): the shortest d that explains g is the projection of d on
  the columns of X, and over many rounds it is larger where d is not 0;
* **by response** (:func:`response`): when the strong party's weights move, the residual of a
  genuine row moves with its score and a dummy's does not. Strong where the weak party adds
  little of its own to a score, as one without features does.

Who attacks: the strong party, which follows the protocol. Scores are larger for rows more
likely genuine. The scale, 1/|I|, need not be known.

Source: the reference notes on asymmetrical vertical federated learning (Liu et al. 2020); the
paper runs no attack. The response attack is the project's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NEGLIGIBLE = 1e-10
"""Singular values below this share of the largest are rounding."""


@dataclass(frozen=True, eq=False)
class Round:
    """One round as the strong party sees it.

    Attributes:
        rows: int64[B], the batch.
        gradient: float64[d_s], Xᵀd / scale over the batch, without the penalty's λθ.
    """

    rows: NDArray[np.int64]
    gradient: Floats


def leverages(x: Floats) -> Floats:
    """How much of each row's residual a gradient determines by itself, float64[B] in 0 … 1.

    Args:
        x: float64[B, d_s], the batch's columns.

    Returns:
        xᵢᵀ(XᵀX)⁺xᵢ; they sum to the rank. At 1 the residual follows exactly, at 0 not at all.
    """
    left, _, _ = _factors(x)
    return _squares(left)


def solve(x: Floats, gradient: Floats) -> Floats:
    """The shortest residuals, float64[B], with Xᵀd = ``gradient``; those of rows of leverage 1 are the true ones.

    Args:
        x: float64[B, d_s], the batch's columns.
        gradient: float64[d_s].
    """
    left, values, right = _factors(x)
    return left @ ((right @ gradient) / values)


def scores(x: Floats, rounds: Iterable[Round]) -> Floats:
    """Mean over rounds of d̂²/leverage, float64[m]: what is found of a row's residual, per what can be found.

    Args:
        x: float64[m, d_s], the strong party's columns.
        rounds: each with its batch.

    Returns:
        Larger: more likely genuine. NaN for a row met in no batch.

    Cost: one singular value decomposition of [B, d_s] for each change of batch.
    """
    total, count = np.zeros(len(x)), np.zeros(len(x))
    rows = np.empty(0, dtype=np.int64)
    for round_ in rounds:
        if not np.array_equal(rows, round_.rows):  # a full batch is the same in every round
            rows = round_.rows
            left, values, right = _factors(x[rows])
            leverage = np.maximum(_squares(left), NEGLIGIBLE)
        projection = left @ ((right @ round_.gradient) / values)
        total[rows] += projection**2 / leverage
        count[rows] += 1
    return np.divide(total, count, out=np.full(len(x), np.nan), where=count > 0)


def response(
    x: Floats, weights: Floats, gradients: Floats, *, intercepts: Floats | None = None, smallest: float = 1e-4
) -> Floats:
    """How much each row's residual answers to the strong party's own score, float64[m].

    With zᵢ = 1/|I| for genuine rows and 0 for dummies, gᵗ − g⁰ = Σᵢ zᵢ·(hᵢᵗ − hᵢ⁰)·xᵢ. The
    attacker takes hᵢ = σ(θᵗ·xᵢ), as if the weak party added nothing, and solves for z: (T − 1)·d_s
    equations, of which the fewer count the straighter the weights' path.

    Args:
        x: float64[m, d_s], the strong party's columns, full batch.
        weights: float64[T, d_s], its weights before each round used.
        gradients: float64[T, d_s], its gradients in these rounds, without the penalty's λθ.
        intercepts: float64[T], what the weak party added to every score, for an attacker who learnt it.
        smallest: singular values below this share of the largest are left out.

    Returns:
        Larger: more likely genuine.

    Cost: one singular value decomposition of [(T − 1)·d_s, m]; some dozens of rounds tell as much as all.
    """
    added = np.zeros(len(weights)) if intercepts is None else intercepts
    h = 1 / (1 + np.exp(-(weights @ x.T + added[:, None])))  # (T, m)
    moved = (h[1:] - h[0])[:, None, :] * x.T  # (T-1, d_s, m)
    left, values, right = _factors(moved.reshape(-1, len(x)), smallest)
    z = right.T @ ((left.T @ (gradients[1:] - gradients[0]).ravel()) / values)
    even = right.T @ right.sum(axis=1)  # what the same z for every row would look like
    return (z - (even @ z) / (even @ even) * even) / np.sqrt(np.maximum(_squares(right.T), NEGLIGIBLE))


def _factors(x: Floats, smallest: float = NEGLIGIBLE) -> tuple[Floats, Floats, Floats]:
    """U[:, r], singular values[r] and Vᵀ[r, :] of ``x``, r its rank."""
    left, values, right = np.linalg.svd(x, full_matrices=False)
    rank = int(np.count_nonzero(values > smallest * values.max(initial=0.0)))
    return left[:, :rank], values[:rank], right[:rank]


def _squares(rows: Floats) -> Floats:
    return np.einsum("ij,ij->i", rows, rows)
