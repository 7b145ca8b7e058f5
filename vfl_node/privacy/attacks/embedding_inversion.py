"""Embedding inversion: with initial weights that are publicly known, first embeddings give raw features back.

The first batch's embedding is f(x; θ₀). Where θ₀ follows from a seed that the peer knows,
the peer can solve f(x) = h for x: with more units at the cut layer than columns there are
more equations than unknowns. Hence initial weights are each party's secret.

Method: nonlinear least squares by Levenberg–Marquardt (Marquardt 1963), every row on its own,
from several random starting points. A ReLU network is linear in pieces, so a step in the
right piece is exact.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import jacfwd, vmap

from vfl_node.crypto.randomness import Randomness


def invert(
    bottom: Callable[[Tensor], Tensor],
    embeddings: Tensor,
    *,
    width: int,
    randomness: Randomness,
    starts: int = 8,
    iterations: int = 60,
) -> tuple[Tensor, Tensor]:
    """Find features whose embedding is the one received.

    Args:
        bottom: what the attacker believes the network to be: float[B, p] → float[B, d].
        embeddings: float[B, d], as received, of the dtype the network computes in (float64
            goes further).
        width: p, number of columns, which are taken to be standardised.
        randomness: draws the starting points.
        starts: starting points per row; the best result counts.
        iterations: steps from each.

    Returns:
        Features float[B, p], and the error ‖f(x) − h‖ / ‖h‖ that remains, float[B], by which
        the attacker knows where it succeeded.

    Cost: starts · iterations · B · d · p² multiplications, and B · d · p numbers in memory.
    """
    best = torch.zeros(len(embeddings), width, dtype=embeddings.dtype)
    best_error = torch.full((len(embeddings),), torch.inf, dtype=embeddings.dtype)
    for _ in range(starts):
        start = torch.from_numpy(randomness.normal((len(embeddings), width))).to(embeddings.dtype)
        features = _levenberg_marquardt(bottom, embeddings, start, iterations)
        error = _error(bottom, features, embeddings)
        better = error < best_error
        best = torch.where(better[:, None], features, best)
        best_error = torch.where(better, error, best_error)
    return best, best_error / embeddings.norm(dim=1).clamp_min(torch.finfo(embeddings.dtype).tiny)


def _levenberg_marquardt(bottom: Callable[[Tensor], Tensor], target: Tensor, x: Tensor, iterations: int) -> Tensor:
    """Lower ‖bottom(x) − target‖ of every row from the starting points ``x``, float[B, p]."""
    jacobian = vmap(jacfwd(lambda row: bottom(row[None])[0]))
    damping = torch.full((len(x),), 1e-2, dtype=x.dtype)
    identity = torch.eye(x.shape[1], dtype=x.dtype)
    error = _error(bottom, x, target)
    for _ in range(iterations):
        with torch.no_grad():
            slope = jacobian(x)  # (B, d, p)
            missing = (target - bottom(x))[:, :, None]  # (B, d, 1)
            normal = slope.mT @ slope + damping[:, None, None] * identity  # (B, p, p)
            step, _ = torch.linalg.solve_ex(normal, slope.mT @ missing)  # (B, p, 1); a singular row's is refused below
            candidate = x + step[:, :, 0]
        candidate_error = _error(bottom, candidate, target)
        lower = candidate_error < error
        x = torch.where(lower[:, None], candidate, x)
        error = torch.where(lower, candidate_error, error)
        damping = torch.where(lower, damping / 4, damping * 4).clamp(1e-10, 1e10)
    return x


def _error(bottom: Callable[[Tensor], Tensor], x: Tensor, target: Tensor) -> Tensor:
    with torch.no_grad():
        return (bottom(x) - target).norm(dim=1)
