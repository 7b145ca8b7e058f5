"""Noise of answers: small enough, of the distribution that hides, and no guide to b; with the attacks it is there against."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.crypto.lattice.phases import errors_of, largest_gap, multiplier, phase, read, whole
from tests.crypto.lattice.variants import SETS, compiled, key, numbers, randomness, ring, sets, variants
from vfl_node.crypto.lattice import parameters
from vfl_node.crypto.lattice.keys import SecretKey
from vfl_node.crypto.lattice.parameters import PRIMES, N
from vfl_node.crypto.lattice.ring import Ring, Words

pytestmark = compiled


def noise_of(owner: SecretKey, answer: bytes, plain: Words, step: int) -> list[int]:
    """What an answer has besides its plaintexts, in units of q / 2^long_bits."""
    chosen = owner.ring.parameters
    modulus, t = 1 << chosen.long_bits, chosen.t
    found = zip(read(owner, answer, len(plain), step), plain.tolist(), strict=True)
    return [(x - (modulus * m + t // 2) // t + modulus // 2) % modulus - modulus // 2 for x, m in found]


def largest_noise(name: str, count: int, variant: str) -> float:
    """Of ``count`` answers of N coefficients each, as a share of half the distance of two plaintexts."""
    of, owner, largest = ring(name, variant), key(name, variant), 0
    for at in range(count):
        mask = of.masks(randomness(f"mask {at}"), N)
        sent = of.answer(of.zeros(2), owner.public.parts, mask, 1, randomness(f"answer {at}"))
        t = of.parameters.t
        negative = np.array([-int(m) % t for m in mask], np.uint64)
        np.testing.assert_array_equal(of.open(owner.transformed, sent, 1, N), negative)
        largest = max(largest, *map(abs, noise_of(owner, sent, negative, 1)))
    return largest / (0.5 * 2**of.parameters.long_bits / of.parameters.t)


@sets
@variants
def test_noise_is_below_a_third_of_what_decryption_bears(name: str, variant: str) -> None:
    """The flooding noise is at most a quarter by itself: 2^133 of 2^135."""
    assert 0.1 < largest_noise(name, 2, variant) < 0.3


@pytest.mark.slow
@sets
def test_noise_of_a_million_coefficients_is_below_a_third(name: str) -> None:
    assert 0.1 < largest_noise(name, 123, "portable") < 0.3


def test_three_primes_do_not_bear_the_noise() -> None:
    """A control: 2^133 is more than q/t then."""
    narrow = Ring(replace(parameters.LINEAR, primes=PRIMES[:3]))
    owner = SecretKey(narrow, randomness("key"))
    sent = narrow.answer(narrow.zeros(2), owner.public.parts, np.zeros(20, np.uint64), 16, randomness("answer"))
    assert (narrow.open(owner.transformed, sent, 16, 20) != 0).all()


def four_uniform(x: np.ndarray) -> np.ndarray:
    """The cumulative distribution of the sum of four uniform numbers of −½ … ½."""
    y = x + 2
    return sum(sign * np.maximum(y - k, 0) ** 4 for k, sign in enumerate((1, -4, 6, -4))) / 24


@sets
def test_noise_has_the_distribution_of_flooding_and_does_not_follow_the_errors(name: str) -> None:
    """With other seeds an honest kernel fails the first with probability 2·exp(−2·2.5²) = 7·10⁻⁶, the second with 6·10⁻⁷."""
    of, owner = ring(name), key(name)
    values, expected = [], []
    scale = 2 ** (of.parameters.long_bits + of.parameters.flood_bits) / of.parameters.q
    for at in range(2):
        m, b = (
            of.masks(randomness(f"m {at}"), N),
            randomness(f"b {at}").uint64(1) >> np.uint64(65 - of.parameters.multiplier_bits),
        )
        a = of.uniform(randomness(f"a {at}"), of.empty(1))
        parts = np.stack([of.encrypt(owner.transformed, a, m[None], randomness(f"e {at}"))[0], a[0]])
        factor = np.zeros((1, N), np.uint64)
        factor[0, 0] = b[0]
        plain, sums = of.plain(factor), of.zeros(2)
        for half in (0, 1):
            of.add_products(sums[half], parts[half], plain, 0, 1)
        sent = of.answer(sums, owner.public.parts, np.zeros(N, np.uint64), 1, randomness(f"answer {at}"))
        product = np.array([int(x) * int(b[0]) % of.parameters.t for x in m], np.uint64)
        values += [x / scale for x in noise_of(owner, sent, product, 1)]
        expected += [e * float(b[0]) for e in errors_of(owner, parts, m)]
    ordered = np.sort(values)
    gap = largest_gap(ordered.tolist(), four_uniform(ordered).tolist())
    assert gap < 2.5 / np.sqrt(len(values))
    assert largest_gap(ordered.tolist(), four_uniform(ordered * 0.85).tolist()) > 2.5 / np.sqrt(len(values))  # a control
    assert abs(np.corrcoef(values, expected)[0, 1]) < 5 / np.sqrt(len(values))


def test_without_a_fresh_encryption_b_is_read_at_once() -> None:
    """The answer's second part is then a·b, shortened: the nearest point of a lattice to one coefficient gives b."""
    of, owner, q = ring("linear"), key("linear"), ring("linear").parameters.q
    a = of.uniform(randomness("a"), of.empty(1))
    b = int(randomness("b").uint64(1)[0] >> np.uint64(1))
    factor = np.zeros((1, N), np.uint64)
    factor[0, 0] = b
    known = whole(of, a[0])

    def attack(drawn: tuple[Words, Words]) -> int:
        sums = of.zeros(2)
        of.add_products(sums[1], a, of.plain(factor), 0, 1)
        flood = of.flood(randomness("flood"), 1)
        sent = of.answer_with(sums, owner.public.parts, numbers(1, 1), 1, (*drawn, flood))
        shortened = int.from_bytes(sent[9:19], "little")  # the first coefficient of the second part
        return multiplier(known[0], q, shortened * q >> 80, 1 << 57)

    nothing = np.full(N, 1 << 63, np.uint64), np.zeros(N, np.uint64)  # words of which u and the error are 0
    assert attack(nothing) == b
    assert attack((randomness("u").uint64(N), randomness("e1").uint64(N))) != b
    assert attack((randomness("u").uint64(N), nothing[1])) != b


def test_without_flooding_b_is_read_of_the_noise() -> None:
    """Of 64 coefficients, by least squares: to 10⁻⁹ without it, and with 20 bits; with the whole of it not even the size."""
    of, owner, chosen = ring("linear"), key("linear"), SETS["linear"]
    m, a = numbers(1, N), of.uniform(randomness("a"), of.empty(1))
    parts = np.stack([of.encrypt(owner.transformed, a, m[None], randomness("e"))[0], a[0]])
    errors = errors_of(owner, parts, m)[:64]
    b = int(randomness("b").uint64(1)[0] >> np.uint64(1))
    factor = np.zeros((1, N), np.uint64)
    factor[0, 0] = b
    sums, u = of.zeros(2), of.ternary(randomness("u"))
    for half in (0, 1):
        of.add_products(sums[half], parts[half], of.plain(factor), 0, 1)
        of.add_products(sums[half], np.ascontiguousarray(owner.public.parts[half]), u, 0, 1)
    raw, q, t = phase(owner, sums)[:64], chosen.q, chosen.t

    def error_of_estimate(bits: int) -> float:
        flood = [sum(randomness(f"{bits} {at} {k}").draw_below(1 << bits) for k in range(4)) - (2 << bits) for at in range(64)]
        noise = []
        for x, f, n in zip(raw, flood if bits else [0] * 64, m.tolist(), strict=False):
            noise.append((x + f - (q * (n * b % t) + t // 2) // t + q // 2) % q - q // 2)
        estimate = sum(x * e for x, e in zip(noise, errors, strict=True)) / sum(e * e for e in errors)
        return abs(estimate - b) / b

    assert error_of_estimate(0) < 1e-9
    assert error_of_estimate(20) < 1e-9
    assert error_of_estimate(chosen.flood_bits) > 2**60  # as large as the noise itself: chance
