"""Gaussian differential privacy: what noise of the normal distribution promises, as one number μ.

Whoever sees what is μ-private tells two neighbouring worlds apart no better than N(0, 1) from N(μ, 1). Releases add up as the
root of the sum of squares, whatever is chosen after having seen earlier ones. ε and δ are other words for the same.

Sources: Dong, Roth and Su 2019, corollaries 1 and 3.3; Balle and Wang 2018, theorem 8.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

DELTA = 1e-6
"""δ of every statement."""

MOST_EPSILON = 100.0
"""Above this a promise says nothing."""

_STEPS = 200  # of a bisection: until nothing changes
_MOST_MU = 30.0  # which promises nothing; e to the power of a larger ε is no float
_DIGITS = 5  # of a μ, which is rounded down: the same on all machines, and the noise is never too small


@dataclass(frozen=True)
class Exposure:
    """What a training opens.

    Attributes:
        mu: of all that has noise; 0 where nothing has.
        unbounded: what kind of model it opens without a bound, as ``unbounded_models`` has it; empty: none.
        warning: of that, for owners, in sentences.
        labels: whether μ is about a label, too, and not about who is shared alone.
        anew: whether it differs from training to training, so that several tell more than one.
    """

    mu: float = 0.0
    unbounded: str = ""
    warning: str = ""
    labels: bool = True
    anew: bool = False


def delta_of(mu: float, epsilon: float) -> float:
    """The smallest δ for which what is μ-private is (ε, δ)-private."""
    return _normal(mu / 2 - epsilon / mu) - math.exp(epsilon) * _normal(-mu / 2 - epsilon / mu)


def mu_of(epsilon: float) -> float:
    """The largest μ that is (ε, :data:`DELTA`)-private, rounded down to five digits; ε up to :data:`MOST_EPSILON`."""
    low, high = 0.0, 20.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle, epsilon) <= DELTA else (low, middle)
    unit = 10.0 ** (math.floor(math.log10(low)) + 1 - _DIGITS)
    return float(f"{math.floor(low / unit) * unit:.{_DIGITS - 1}e}")


def epsilon_of(mu: float) -> float:
    """The smallest ε for which what is μ-private is (ε, :data:`DELTA`)-private; 0 where δ alone covers it; 600 at most."""
    if mu <= 0 or delta_of(mu, 0.0) <= DELTA:
        return 0.0
    mu = min(mu, _MOST_MU)
    low, high = 0.0, mu * mu / 2 + 8 * mu + 5
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if delta_of(mu, middle) <= DELTA else (middle, high)
    return high


def compose(mus: Iterable[float]) -> float:
    """μ of several releases about the same records."""
    return math.sqrt(sum(mu * mu for mu in mus))


def auc_bound(mu: float) -> float:
    """How well anybody tells two neighbouring worlds apart, as an area under the curve: at most Φ(μ/√2)."""
    return _normal(mu / math.sqrt(2))


def _normal(x: float) -> float:
    """Φ, also far out on the left."""
    return math.erfc(-x / math.sqrt(2)) / 2
