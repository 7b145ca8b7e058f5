"""How many bytes the messages have: for those who send them, and for those who only count."""

from __future__ import annotations

TRANSFERS = 128
"""Base transfers, κ of the papers: as many as bits of security."""

SEED_BYTES = 32
"""Bytes of a key that a base transfer gives; it is the seed of a row of bits."""

POINT_BYTES = 32
"""Bytes of a point of the curve."""

ANNOUNCEMENT_BYTES = POINT_BYTES
"""Bytes of the first message of the base transfers."""

ANSWER_BYTES = TRANSFERS * POINT_BYTES
"""Bytes of their second and last message."""

SALT_BYTES = 16
"""In front of each message of the extension; it depends on the place and on all choices."""


def row_bytes(count: int) -> int:
    """Bytes that a bit of each of ``count`` transfers takes."""
    return -(-count // 8)


def message_bytes(count: int) -> int:
    """Bytes of the one message for ``count`` random transfers: 16 each, rounded up to whole bytes of a row, and the salt.

    Raises:
        ValueError: ``count`` is negative.
    """
    if count < 0:
        raise ValueError(f"{count} transfers")
    return SALT_BYTES + TRANSFERS * row_bytes(count)
