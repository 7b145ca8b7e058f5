"""Identifiers to uniform bytes. Source: RFC 9380, section 5.3.1, with SHA-512."""

from __future__ import annotations

from hashlib import sha512

_BLOCK_BYTES, _DIGEST_BYTES = 128, 64


def expand_message_xmd(message: bytes, domain: bytes, size: int) -> bytes:
    """``size`` bytes that look uniform and independent for every other message, domain or size.

    Cost: 1 + ⌈size / 64⌉ hashes.

    Args:
        message: any bytes.
        domain: the RFC's DST, 1 to 255 bytes.
        size: 1 to 16,320 (255 digests).
    """
    count = -(-size // _DIGEST_BYTES)
    if not 1 <= len(domain) <= 255 or not 1 <= count <= 255:
        raise ValueError("a domain has 1 to 255 bytes, and the result 1 to 16,320")
    tag = domain + bytes([len(domain)])
    first = sha512(bytes(_BLOCK_BYTES) + message + size.to_bytes(2, "big") + b"\0" + tag).digest()
    number, block, out = int.from_bytes(first, "big"), bytes(_DIGEST_BYTES), b""
    for i in range(1, count + 1):
        mixed = (number ^ int.from_bytes(block, "big")).to_bytes(_DIGEST_BYTES, "big")
        block = sha512(mixed + bytes([i]) + tag).digest()
        out += block
    return out[:size]
