"""What two parties without a coordinator tell each other besides, in words: by training and predictions, before and after."""

from __future__ import annotations

from collections.abc import Sequence

from vfl_node.ledger import Declaration, Disclosure

TRAINING = "scores and residuals of rows: labels, and who is shared"
PREDICTIONS = "sums of columns of rows, and shares of the weights"
"""What masks and what is opened give to whoever has both."""

UNREAD = "experimental: no outside cryptographer has read it yet"

_SECURITY = "128 bits against classical computers by the standard's tables, not by its column for quantum computers"


def caveat(reads: str, whose: str = "the other's") -> str:
    """What semi-honest security does not hold against; ``reads`` is :data:`TRAINING` or :data:`PREDICTIONS`."""
    return (
        "a party that departs from the protocol, with a public key that is none or errors larger than allowed, could read "
        f"{whose} masks, and with these {reads}"
    )


def declare_deviating(name: str, others: Sequence[str], reads: str) -> tuple[Declaration, ...]:
    """What a party may learn besides of the other one, the only name in ``others``."""
    (other,) = others
    return (
        Declaration(name, "ciphertexts", f"all columns of {other} that are used, which it may keep: {_SECURITY}"),
        Declaration(name, "deviation", caveat(reads, f"{other}'s")),
    )


def disclose_deviating(others: Sequence[str], rows: int | None, reads: str) -> tuple[Disclosure, ...]:
    """What a party has learnt besides of the other one, the only name in ``others``."""
    (other,) = others
    return (
        Disclosure(
            "ciphertexts",
            rows,
            f"all columns of {other} that were used, encrypted under its key (RLWE), which this party may keep: {_SECURITY}. "
            "It got answers to what it encrypted itself, whose noise is within 2⁻⁴⁰ of a noise that tells nothing",
        ),
        Disclosure(
            "deviation",
            rows,
            f"nothing more, if both parties follow the protocol; but {caveat(reads)}. No check notices it yet. This way to "
            f"compute is {UNREAD}",
        ),
    )
