"""Identifiers to uniform bytes. Source: RFC 9380, section 5.3.1 (expand_message_xmd), with SHA-512."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha512

_BLOCK_BYTES, _DIGEST_BYTES = 128, 64


def expander(domain: bytes, size: int) -> Callable[[bytes], bytes]:
    """``expand_message_xmd`` for one domain and size: message → ``size`` bytes.

    The bytes look uniform, and independent of those for any other message, domain or size.

    Cost: 1 + ⌈size / 64⌉ hashes per message.

    Args:
        domain: the RFC's DST, 1 to 255 bytes.
        size: 1 to 16,320 (255 digests).
    """
    count = -(-size // _DIGEST_BYTES)
    if not 1 <= len(domain) <= 255 or not 1 <= count <= 255:
        raise ValueError("a domain has 1 to 255 bytes, and the result 1 to 16,320")
    tag = domain + bytes([len(domain)])
    padding, suffix = sha512(bytes(_BLOCK_BYTES)), size.to_bytes(2, "big") + b"\0" + tag

    def expand(message: bytes) -> bytes:
        hashed = padding.copy()
        hashed.update(message + suffix)
        first = hashed.digest()
        out = block = sha512(first + b"\1" + tag).digest()
        for i in range(2, count + 1):
            mixed = int.from_bytes(first, "big") ^ int.from_bytes(block, "big")
            block = sha512(mixed.to_bytes(_DIGEST_BYTES, "big") + bytes([i]) + tag).digest()
            out += block
        return out[:size]

    return expand
