"""Which release this is, and which protocol it speaks: what two nodes compare before anything else."""

from __future__ import annotations

VERSION = "0.10.0"
"""The minor version is that of the protocol (:data:`PROTOCOL_VERSION`)."""

PROTOCOL_VERSION = 10
"""Raised whenever two releases can no longer talk to each other."""

OLDEST_PROTOCOL_VERSION = 10
"""The oldest one that this release still speaks: two nodes with a version in common talk to each other."""

OLDEST_SENT = OLDEST_PROTOCOL_VERSION if OLDEST_PROTOCOL_VERSION != PROTOCOL_VERSION else 0
"""What a message says of it: nothing where this release speaks one version only."""


def common_version(newest: int, oldest: int = 0) -> int | None:
    """The version in which this release talks to one that speaks ``oldest`` to ``newest``; None if they have none in common.

    Args:
        newest: that the other one speaks.
        oldest: likewise; 0: only the newest.
    """
    common = min(newest, PROTOCOL_VERSION)
    return common if common >= max(oldest or newest, OLDEST_PROTOCOL_VERSION) else None
