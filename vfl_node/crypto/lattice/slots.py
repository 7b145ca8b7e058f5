"""Inner products of private numbers modulo a prime, a row at a time, in shares.

Modulo t, x^N + 1 has N roots: a polynomial is its values there ("slots"), and products of polynomials are products of slots. A
holds a and P holds b, uint64[terms, rows] below t. Term k of ciphertext k's 4,096 rows is in the first half of the slots, and
term K + k in the second one, K = ceil(terms / 2). Their sum over k and both halves is the row's inner product.

Leaks: to P nothing, by RLWE; to A what ``flooding.log2_distance`` bounds with ``flooding.slot_terms``. Numbers of both are to
be uniform and used once, as for products that are made before they are needed. Sources: Smart and Vercauteren 2014 (slots);
Brakerski 2012 and Fan and Vercauteren 2012 (the scheme).
"""

from __future__ import annotations

import numpy as np

from vfl_node.crypto.lattice.keys import Ciphertexts, PublicRingKey, SecretKey, encrypt
from vfl_node.crypto.lattice.parameters import N
from vfl_node.crypto.lattice.ring import Words
from vfl_node.crypto.lattice.sizes import SLOT_ROWS
from vfl_node.crypto.randomness import Randomness


def encrypt_terms(key: SecretKey, a: Words, randomness: Randomness) -> bytes:
    """A's numbers, uint64[terms, rows] below t, as ``terms_bytes(terms, rows)`` bytes.

    Args:
        key: A's, with the ring ``SLOTS``.
        a: numbers.
        randomness: of these numbers alone.

    Cost: 4 transforms and a second part for each two terms of 4,096 rows.

    Raises:
        ValueError: there are none, or one is not below t.
    """
    return encrypt(key, key.ring.slots(_halves(a, key.ring.parameters.t)), randomness)


def answer_terms(public: PublicRingKey, data: bytes, b: Words, randomness: Randomness) -> tuple[bytes, Words]:
    """P's answer to A's numbers, and P's share, uint64[rows] modulo t.

    Args:
        public: A's key.
        data: A's numbers, encrypted.
        b: P's, uint64[terms, rows] below t.
        randomness: of these numbers alone.

    Returns:
        ``terms_answer_bytes(rows)`` bytes, and the share.

    Raises:
        ValueError: one is not below t, or ``data`` is not of so many.
    """
    ring, t = public.ring, public.ring.parameters.t
    terms, rows = b.shape
    each, parts, size = (terms + 1) // 2, -(-rows // SLOT_ROWS), ring.primes * N
    arranged = _halves(b, t)
    ciphertexts = Ciphertexts(ring, data, parts * each)
    first, second = ring.empty(each), ring.empty(each)
    answers, share = [], []
    for part in range(parts):
        places = range(part * each, (part + 1) * each)
        factors = ring.plain(_centred(ring.slots(arranged[places.start : places.stop]), t))
        sums, stream = ring.zeros(2), randomness.derive(f"slots {part}")
        ring.add_products(sums[0], ciphertexts.first_parts(places, first), factors, size, each)
        ring.add_products(sums[1], ciphertexts.second_parts(places, second), factors, size, each)
        mask = ring.masks(stream, N)
        answers.append(ring.answer(sums, public.parts, ring.slots(mask[None])[0], 1, stream))
        share.append(_summed(mask, t))
    return b"".join(answers), np.concatenate(share)[:rows]


def open_terms(key: SecretKey, answers: bytes, rows: int) -> Words:
    """A's share, uint64[rows] modulo t. Cost: 5 transforms for 4,096 rows. Raises ValueError: a wrong length."""
    ring, parts = key.ring, -(-rows // SLOT_ROWS)
    size, view = ring.parameters.answer_bytes(N), memoryview(answers)
    if rows < 1 or len(view) != parts * size:
        raise ValueError(f"{len(view)} bytes of answers for {rows} rows")
    opened = np.stack([ring.open(key.transformed, view[at * size : (at + 1) * size], 1, N) for at in range(parts)])
    return np.concatenate([_summed(values, ring.parameters.t) for values in ring.slots(opened, back=True)])[:rows]


def multiply_modulo(x: Words, y: Words, t: int) -> Words:
    """x·y modulo t for numbers below t ≤ 2^40, element by element, by arithmetic alone: for what parties multiply themselves.

    The quotient x·y/t < 2^40 in float64 has an error below 2^−9, so that it is the true one, or one beside it. Both x·y and
    quotient·t are modulo 2^64, and their difference, of −t to 2t, is what it is.
    """
    quotient = (x.astype(np.float64) * y.astype(np.float64) * (1.0 / t)).astype(np.uint64)
    rest = x * y - quotient * np.uint64(t)
    rest += np.uint64(t) * (rest >> np.uint64(63))
    return rest - np.uint64(t) * (rest >= np.uint64(t)).astype(np.uint64)


def _halves(numbers: Words, t: int) -> Words:
    """[terms, rows] as slots, uint64[parts · K, N]."""
    if numbers.ndim != 2 or not numbers.size or numbers.dtype != np.uint64 or bool((numbers >= np.uint64(t)).any()):
        raise ValueError(f"numbers {numbers.dtype}{list(numbers.shape)}, which are to be below {t}")
    terms, rows = numbers.shape
    each, parts = (terms + 1) // 2, -(-rows // SLOT_ROWS)
    full = np.zeros((2 * each, parts * SLOT_ROWS), np.uint64)
    full[:terms, :rows] = numbers
    return np.ascontiguousarray(full.reshape(2, each, parts, SLOT_ROWS).transpose(2, 1, 0, 3).reshape(parts * each, N))


def _summed(slots: Words, t: int) -> Words:
    """Both halves, modulo t: where the sum is t or more, t is subtracted, by arithmetic alone."""
    total = slots[:SLOT_ROWS] + slots[SLOT_ROWS:]
    return total - np.uint64(t) * (total >= np.uint64(t)).astype(np.uint64)


def _centred(numbers: Words, t: int) -> Words:
    """Numbers below t as signed ones of at most t / 2 in size, in 64 bits; by arithmetic alone."""
    return numbers - np.uint64(t) * (numbers > np.uint64(t // 2)).astype(np.uint64)
