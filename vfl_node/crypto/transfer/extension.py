"""Any number of random oblivious transfers from 128 base ones, with one message and no more operations on the curve.

==========  ==================================================================================================
of paper    here
==========  ==================================================================================================
m, r        ``count`` and ``choices`` of the receiver
s           the sender's choices in the base transfers, by which it has the seeds kˢ of pairs (k⁰, k¹)
G           AES-256 in counter mode, of a key that is an HMAC of the seed and the place
T, Q        128 rows of m bits: row i of T is G(k⁰ᵢ), of Q is G(kˢᵢ) ⊕ sᵢ·uᵢ = tᵢ ⊕ sᵢ·r
tⱼ, qⱼ      their columns: qⱼ = tⱼ ⊕ rⱼ·s
H           :class:`~vfl_node.crypto.transfer.blocks.RobustHash`
==========  ==================================================================================================

1. The receiver sends uᵢ = G(k⁰ᵢ) ⊕ G(k¹ᵢ) ⊕ r for each row i, behind a salt. Its key is H(tⱼ, j).
2. The sender's keys are H(qⱼ, j) and H(qⱼ ⊕ s, j). The first is the receiver's where rⱼ is 0, the second where it is 1.

**What each learns.** The sender: nothing of r, because it has one seed of each pair alone, and the other's stream hides r.
The receiver: nothing of its other keys, H(tⱼ ⊕ s, j), because it does not know s and H is correlation robust. Both rest
on base transfers, AES, and HMAC-SHA-256; both parties are semi-honest.

**Place and salt.** Streams begin anew at each place. If r and r′ were hidden by the same streams, the sum of both messages
would show r ⊕ r′. So the streams depend on a salt, too, which is a MAC of the place, the count and *all choices* under
a key of the receiver's. The same place and choices give the same bytes; the same place with other choices gives
streams and keys that are independent, and shows only that the choices are others. A program must still not use one place
for two purposes: with equal choices the keys would be equal.

Source: Ishai, Kilian, Nissim and Petrank 2003, "Extending oblivious transfers efficiently", section 3; Asharov, Lindell,
Schneider and Zohner 2013, "More efficient oblivious transfer and extensions for faster secure computation", for u; Rogaway
and Shrimpton 2006, "Deterministic authenticated-encryption", for the salt.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from hashlib import sha256

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from vfl_node.crypto.rows import Rows
from vfl_node.crypto.transfer.base import ChosenSeeds, Secret, SeedPairs, spread_bits
from vfl_node.crypto.transfer.blocks import RobustHash, points_of, spread, transpose
from vfl_node.crypto.transfer.sizes import SALT_BYTES, TRANSFERS, message_bytes, row_bytes

Bits = NDArray[np.uint8] | NDArray[np.bool_]
Keys = NDArray[np.uint64]

PIECE = 1 << 16
"""Transfers made at a time, a multiple of 64; their rows take 1 MiB. No result depends on it."""

_STREAM, _HASH, _SALT = b"vfl-node transfer stream", b"vfl-node transfer hash", b"vfl-node transfer salt"
_HASH_KEY_BYTES = 16


class RandomReceiver(Secret):
    """Gets one key of each random transfer, that of its own choice. Holds nothing that changes.

    Args:
        pairs: what :meth:`~vfl_node.crypto.transfer.base.BaseSender.pairs` gave.
    """

    def __init__(self, pairs: SeedPairs) -> None:
        self._pairs = pairs
        # The other party has one seed of each pair, so it cannot compute this.
        self._salt_key = sha256(_SALT + pairs.zero.tobytes() + pairs.one.tobytes()).digest()

    def extend(self, place: str, count: int, choices: Bits) -> tuple[bytes, Keys]:
        """The message to the sender, of ``message_bytes(count)`` bytes, and the chosen keys, uint64[count].

        Cost: 16 bytes and about 30 ns a transfer, and 1.2 ms a call (one core). Memory: twice the message.

        Leaks: to the sender whether a place's choices are those of an earlier call.

        Args:
            place: where in a job these transfers are used; the sender says the same.
            count: how many.
            choices: 0 or 1, uint8[count] or bool[count].

        Raises:
            ValueError: choices of another shape, kind or value.
        """
        packed = _packed(choices, count)
        salt = hmac.digest(self._salt_key, _label_place(place, count) + packed.tobytes(), "sha256")[:SALT_BYTES]
        label = salt + _label_place(place, count)
        first, second = _streams(self._pairs.zero, label), _streams(self._pairs.one, label)
        robust = _hash(label)
        message = np.empty(message_bytes(count), np.uint8)
        message[:SALT_BYTES] = np.frombuffer(salt, np.uint8)
        u = message[SALT_BYTES:].reshape(TRANSFERS, row_bytes(count))
        keys = np.empty(count, np.uint64)
        for start, stop in _pieces(count):
            part = slice(start // 8, row_bytes(stop))
            width = part.stop - part.start
            t, hidden = _draw(first, width), _draw(second, width)
            hidden ^= t
            np.bitwise_xor(hidden[:, :width], packed[part], out=u[:, part])
            keys[start:stop] = robust.digest(points_of(transpose(t)[: stop - start], start))
        return message.tobytes(), keys


class RandomSender(Secret):
    """Gets both keys of each random transfer. Holds nothing that changes.

    Args:
        chosen: what :meth:`~vfl_node.crypto.transfer.base.BaseReceiver.answer` gave.
    """

    def __init__(self, chosen: ChosenSeeds) -> None:
        self._seeds = chosen.seeds
        self._mask = spread_bits(chosen.choices)[:, None]
        offset = np.packbits(chosen.choices, bitorder="little").view("<u8").reshape(1, 2)  # s
        self._offset = spread(offset)

    def extend(self, place: str, count: int, message: bytes) -> tuple[Keys, Keys]:
        """The keys of choice 0 and those of choice 1, uint64[count] each.

        Cost: about 25 ns a transfer, and 0.6 ms a call (one core).

        Args:
            place: as the receiver's.
            count: as the receiver's.
            message: what the receiver's :meth:`~RandomReceiver.extend` gave.

        Raises:
            ValueError: the message has not ``message_bytes(count)`` bytes.
        """
        if len(message) != message_bytes(count):
            raise ValueError(f"a message for {count} transfers has {message_bytes(count)} bytes, not {len(message)}")
        label = message[:SALT_BYTES] + _label_place(place, count)
        streams, robust = _streams(self._seeds, label), _hash(label)
        u = np.frombuffer(message, np.uint8)[SALT_BYTES:].reshape(TRANSFERS, row_bytes(count))
        zero, one = np.empty(count, np.uint64), np.empty(count, np.uint64)
        for start, stop in _pieces(count):
            part = slice(start // 8, row_bytes(stop))
            width = part.stop - part.start
            q = _draw(streams, width)
            q[:, :width] ^= u[:, part] & self._mask
            points = points_of(transpose(q)[: stop - start], start)
            zero[start:stop] = robust.digest(points)
            points ^= self._offset  # σ(q ⊕ s) ⊕ j = σ(q) ⊕ j ⊕ σ(s)
            one[start:stop] = robust.digest(points)
        return zero, one


def _label_place(place: str, count: int) -> bytes:
    """The place and the count; no two of them give the same bytes."""
    return count.to_bytes(8, "big") + place.encode()


def _packed(choices: Bits, count: int) -> Rows:
    """Choices as bits of bytes, the lowest first, uint8[⌈count / 8⌉]."""
    if choices.shape != (count,) or choices.dtype not in (np.uint8, np.bool_):
        raise ValueError(f"{count} choices are uint8 or bool, not {choices.dtype}{list(choices.shape)}")
    if bool((choices > 1).any()):
        raise ValueError("a choice is neither 0 nor 1")
    return np.packbits(choices, bitorder="little")


def _pieces(count: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + PIECE, count)) for start in range(0, count, PIECE))


def _streams(seeds: Rows, label: bytes) -> list[CipherContext]:
    """G of each seed at this place: its key is used for this stream alone, so the counter begins at 0."""
    keys = [hmac.digest(seed.data, _STREAM + label, "sha256") for seed in seeds]
    return [Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor() for key in keys]


def _draw(streams: list[CipherContext], width: int) -> Rows:
    """The next ``width`` bytes of each stream, and zeros up to a whole word: uint8[128, 8·⌈width / 8⌉]."""
    rows = np.zeros((len(streams), -(-width // 8) * 8), np.uint8)
    nothing = bytes(width)
    for stream, row in zip(streams, rows, strict=True):
        stream.update_into(nothing, row[:width].data)
    return rows


def _hash(label: bytes) -> RobustHash:
    return RobustHash(sha256(_HASH + label).digest()[:_HASH_KEY_BYTES])
