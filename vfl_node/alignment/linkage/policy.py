"""What the passive party's owner allows in a linkage, before anything of its records leaves."""

from __future__ import annotations

from vfl_node.errors import PolicyError
from vfl_node.settings.limits import Limits


def check_sigma(sigma: float, limits: Limits) -> None:
    """Refuse less noise than the owner wants. Raises PolicyError."""
    if sigma < limits.min_sigma:
        raise PolicyError(
            f"the noise on similarities would be {sigma:.3g} standard deviations, and this node wants {limits.min_sigma:g} or "
            "more (limits.min_sigma)",
            hint="agree on a larger align.noise.sigma, or on a smaller align.noise.tau; or lower limits.min_sigma",
            for_peer="its settings do not allow as little noise on similarities (limits.min_sigma)",
        )


def check_reuse(most: int, median: float, peer: str, limits: Limits) -> None:
    """Refuse that a record of this node is used too often. Raises PolicyError (``E_REUSE``)."""
    if most > limits.max_reuse:
        raise PolicyError(
            f"a record of this node would be a candidate of {most} different records of {peer} (the median record of "
            f"{median:g}), and this node allows {limits.max_reuse} (limits.max_reuse)",
            code="E_REUSE",
            hint="agree on fewer candidates (align.candidates), or raise limits.max_reuse: from many similarities of a "
            "record the other party locates its keys",
            for_peer="its settings do not allow that its records are used as often (limits.max_reuse)",
        )
