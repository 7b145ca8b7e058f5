"""Decryption, by the owner of the key."""

from __future__ import annotations

import gmpy2
from gmpy2 import mpz

from vfl_node.crypto.kernels import kernel
from vfl_node.crypto.paillier.keys import Ciphertexts, PrivateKey
from vfl_node.engines.contract import Engine, block_size

_MOST = 8  # ciphertexts of a block: 20 ms of work at 2048 bits by libraries, 150 ms at 4096


def decrypt(private: PrivateKey, ciphertexts: Ciphertexts, engine: Engine) -> list[int]:
    """The numbers in ``ciphertexts``, each in 0 … n−1.

    Modulo p², c^(p−1) = 1 − m·q·p, whatever the noise; likewise modulo q²; and the Chinese remainder
    theorem combines m mod p and m mod q. The exponents are the key, so they are applied in a time that does not depend on
    them (:mod:`vfl_node.crypto.kernels`). Worker processes receive p and q.

    Cost: two exponentiations of |n|/2 bits modulo p² and q²; by libraries 2.6 ms at 2048 bits, 9 at 3072, 21 at 4096.

    Args:
        private: the key.
        ciphertexts: uint8[count, width], checked.
        engine: computes the blocks.

    Source: Paillier 1999, section 7 (decryption using Chinese remaindering).
    """
    public = private.public
    size = block_size(len(ciphertexts), engine, kernel().lanes, _MOST)
    blocks = (public.integers(ciphertexts[start : start + size]) for start in range(0, len(ciphertexts), size))
    return [number for block in engine.map(_decrypt, blocks, private) for number in block]


def _decrypt(private: PrivateKey, ciphertexts: list[mpz]) -> list[int]:
    """In a worker."""
    p, q = mpz(private.p), mpz(private.q)
    p_square, q_square = p * p, q * q
    h_p, h_q, to_q = gmpy2.invert(-q, p), gmpy2.invert(-p, q), gmpy2.invert(p, q)
    numbers = []
    of_p = kernel().powers([c % p_square for c in ciphertexts], p - 1, p_square)
    of_q = kernel().powers([c % q_square for c in ciphertexts], q - 1, q_square)
    for x, y in zip(of_p, of_q, strict=True):
        m_p, m_q = (x - 1) // p * h_p % p, (y - 1) // q * h_q % q
        numbers.append(int(m_p + (m_q - m_p) * to_q % q * p))
    return numbers
