"""What a linkage is bound to: the job's terms, and commitments to what both parties have encoded."""

from __future__ import annotations

import hashlib
import json

from vfl_node.errors import ProtocolError
from vfl_node.job import Align
from vfl_node.session.counted import ANY_SET
from vfl_node.transport.generated.vfl.v1.linkage_pb2 import EncodingTerms

DIGEST_BYTES = 32

SHOWN = ("bits", "count", "commitment")
"""What the coordinator tells each party of the other's terms."""


def digest_of(align: Align, seed_mark: bytes) -> bytes:
    """Stands for all of a job on which similarities depend, beside the two sets. 32 bytes.

    Args:
        align: the job's section.
        seed_mark: of the data parties' seed.
    """
    said = {"keys", "encoding", "candidates", "equal_only", "noise", "comparison"}  # the last only where it is not the default
    fields = align.model_dump(mode="json", include=said)
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode() + seed_mark).digest()


def commitment_to(filters: bytes, salt: bytes) -> bytes:
    """A commitment to a column of filters whose digest is ``filters``, under a ``salt`` that lasts as long as the set."""
    return hashlib.sha256(b"vfl-node linkage commitment" + salt + filters).digest()


def linkage_of(terms: bytes, active: EncodingTerms, passive: EncodingTerms, coordinator: str) -> bytes:
    """Stands for a linkage: its :func:`digest_of` terms, what both are committed to, and who draws the noise. 32 bytes."""
    parts = (b"vfl-node linkage", terms, active.commitment, passive.commitment, coordinator.encode())
    return hashlib.sha256(b"".join(parts)).digest()


def any_set(align: Align, terms: bytes, linkage: bytes) -> tuple[bytes, bytes]:
    """What is counted over all sets together: different terms; in shares, where other sets have other noise, those too."""
    return ANY_SET, terms if align.comparison == "filters" else linkage


def pinned_digest(said: EncodingTerms) -> bytes:
    """Digest of what must not change in a party's terms from one attempt to the next."""
    return hashlib.sha256(said.bits.to_bytes(8, "big") + said.count.to_bytes(8, "big") + said.commitment).digest()


def check_terms(said: EncodingTerms, peer: str, bits: int) -> None:
    """Refuse terms of other filters than the job's, or without a commitment. Raises ProtocolError."""
    if said.bits != bits or len(said.commitment) != DIGEST_BYTES:
        raise ProtocolError(
            f"{peer} announces filters of {said.bits} bits and a commitment of {len(said.commitment)} bytes, expected {bits} "
            f"and {DIGEST_BYTES}",
            code="E_COUNT",
        )
