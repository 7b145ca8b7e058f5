"""How much of its numbers an evaluator gives away in the noise of its answers, over a whole job. Imports nothing large."""

from __future__ import annotations

import math

from vfl_node.crypto.lattice.parameters import ERROR_VARIANCE, N, Parameters

ADDENDS = 4
"""Uniform numbers whose sum is the noise: their density is a cubic spline, of finite Fisher information."""

FISHER = 3.1158
"""Fisher information of a shift of a sum of four uniform numbers on 0 … 1, rounded up; a normal one of that variance has 3."""

LIMIT = -40.0
"""log2 of the distance that a job may have."""


def log2_distance(parameters: Parameters, terms: int, opened: int) -> float:
    """log2 of an upper bound of the statistical distance between a job's noise, and noise that does not depend on b.

    An opened coefficient has the error Σ e_i·b_i of ``terms`` products, which the key's owner could compute for each b it
    thinks of, hidden by a sum of four uniform integers of 0 … w − 1, w = 2^flood_bits. Let f be the sum's density and δ the
    error. The Hellinger distance of f and f shifted by δ is H² = ½‖√f − √f(· − δ)‖² ≤ ½δ²‖(√f)′‖² = δ²·I/8, where I = FISHER /
    w² is the Fisher information of the shift: a density with edges, as the uniform one, has none, and this one is smooth
    enough. As the noise of coefficients is independent, their 1 − H² multiply, so the job's H² ≤ ΣH², and its distance is at
    most √(2ΣH²) = ½√(I·Σδ²), which is √(KL/2) where the Kullback-Leibler divergence is I·Σδ²/2. It grows with the root of the
    number of coefficients. Sums of integers instead of real numbers change I by a factor of 1 + O(1/w).

    The distance is averaged over the honest errors: E Σδ² = opened · E δ². With |b| ≤ β = 2^multiplier_bits and errors of
    variance 10.5, E (Σ e·b)² ≤ 10.5 · terms · β². Rounding q/t·m adds r·b with |r| ≤ ½, where r depends on m alone. Where
    neither m nor b is random, these may all point in one direction: (½ · terms · β)². With slots, m is random and uniform, so
    that r² ≤ ¼ is added to the variance. Everything else that an answer adds, u and e′ and the rounding of the mask, is
    independent of b.

    Args:
        parameters: the set.
        terms: products in one coefficient: columns for X·b, rows for Xᵀ·b, :func:`slot_terms` for inner products, and for
            monomials all rows of a tally.
        opened: coefficients that the job sends in answers under one party's key, over all products.

    Callers refuse a job with more than 2^:data:`LIMIT`.
    """
    if terms < 1 or opened < 1:
        return -math.inf
    rounding = terms / 4 if parameters.slot_prime else terms * terms / 4
    log2_square = math.log2(ERROR_VARIANCE * terms + rounding) + 2 * parameters.multiplier_bits
    return (math.log2(FISHER * opened) + log2_square) / 2 - parameters.flood_bits - 1


def slot_terms(terms: int) -> int:
    """What :func:`log2_distance` is to know of inner products of so many numbers a row."""
    return (terms + 1) // 2 * N
