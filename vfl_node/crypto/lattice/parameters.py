"""Three parameter sets of RLWE over Z_q[x]/(x^N + 1), N = 8192. Imports nothing large.

Algebra. The key is s, of coefficients −1, 0 and 1. A ciphertext of m is (b, a) with a uniform and b = −a·s + e + round(q/t·m),
so b + a·s = q/t·m and a small error. Whoever has it multiplies both parts by an own polynomial of small coefficients and adds
products, without the key. The sum's error is Σ e·b: the key's owner knows e, and could read b of it. So an answer is

* the sum
* plus a fresh encryption of 0 under the owner's public key (b, a): u·b and u·a + e′, with u of coefficients −1, 0 and 1.
  Without it,
  the second part would be the product of a known a and the private b.
* plus noise that hides Σ e·b ("flooding"; ``flooding`` says how well)
* less round(q/t·mask) at the coefficients that mean something, where the mask is the evaluator's share. Others are not sent.
* shortened to fewer bits, of which the owner keeps what decryption needs (modulus switching).

=============  ========  ============  ================================================================================
set            log2 q    t             for
=============  ========  ============  ================================================================================
``LINEAR``     200       2^64          products with a matrix: the ring of shares itself, so nothing is lifted
``SLOTS``      150       40-bit prime  8,192 numbers modulo t in a polynomial, which are multiplied one by one
``MONOMIALS``  150       2^64          sums of monomials with small coefficients
=============  ========  ============  ================================================================================

Security. N = 8192 with a ternary key and an error of standard deviation 3.24: the Homomorphic Encryption Standard of 2018
allows log2 q ≤ 218 for 128 bits against classical computers, and the guidelines of 2024 allow 214. Both are met. The column of
2024 for quantum computers allows 161, which ``LINEAR`` does not meet. There are no keys for rotations, so no circular
assumption. Security is against parties that follow the protocol: an owner with another kind of public key, or larger errors,
reads b.

Sources: Lyubashevsky, Peikert and Regev 2010 (RLWE); Huang, Lu, Hong and Ding 2022, "Cheetah" (products by coefficients);
Smart and Vercauteren 2014 (slots); Albrecht and others 2018, the standard of homomorphicencryption.org.
"""

from __future__ import annotations

from dataclasses import dataclass

N = 8192
"""Coefficients of a polynomial."""

PRIMES = (1125899906826241, 1125899906629633, 1125899905744897, 1125899905351681)
"""The four largest primes below 2^50 that are 1 modulo 2N."""

SLOT_PRIME = 1099510054913
"""The largest prime below 2^40 that is 1 modulo 2^19."""

ERROR_VARIANCE = 10.5
"""Variance of a ciphertext's error: the centred binomial distribution of 2·21 bits, of standard deviation 3.24."""


@dataclass(frozen=True)
class Parameters:
    """One set.

    Attributes:
        name: for messages.
        primes: those of q.
        slot_prime: t; 0 for 2^64.
        flood_bits: of each of four uniform numbers, whose sum is the flooding noise.
        short_bits, long_bits: a coefficient of an answer's first and of its second part.
        multiplier_bits: the evaluator's numbers are at most 2^this in size.
    """

    name: str
    primes: tuple[int, ...]
    slot_prime: int
    flood_bits: int
    short_bits: int
    long_bits: int
    multiplier_bits: int

    @property
    def q(self) -> int:
        """The ciphertexts' modulus."""
        product = 1
        for prime in self.primes:
            product *= prime
        return product

    @property
    def t(self) -> int:
        """The plaintexts' modulus."""
        return self.slot_prime or 1 << 64

    @property
    def polynomial_bytes(self) -> int:
        """A polynomial modulo q as bytes: 50 bits a residue."""
        return len(self.primes) * N * 50 // 8

    def answer_bytes(self, useful: int) -> int:
        """An answer with so many coefficients that mean something."""
        return useful * self.short_bits // 8 + N * self.long_bits // 8


LINEAR = Parameters("linear", PRIMES, 0, flood_bits=132, short_bits=72, long_bits=80, multiplier_bits=63)
SLOTS = Parameters("slots", PRIMES[:3], SLOT_PRIME, flood_bits=106, short_bits=56, long_bits=64, multiplier_bits=39)
MONOMIALS = Parameters("monomials", PRIMES[:3], 0, flood_bits=82, short_bits=72, long_bits=80, multiplier_bits=16)
