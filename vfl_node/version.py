"""Which release this is, and which protocol it speaks: what two nodes compare before anything else."""

from __future__ import annotations

VERSION = "0.10.0"
"""The minor version is that of the protocol (:data:`PROTOCOL_VERSION`)."""

PROTOCOL_VERSION = 10
"""Raised whenever two releases can no longer talk to each other."""
