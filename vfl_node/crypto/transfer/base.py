"""128 oblivious transfers of random keys, on the prime-order subgroup of edwards25519.

The group is written additively, with base point G and prime order ℓ. H is SHA-256, as a random oracle.

==========  ================================================================================
of paper    here
==========  ================================================================================
y, S = yG   the sender's secret and ``announcement``
c           the receiver's ``choices``, one bit each transfer, also secret
x, R        of each transfer i: the receiver's secret, and R = cS + xG, a row of its ``answer``
k⁰, k¹      ``SeedPairs``: H(i, S, R, yR) and H(i, S, R, y(R − S)) = H(i, S, R, yR − yS)
kᶜ          ``ChosenSeeds``: H(i, S, R, xS)
==========  ================================================================================

1. The sender announces S (32 bytes).
2. The receiver answers with 128 points R (4,096 bytes), and computes its keys.
3. The sender computes both keys of each transfer.

**What each learns.** The sender: nothing about the choices, without any assumption, because xG is uniform and so is R for
either choice. The receiver: nothing about the other key. H's input there is xS − yS where c is 0 and xS + yS where c is 1, so
whoever finds it finds yS = y²G from S = yG. That is the computational Diffie–Hellman problem (CDH) with equal points, to
which CDH reduces in a group of prime order; H is a random oracle. Both parties are semi-honest: the paper's proof against
others has known gaps, and is not used.

**Deviations.** Keys are hashed with both points *and* the index, so no two transfers share a key even where points repeat.
All that the receiver draws depends on the announcement: if it answered two announcements S and S′ with the same x, the
difference of its answers would be c(S − S′), which shows c. So a receiver that repeats itself is safe.

Source: Chou and Orlandi 2015, "The simplest protocol for oblivious transfer", figure 1; points and scalars by libsodium.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import NoReturn

import numpy as np
from nacl.bindings import (
    crypto_core_ed25519_add,
    crypto_core_ed25519_is_valid_point,
    crypto_core_ed25519_scalar_reduce,
    crypto_core_ed25519_sub,
    crypto_scalarmult_ed25519_base_noclamp,
    crypto_scalarmult_ed25519_noclamp,
)
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.rows import Rows
from vfl_node.crypto.transfer.sizes import ANNOUNCEMENT_BYTES, ANSWER_BYTES, POINT_BYTES, SEED_BYTES, TRANSFERS

_TAG = b"vfl-node base transfer"
_WIDE_BYTES = 64  # a uniform number of 512 bits modulo ℓ is uniform up to 2⁻²⁵⁹


class Secret:
    """Shows no value, and refuses to be pickled or copied."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(secret)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("keys of oblivious transfers are secret and are not serialised")


@dataclass(frozen=True, eq=False, repr=False)
class SeedPairs(Secret):
    """Both keys of each base transfer.

    Attributes:
        zero: k⁰, uint8[128, 32].
        one: k¹, uint8[128, 32].
    """

    zero: Rows
    one: Rows

    def __post_init__(self) -> None:
        _check_seeds(self.zero)
        _check_seeds(self.one)


@dataclass(frozen=True, eq=False, repr=False)
class ChosenSeeds(Secret):
    """One key of each base transfer.

    Attributes:
        choices: c, uint8[128] of 0 and 1.
        seeds: kᶜ, uint8[128, 32].
    """

    choices: NDArray[np.uint8]
    seeds: Rows

    def __post_init__(self) -> None:
        _check_seeds(self.seeds)
        choices = self.choices
        if choices.shape != (TRANSFERS,) or choices.dtype != np.uint8 or bool((choices > 1).any()):
            raise ValueError(f"{TRANSFERS} choices are 0 or 1 as uint8")


class BaseSender(Secret):
    """Offers 128 pairs of keys; it is the receiver of the extension.

    The same ``randomness`` gives the same announcement, and the same pairs for the same answer.

    Cost: one multiplication of a point.

    Attributes:
        announcement: S, 32 bytes, for the other party.
    """

    def __init__(self, randomness: Randomness) -> None:
        self._y = _scalars(randomness.derive("base sender"), 1)[0]
        self.announcement: bytes = crypto_scalarmult_ed25519_base_noclamp(self._y)

    def pairs(self, answer: bytes) -> SeedPairs:
        """Both keys of each transfer.

        Cost: 128 multiplications and checks of points, about 15 ms.

        Raises:
            ValueError: the answer has not 4,096 bytes, or one of its points is not canonical, not on the curve, not of
                order ℓ, or equal to the announcement (anybody could compute that transfer's second key).
        """
        if len(answer) != ANSWER_BYTES:
            raise ValueError(f"an answer has {ANSWER_BYTES} bytes, not {len(answer)}")
        rows = [answer[start : start + POINT_BYTES] for start in range(0, ANSWER_BYTES, POINT_BYTES)]
        for number, row in enumerate(rows):
            if row == self.announcement or not crypto_core_ed25519_is_valid_point(row):
                raise ValueError(f"point {number} of the answer is not one of the group that a receiver would send")
        ours = crypto_scalarmult_ed25519_noclamp(self._y, self.announcement)  # yS
        zero, one = [], []
        for number, row in enumerate(rows):
            shared = crypto_scalarmult_ed25519_noclamp(self._y, row)  # yR
            zero.append(_seed(number, self.announcement, row, shared))
            one.append(_seed(number, self.announcement, row, crypto_core_ed25519_sub(shared, ours)))
        return SeedPairs(_rows(zero), _rows(one))


class BaseReceiver(Secret):
    """Chooses one key of each pair at random; it is the sender of the extension."""

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness.derive("base receiver")

    def answer(self, announcement: bytes) -> tuple[bytes, ChosenSeeds]:
        """The 128 points R for the other party, 4,096 bytes, and this party's choices and keys.

        The same announcement gives the same answer, and another one independent choices and keys.

        Cost: 256 multiplications of points, about 15 ms. Both points that a choice could give are computed.

        Raises:
            ValueError: the announcement has not 32 bytes, or is not canonical, not on the curve, or not of order ℓ.
        """
        if len(announcement) != ANNOUNCEMENT_BYTES:
            raise ValueError(f"an announcement has {ANNOUNCEMENT_BYTES} bytes, not {len(announcement)}")
        if not crypto_core_ed25519_is_valid_point(announcement):
            raise ValueError("the announcement is not a point of the group")
        randomness = self._randomness.derive("answer to " + announcement.hex())
        drawn = np.frombuffer(randomness.derive("choices").bytes(TRANSFERS // 8), np.uint8)
        choices = np.unpackbits(drawn, bitorder="little")
        secrets = _scalars(randomness.derive("scalars"), TRANSFERS)
        plain = [crypto_scalarmult_ed25519_base_noclamp(x) for x in secrets]
        moved = _rows([crypto_core_ed25519_add(point, announcement) for point in plain])
        answer = _rows(plain)
        answer ^= (answer ^ moved) & spread_bits(choices)[:, None]
        seeds = [
            _seed(number, announcement, row.tobytes(), crypto_scalarmult_ed25519_noclamp(x, announcement))
            for number, (x, row) in enumerate(zip(secrets, answer, strict=True))
        ]
        return answer.tobytes(), ChosenSeeds(choices, _rows(seeds))


def spread_bits(choices: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A byte of ones for each 1 and of zeros for each 0: masks, so that no branch depends on a secret choice."""
    return np.negative(choices)


def _scalars(randomness: Randomness, count: int) -> list[bytes]:
    """Uniform numbers modulo ℓ, 32 bytes each; one is 0 with a probability of 2⁻²⁵², which libsodium refuses."""
    return [crypto_core_ed25519_scalar_reduce(randomness.bytes(_WIDE_BYTES)) for _ in range(count)]


def _seed(number: int, announcement: bytes, row: bytes, shared: bytes) -> bytes:
    """H(i, S, R, ·): all parts have a fixed width."""
    return sha256(_TAG + number.to_bytes(2, "big") + announcement + row + shared).digest()


def _rows(points: list[bytes]) -> Rows:
    """One row each, uint8[n, 32]; writable."""
    return np.frombuffer(bytearray(b"".join(points)), np.uint8).reshape(len(points), -1)


def _check_seeds(seeds: Rows) -> None:
    if seeds.shape != (TRANSFERS, SEED_BYTES) or seeds.dtype != np.uint8:
        raise ValueError(f"seeds are uint8[{TRANSFERS}, {SEED_BYTES}], not {seeds.dtype}{list(seeds.shape)}")
