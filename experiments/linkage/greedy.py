"""The greedy attack of FedSim's Theorem 1: the most probable distance from one similarity.

With ρ ~ N(0, 1) and s = ρ + N(0, σ²) the most probable ρ is s/(σ² + 1), and with it the distance −(σ0·ρ + μ0), rounded as
distances are numbers of bits. The attack then takes any filter at this distance. It has found the right distance with
probability τ = erf(√(σ² + 1) / (2√2·σ·σ0)) and no more, as far as ρ is normal. That says nothing of keys: a filter four times
as long divides τ by four, and its key is found as exactly (:mod:`vfl_node.privacy.linkage.multilateration`).

Who attacks: the active party.

Source: Wu, Li and He 2021, arXiv 2106.06312, 5.1, 5.2 and appendix A.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vfl_node.privacy.linkage.space import Floats


def guess(similarities: Floats, mean: float, deviation: float, sigma: float) -> NDArray[np.int64]:
    """The most probable Hamming distance of each pair, in the shape of ``similarities``.

    Args:
        similarities: s, of any shape.
        mean: μ0.
        deviation: σ0.
        sigma: σ.
    """
    return np.rint(-(deviation * similarities / (sigma**2 + 1) + mean)).astype(np.int64)
