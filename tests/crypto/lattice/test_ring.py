"""Polynomials: transforms, bytes and draws, and both variants of the compiled code bit for bit."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import gmpy2
import numpy as np
import pytest

from tests.crypto.lattice.variants import (
    SETS,
    VARIANTS,
    compiled,
    exact_product,
    key,
    numbers,
    randomness,
    ring,
    sets,
    variants,
)
from vfl_node.crypto.kernels import choice
from vfl_node.crypto.lattice import parameters
from vfl_node.crypto.lattice.keys import SecretKey
from vfl_node.crypto.lattice.parameters import PRIMES, SLOT_PRIME, N
from vfl_node.crypto.lattice.ring import Ring, redraw
from vfl_node.errors import StateError

pytestmark = compiled


def test_primes_are_distinct_and_what_transforms_need() -> None:
    assert len(set(PRIMES)) == 4
    for prime in PRIMES:
        assert gmpy2.is_prime(prime, 50)
        assert prime % (2 * N) == 1
        assert 1 << 49 < prime < 1 << 50
    assert gmpy2.is_prime(SLOT_PRIME, 50)
    assert SLOT_PRIME % (1 << 19) == 1
    assert SLOT_PRIME < 1 << 40
    below = range(PRIMES[-1], 1 << 50, 2 * N)
    assert [p for p in below if gmpy2.is_prime(p)] == sorted(PRIMES)  # none was left out


@variants
@pytest.mark.parametrize("kind", ["random", "largest", "one"])
def test_products_of_polynomials_are_exact(variant: str, kind: str) -> None:
    """Modulo each prime, against one product of large numbers."""
    of, primes = ring("linear", variant), np.array(PRIMES, np.uint64)[:, None]
    if kind == "random":
        x, y = (numbers(seed, 4, N) % primes for seed in (1, 2))
    elif kind == "largest":
        x, y = (np.broadcast_to(primes - np.uint64(1), (4, N)).copy() for _ in "xy")
    else:
        x, y = (np.zeros((4, N), np.uint64) for _ in "xy")
        x[:, -1], y[:, 1] = 1, 1  # x^N = −1
    total = of.zeros()
    of.add_products(total, of.transform(x), of.transform(y), 0, 1)
    found = of.transform(total, back=True)
    for at, prime in enumerate(PRIMES):
        assert found[at].tolist() == exact_product(x[at].tolist(), y[at].tolist(), prime)
    np.testing.assert_array_equal(of.transform(of.transform(x), back=True), x)


@variants
@pytest.mark.parametrize("count", [1, 14, 15, 16, 31, 100])
def test_sums_of_many_products_of_the_largest_residues_are_exact(variant: str, count: int) -> None:
    """More than what is summed before a reduction, too; a sum that is there before is added to."""
    of, primes = ring("linear", variant), np.array(PRIMES, np.uint64)[:, None]
    each = np.broadcast_to(primes - np.uint64(1), (count, 4, N)).copy()
    total = each[0].copy()
    of.add_products(total, each, each, 4 * N, count)
    np.testing.assert_array_equal(total, np.broadcast_to(np.uint64(count - 1) + np.zeros_like(primes), (4, N)))


@sets
def test_both_variants_give_the_same_bits(name: str) -> None:
    """Every operation, with extreme numbers, of memory aligned to words alone, and odd numbers of useful coefficients."""

    def everything(variant: str) -> list[bytes]:
        of, t = ring(name, variant), SETS[name].t
        extreme = np.array([0, 1, 2**63, 2**63 - 1, 2**64 - 1, 2**52, 2**52 - 1, t // 2, t // 2 + 1], dtype=object) % (1 << 64)
        room = np.empty(N + 1, np.uint64)[1:]  # 8 bytes off the alignment that allocation gives
        room[:] = np.resize(extreme.astype(np.uint64), N)
        below = room % np.uint64(t) if SETS[name].slot_prime else room
        below = np.concatenate([below[:1], below])[1:]
        owner = key(name, variant)
        a = of.uniform(randomness("a"), of.empty(2))
        made = of.encrypt(owner.transformed, a, np.stack([below, below[::-1]]), randomness("e"))
        plain = of.plain(room[None])
        done = [owner.transformed, a, made, plain, of.plain(numbers(1, 1, N))]
        for useful, step in ((1, 1), (7, 1), (9, 13), (512, 16), (N, 1), (0, 1)):
            sums = of.zeros(2)
            of.add_products(sums[0], made, plain, 0, 2)
            of.add_products(sums[1], a, plain, 0, 2)
            sent = of.answer(sums, owner.public.parts, below[:useful].copy(), step, randomness(f"{useful}"))
            done += [np.frombuffer(sent, np.uint8), of.open(owner.transformed, sent, step, useful)]
        junk = numbers(3, SETS[name].answer_bytes(1000) // 8 + 1).tobytes()[: SETS[name].answer_bytes(1000)]
        done += [of.open(owner.transformed, junk, 8, 1000), of.open(owner.transformed, b"\xff" * len(junk), 8, 1000)]
        return [each.tobytes() for each in done]

    assert all(everything(variant) == everything("portable") for variant in VARIANTS)


@variants
@sets
def test_bytes_are_read_back_and_residues_checked(variant: str, name: str) -> None:
    of, primes = ring(name, variant), SETS[name].primes
    residues = of.uniform(randomness("u"), of.empty(2))
    residues[0, :, 0], residues[1, :, -1] = 0, np.array(primes, np.uint64) - np.uint64(1)
    data, back = of.pack(residues), of.empty(2)
    assert len(data) == 2 * SETS[name].polynomial_bytes
    assert of.unpack(memoryview(b"+" + data)[1:], back) == 0  # of any address
    np.testing.assert_array_equal(back, residues)
    bits = "".join(f"{byte:08b}"[::-1] for byte in data[:50])
    assert [int(bits[50 * at : 50 * (at + 1)][::-1], 2) for at in range(8)] == residues.ravel()[:8].tolist()
    for place in ((0, 0, 0), (1, len(primes) - 1, N - 1), (0, 1, 77)):
        wrong = residues.copy()
        wrong[place] = primes[place[1]]
        assert of.unpack(of.pack(wrong), back) == 1
    assert of.unpack(b"\xff" * len(data), back) == residues.size
    with pytest.raises(ValueError, match="polynomials"):
        of.unpack(data[:-1], back)


def test_residues_that_are_not_below_their_prime_are_drawn_again() -> None:
    of = ring("slots")
    residues = of.uniform(randomness("u"), of.empty(2))
    expected, again = residues.copy(), residues.copy()
    for wrong in (expected, again):
        wrong[0, 1, 5], wrong[1, 2, 0] = PRIMES[1], (1 << 50) - 1
        redraw(wrong, PRIMES[:3], randomness("more"))
    np.testing.assert_array_equal(expected, again)
    assert (expected != residues).sum() == 2
    assert (expected < np.array(PRIMES[:3], np.uint64)[:, None]).all()


def test_masks_are_uniform_below_t_however_many_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    masks = ring("slots").masks(randomness("m"), 10_000)
    assert masks.max() < SLOT_PRIME
    assert abs(masks.mean() / SLOT_PRIME - 0.5) < 5 / np.sqrt(12 * 10_000)  # of honest draws, one in 2 million is farther off
    half = parameters.Parameters("half", PRIMES[:3], (1 << 39) + 1, 106, 56, 64, 39)  # half of all draws are not below it
    drawn = Ring(half).masks(randomness("m"), 10_000)
    assert drawn.max() <= 1 << 39
    np.testing.assert_array_equal(drawn, Ring(half).masks(randomness("m"), 10_000))


@sets
def test_small_polynomials_have_the_distributions_that_they_should(name: str) -> None:
    """A third of each of −1, 0 and 1; and an error's variance is 10.5, within five standard deviations of such samples."""
    of, owner = ring(name), key(name)
    prime = PRIMES[0]
    back = of.transform(owner.transformed, back=True)
    first = back[0]
    assert set(first.tolist()) == {0, 1, prime - 1}
    counts = [(first == np.uint64(value)).sum() for value in (0, 1, prime - 1)]
    assert max(abs(count - N / 3) for count in counts) < 5 * np.sqrt(N * 2 / 9)
    for at, p in enumerate(SETS[name].primes):  # the same number modulo each prime
        np.testing.assert_array_equal(back[at] == np.uint64(p - 1), first == np.uint64(prime - 1))
    a = of.zeros(1)
    errors = of.transform(of.encrypt(owner.transformed, a, None, randomness("e"))[0], back=True)[0].astype(np.int64)
    errors = np.where(errors > prime // 2, errors - prime, errors)
    assert abs(errors).max() <= 21
    assert abs(errors.mean()) < 5 * np.sqrt(10.5 / N)
    assert abs(errors.var() - 10.5) < 5 * 10.5 * np.sqrt(2 / N)


def test_what_does_not_fit_is_refused() -> None:
    of, owner = ring("linear"), key("linear")
    sums, mask = of.zeros(2), np.zeros(513, np.uint64)
    with pytest.raises(ValueError, match="coefficients"):
        of.answer(sums, owner.public.parts, mask, 16, randomness("x"))
    with pytest.raises(ValueError, match="contiguous"):
        of.add_products(sums[0], sums[:, ::2], sums[0], 0, 1)
    with pytest.raises(ValueError, match="contiguous"):
        of.add_products(sums[0], sums.astype(np.int64), sums[0], 0, 1)
    with pytest.raises(ValueError, match="answer"):
        of.open(owner.transformed, bytes(SETS["linear"].answer_bytes(513)), 16, 513)
    odd = np.frombuffer(bytes(8 * 4 * N + 4), np.uint8)[4:].view(np.uint64)
    with pytest.raises(ValueError, match="contiguous"):
        of.add_products(sums[0], odd, sums[0], 0, 1)


def test_threads_share_a_ring() -> None:
    of, owner = Ring(parameters.LINEAR), key("linear")
    x = numbers(1, 30, N)

    def encrypt(at: int) -> bytes:
        a = of.uniform(randomness(f"a {at}"), of.empty(1))
        return of.pack(of.encrypt(owner.transformed, a, x[at : at + 1], randomness(f"e {at}")))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(encrypt, range(30))) == [encrypt(at) for at in range(30)]


def test_without_compiled_code_a_hint_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vfl_node.crypto.kernels._native", None)
    with pytest.raises(StateError, match="compiled") as raised:
        SecretKey(Ring(parameters.LINEAR), randomness("key"))
    assert raised.value.code == "E_DEVICE"
    assert "compiler" in raised.value.hint


@pytest.mark.parametrize(("asked", "variant"), [("libsodium", "portable"), ("avx2", "portable"), ("ifma", "ifma")])
def test_the_kernel_that_is_asked_for_chooses_the_variant(asked: str, variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if asked not in choice.names():
        pytest.skip("this machine does not have it")
    monkeypatch.setenv("VFL_KERNEL", asked)
    choice.kernel.cache_clear()
    assert choice.lattice_kernel()[1] == variant
    choice.kernel.cache_clear()
