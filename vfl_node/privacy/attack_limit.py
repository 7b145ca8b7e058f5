"""The limit that an owner sets to what attacks on this party's own rows may find (``attacks.rows``)."""

from __future__ import annotations

from collections.abc import Mapping

from vfl_node.errors import PolicyError


def strongest(values: Mapping[str, float | None]) -> float | None:
    """The AUC of the attack that tells most, folded."""
    return max((0.5 + abs(value - 0.5) for value in values.values() if value is not None), default=None)


def check_limit(
    party: str, folded: float | None, limit: float | None, *, where: str = "moving average of the strongest"
) -> None:
    """Refuse to go on where the ``folded`` AUC is above the owner's ``limit``.

    Raises:
        PolicyError: it is (``E_LEAK``; the peer is told ``E_STOPPED``).
    """
    if limit is None or folded is None or not folded > limit:
        return
    raise PolicyError(
        f"{party}'s own attacks tell its synthetic rows from real ones at an AUC of {folded:.2f} "
        f"({where}); attacks.rows allows {limit:g}",
        code="E_LEAK",
        hint="choose other strategies in train.missing, fewer epochs, or align with psi; or allow more",
        for_peer=f"stopped by {party}'s policy",
        peer_code="E_STOPPED",
    )
