"""Keys: make, write and check them, and prove to the peer that encrypts under them that they are sound."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, NoReturn

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from vfl_node.errors import ProtocolError

if TYPE_CHECKING:  # it imports torch, which worker processes do not need
    from vfl_node.crypto.randomness import Randomness

Ciphertexts = NDArray[np.uint8]
"""Ciphertexts of one key, uint8[count, width]: contiguous, each row a big-endian number below n²."""

_TRIAL_BOUND = 1 << 16  # α of the proof: 2^19 would save one round of eight, but its trial division costs more
_ROUNDS = 8  # ⌈128 / log2 α⌉
_PRIME_ROUNDS = 64  # Baillie–PSW and 40 rounds of Miller–Rabin
_PROOF_TAG = b"vfl-node/paillier/gcd(n, phi(n)) = 1"
_FINGERPRINT_TAG = b"vfl-node/paillier/public key"


@dataclass(frozen=True)
class PublicKey:
    """The modulus n = p·q.

    A party that got it from a peer calls :func:`check` and :func:`verify` before using it.
    """

    n: int

    @property
    def bits(self) -> int:
        """Size of n."""
        return self.n.bit_length()

    @cached_property
    def square(self) -> mpz:
        """n², the modulus of the ciphertexts."""
        return mpz(self.n) ** 2

    @property
    def width(self) -> int:
        """Bytes per ciphertext: 512 for n of 2048 bits."""
        return (2 * self.bits + 7) // 8

    def integers(self, ciphertexts: Ciphertexts) -> list[mpz]:
        """The rows of uint8[count, width] as numbers; 0.3 µs each."""
        return integers(ciphertexts.tobytes(), self.width)

    def rows(self, numbers: Iterable[mpz]) -> Ciphertexts:
        """Numbers in 0 … n²−1 as rows, uint8[count, width]; 0.3 µs each.

        Raises:
            OverflowError: a number is negative or too large for a row.
        """
        data = b"".join(number.to_bytes(self.width, "big") for number in numbers)
        return np.frombuffer(data, dtype=np.uint8).reshape(-1, self.width)

    def to_bytes(self) -> bytes:
        """n, big-endian, without leading zeros."""
        return self.n.to_bytes((self.bits + 7) // 8, "big")

    @classmethod
    def from_bytes(cls, data: bytes) -> PublicKey:
        """The key that :meth:`to_bytes` wrote. Nothing is checked here: see :func:`check`."""
        return cls(int.from_bytes(data, "big"))

    def fingerprint(self) -> bytes:
        """Fingerprint of the key, 32 bytes: SHA-256 of a tag and n."""
        return hashlib.sha256(_FINGERPRINT_TAG + self.to_bytes()).digest()


@dataclass(frozen=True, repr=False)
class PrivateKey:
    """The primes p and q. Its ``repr`` shows neither."""

    p: int
    q: int

    @cached_property
    def public(self) -> PublicKey:
        """The public key."""
        return PublicKey(self.p * self.q)

    def __repr__(self) -> str:
        return "PrivateKey(secret)"


def generate(bits: int, randomness: Randomness) -> PrivateKey:
    """Draw a key pair; the same randomness gives the same key.

    p and q have ``bits/2`` bits, the top two of them set (so that n has exactly ``bits``), and
    are 3 mod 4; gcd(p−1, q−1) = 2, so that the squares mod n are a cyclic group, as the noise of
    Damgård, Jurik and Nielsen requires; |p−q| ≥ 2^(bits/2 − 100) as in FIPS 186-5; gcd(n, φ(n)) = 1.

    Cost: 0.1 s at 2048 bits, 0.3 s at 3072 and 0.8 s at 4096 on average; it varies by half of that.

    Args:
        bits: size of n: 2048, 3072 or 4096; smaller sizes, from 256, are for tests.
        randomness: a stream for this key only.

    Raises:
        ValueError: the size is odd or below 256.
    """
    if bits % 2 or bits < 256:
        raise ValueError("a Paillier key has an even number of bits, at least 256")
    p = _prime(bits // 2, randomness)
    while True:
        q = _prime(bits // 2, randomness)
        far_apart = abs(p - q) >> (bits // 2 - 100) > 0
        if far_apart and gmpy2.gcd(p - 1, q - 1) == 2 and gmpy2.gcd(p * q, (p - 1) * (q - 1)) == 1:
            return PrivateKey(int(p), int(q))


def check(public: PublicKey, bits: int) -> None:
    """Refuse a peer's key that is visibly wrong: another size, or not a product of two large primes.

    Cost: 2 ms at 2048 bits, 6 at 3072, 14 at 4096.

    Raises:
        ProtocolError: n does not have exactly ``bits`` bits, is even or has another prime factor up to
            2^16, is prime, or is a power (``E_KEY``).
    """
    if public.bits != bits:
        _refuse(f"has {public.bits} bits, not {bits}")
    _check_small_factors(public)
    if gmpy2.is_power(mpz(public.n)):
        _refuse("is a power of a smaller number")
    if gmpy2.is_prime(mpz(public.n)):
        _refuse("is a prime number")


def prove(private: PrivateKey, context: bytes) -> bytes:
    """Prove that gcd(n, φ(n)) = 1: the n-th roots of eight numbers that n and ``context`` determine.

    Cost: 6 ms at 2048 bits, 17 at 3072, 43 at 4096. Size: as many bytes as n has bits.

    Args:
        private: the key.
        context: the purpose of the proof, such as a job; a proof for one context is not valid for another.

    Leaks: nothing but the truth of the statement (the roots are those of random numbers, and
        unique; a verifier could have drawn the roots and raised them to the n-th power).
    """
    public = private.public
    p, q, n = mpz(private.p), mpz(private.q), mpz(public.n)
    root_p, root_q = gmpy2.invert(n, p - 1), gmpy2.invert(n, q - 1)
    to_p = gmpy2.invert(q, p)
    roots = []
    for x in _challenges(public, context):
        y_p, y_q = gmpy2.powmod_sec(x, root_p, p), gmpy2.powmod_sec(x, root_q, q)
        roots.append(y_q + (y_p - y_q) * to_p % p * q)
    return b"".join(root.to_bytes(_root_width(public), "big") for root in roots)


def verify(public: PublicKey, proof: bytes, context: bytes) -> None:
    """Check a peer's proof that gcd(n, φ(n)) = 1, that is, that r ↦ r^n is a permutation of Z_n*.

    Only then every n-th power is the noise of some r, a ciphertext contains exactly one number, and
    a uniform r^n hides everything but the number from the owner of the key. The proof shows that n is
    square-free, not that it has two factors; with more factors the owner would only weaken its own key.

    Soundness: if a prime r divides both n and φ(n), at most one in r of Z_n* has an n-th root. No
    prime up to α = 2^16 divides n, so r > α, and a prover meets all 8 challenges with probability
    below α⁻⁸ = 2⁻¹²⁸ for each n and context that it tries (the hash is a random oracle; challenges are
    within 2⁻¹²⁸ of uniform, and a challenge that is not coprime to n is refused).

    Cost: 8 exponentiations mod n: 18 ms at 2048 bits, 54 at 3072, 130 at 4096.

    Raises:
        ProtocolError: the proof has another length, is for another key or context, or is wrong (``E_KEY``).

    Source: Goldberg, Reyzin, Sagga, Baldimtsi, "Efficient Noninteractive Certification of RSA
        Moduli and Beyond", ASIACRYPT 2019 (the protocol for Paillier moduli).
    """
    _check_small_factors(public)
    n, width = mpz(public.n), _root_width(public)
    if len(proof) != _ROUNDS * width:
        _refuse(f"has a proof of {len(proof)} bytes, not {_ROUNDS * width}")
    for x, y in zip(_challenges(public, context), integers(proof, width), strict=True):
        if not 1 <= y < n or gmpy2.gcd(x, n) != 1 or gmpy2.powmod(y, n, n) != x:
            _refuse("has a proof that does not hold")


def integers(data: bytes, width: int) -> list[mpz]:
    """Big-endian numbers of ``width`` bytes each."""
    return [mpz.from_bytes(data[start : start + width], "big") for start in range(0, len(data), width)]


def _prime(bits: int, randomness: Randomness) -> mpz:
    """A prime, 3 mod 4, with its top two bits set."""
    while True:
        middle = randomness.draw_below(1 << (bits - 4))
        candidate = mpz((0b11 << (bits - 2)) + (middle << 2) + 0b11)
        if gmpy2.gcd(_small_primes(), candidate) == 1 and gmpy2.is_prime(candidate, _PRIME_ROUNDS):
            return candidate


@cache
def _small_primes() -> mpz:
    """The product of all primes up to the trial bound: one gcd with it replaces trial division."""
    return gmpy2.primorial(_TRIAL_BOUND)


def _check_small_factors(public: PublicKey) -> None:
    if gmpy2.gcd(_small_primes(), public.n) != 1:
        _refuse(f"has a prime factor up to {_TRIAL_BOUND}")


def _challenges(public: PublicKey, context: bytes) -> list[mpz]:
    """The challenges, whose n-th roots the proof contains: SHAKE-256 output of |n| + 128 bits, mod n."""
    seed = hashlib.sha256(_PROOF_TAG + public.fingerprint() + hashlib.sha256(context).digest()).digest()
    size = _root_width(public) + 16
    return [mpz.from_bytes(hashlib.shake_256(seed + bytes([index])).digest(size), "big") % public.n for index in range(_ROUNDS)]


def _root_width(public: PublicKey) -> int:
    return (public.bits + 7) // 8


def _refuse(fault: str) -> NoReturn:
    raise ProtocolError(
        f"the peer's Paillier key {fault}",
        code="E_KEY",
        hint="no honest node sends such a key; ask the peer's owner what runs there",
    )
