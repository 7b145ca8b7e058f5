"""Ciphertexts open to what was encrypted, repeat where they must and never where they must not."""

from __future__ import annotations

import sys
from contextlib import closing

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz
from hypothesis import given, settings
from hypothesis import strategies as st

from vfl_node.crypto.paillier import encryption, keys
from vfl_node.crypto.paillier.decryption import decrypt
from vfl_node.crypto.paillier.encryption import Encryptor
from vfl_node.crypto.randomness import Randomness
from vfl_node.engines.contract import Inline
from vfl_node.engines.processes import Processes

HERE = Inline()
SEED = Randomness(b"s" * 32)
KEYS = {bits: keys.generate(bits, SEED.derive(f"{bits}")) for bits in (256, 258, 512, 1024)}
KEY = KEYS[512]
N = KEY.public.n


def encryptor(key=KEY, seed=b"e", workers=HERE, **options):
    return Encryptor(key.public, Randomness(seed * 32), workers, **options)


def opened(ciphertexts, key=KEY):
    n = key.public.n
    return [m - n if 2 * m > n else m for m in decrypt(key, ciphertexts, HERE)]


def edges(key):
    half = (key.public.n - 1) // 2
    return [0, 1, -1, 2**63, -(2**63), 2**100 + 1, half, -half, half - 1]


@pytest.mark.parametrize("bits", KEYS)
@pytest.mark.parametrize("options", [{}, {"short_exponents": True}, {"private": True}], ids=["public", "short", "owner"])
def test_what_is_encrypted_is_decrypted(bits, options):
    key = KEYS[bits]
    options = options and {name: key if name == "private" else True for name in options}
    made = encryptor(key, **options).encrypt(values := edges(key), "a")
    assert made.shape == (len(values), key.public.width)
    assert made.dtype == np.uint8
    assert made.flags.c_contiguous
    assert opened(made, key) == values


def test_a_product_of_the_size_that_is_used():
    key = keys.generate(2048, SEED.derive("2048"))
    e = encryptor(key, short_exponents=True)
    made = e.encrypt(edges(key), "a")
    assert opened(made, key) == opened(e.rerandomise(made, "b"), key) == opened(e.blind(made, "c"), key) == edges(key)


@given(st.lists(st.integers(-(2**200), 2**200), max_size=5), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_products_encrypt_sums(values, label):
    numbers = KEY.public.integers(encryptor().encrypt(values, f"{label}"))
    product = mpz(1)
    for number in numbers:
        product = product * number % KEY.public.square
    assert opened(KEY.public.rows([product])) == [sum(values)]


def test_no_values():
    e = encryptor()
    e.prepare("prepared", 0)
    for made in (
        e.encrypt([], "prepared"),
        e.encrypt([], "a"),
        e.rerandomise(KEY.public.rows([]), "b"),
        e.blind(KEY.public.rows([]), "c"),
    ):
        assert made.shape == (0, KEY.public.width)
    assert decrypt(KEY, KEY.public.rows([]), HERE) == []


def test_decryption_gives_residues():
    assert decrypt(KEY, encryptor().encrypt([-1, 0, 1], "a"), HERE) == [N - 1, 0, 1]


def test_numpys_integers_are_integers():
    assert opened(encryptor().encrypt(np.array([-5, 7], dtype=np.int64), "a")) == [-5, 7]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.5, 1.0, None, "1", mpz(1) / 1])
def test_what_is_no_integer_is_refused(value):
    e = encryptor()
    with pytest.raises(TypeError):
        e.encrypt([1, value], "a")
    assert opened(e.encrypt([1], "a")) == [1]  # nothing was drawn


@pytest.mark.parametrize("value", [(N + 1) // 2, -(N + 1) // 2, N, -N, 2**4000])
def test_what_is_too_large_is_refused(value):
    with pytest.raises(ValueError, match="too large for a Paillier key of 512 bits"):
        encryptor().encrypt([0, value], "a")


def test_a_private_key_of_another_pair_is_refused():
    with pytest.raises(ValueError, match="another public key"):
        encryptor(private=KEYS[256])


# What repeats and what does not


def test_randomness_and_label_determine_the_bytes():
    values = list(range(150))
    made = encryptor().encrypt(values, "a")
    prepared = encryptor()
    prepared.prepare("b", 150)
    prepared.prepare("a", 150)
    many = encryptor()
    many.encrypt(range(3000), "sets another table")
    for same in (encryptor(), prepared, many, encryptor(private=KEY)):
        np.testing.assert_array_equal(same.encrypt(values, "a"), made)
    np.testing.assert_array_equal(encryptor().encrypt(values[:70], "a"), made[:70])
    for other in (encryptor().encrypt(values, "b"), encryptor(seed=b"f").encrypt(values, "a")):
        assert (other != made).any(axis=1).all()


def test_rerandomised_and_blinded_bytes_repeat_as_well():
    made = encryptor().encrypt(range(70), "a")
    for again in (Encryptor.rerandomise, Encryptor.blind):
        one = again(encryptor(), made, "b")
        np.testing.assert_array_equal(again(encryptor(private=KEY), made, "b"), one)
        assert (one != made).any(axis=1).all()
        assert (one != again(encryptor(), made, "c")).any(axis=1).all()
        assert opened(one) == list(range(70))


def test_prepared_noise_is_used_for_rerandomising_too():
    made = encryptor().encrypt(range(5), "a")
    e = encryptor()
    e.prepare("b", 5)
    np.testing.assert_array_equal(e.rerandomise(made, "b"), encryptor().rerandomise(made, "b"))


def test_processes_make_the_same_bytes():
    values = list(range(300))
    with closing(Processes(2)) as both:
        e, owner = encryptor(workers=both), encryptor(workers=both, private=KEY)
        e.prepare("p", 300)
        made = e.encrypt(values, "a")
        np.testing.assert_array_equal(made, encryptor().encrypt(values, "a"))
        np.testing.assert_array_equal(owner.encrypt(values, "a"), made)
        np.testing.assert_array_equal(e.encrypt(values, "p"), encryptor().encrypt(values, "p"))
        np.testing.assert_array_equal(e.blind(made, "b"), encryptor().blind(made, "b"))
        assert decrypt(KEY, made, both) == values
        assert "torch" in sys.modules
        assert next(both.map(eval, [{}], "'vfl_node.crypto.paillier.encryption' in __import__('sys').modules"))
        assert not next(both.map(eval, [{}], "'torch' in __import__('sys').modules"))


class Spy(Inline):
    def __init__(self):
        self.calls = []

    def map(self, operation, blocks, key, *, background=False):
        self.calls.append((operation.__name__, background))
        return super().map(operation, blocks, key, background=background)


def test_noise_is_prepared_in_the_background_and_only_once():
    spy = Spy()
    e = encryptor(workers=spy)
    e.prepare("a", 100)
    assert spy.calls == [("_powers_of_base", True)]
    e.encrypt(range(100), "a")
    assert len(spy.calls) == 1
    e.encrypt(range(100), "b")
    assert spy.calls[1:] == [("_powers_of_base", False)]


OPERATIONS = {
    "prepare": lambda e, made: e.prepare("a", 1),
    "encrypt": lambda e, made: e.encrypt([2], "a"),
    "rerandomise": lambda e, made: e.rerandomise(made, "a"),
    "blind": lambda e, made: e.blind(made, "a"),
}


@pytest.mark.parametrize("second", OPERATIONS)
@pytest.mark.parametrize("first", OPERATIONS)
def test_a_label_serves_once(first, second):
    made = encryptor().encrypt([7], "x")
    e = encryptor()
    OPERATIONS[first](e, made)
    if first == "prepare" and second in ("encrypt", "rerandomise"):
        OPERATIONS[second](e, made)
    with pytest.raises(RuntimeError, match="'a' was drawn before"):
        OPERATIONS[second](e, made)


def test_why_a_label_serves_once():
    """Two numbers under the same noise: the quotient of their ciphertexts is 1 + (a − b)·n, for everyone to read."""
    a, b = (int(KEY.public.integers(encryptor().encrypt([value], "a"))[0]) for value in (1000, 58))
    square = int(KEY.public.square)
    assert (a * pow(b, -1, square) % square - 1) // N == 1000 - 58


@pytest.mark.parametrize("count", [4, 6])
def test_noise_prepared_for_another_count_is_refused(count):
    e = encryptor()
    e.prepare("a", 5)
    with pytest.raises(ValueError, match=f"prepared for 5 ciphertexts, not for {count}"):
        e.encrypt(range(count), "a")


# What ciphertexts show


def trivial(public, ciphertexts):
    """Whether each ciphertext is 1 + m·n, readable without a key, bool[n]."""
    return np.array([number % public.n == 1 for number in public.integers(ciphertexts)])


def test_zeros_are_fresh_and_never_trivial(monkeypatch):
    e = encryptor()
    made = np.concatenate([e.encrypt([0] * 500, f"{i}") for i in range(4)])
    again = e.rerandomise(made, "again")
    assert len(np.unique(np.concatenate([made, again]), axis=0)) == 4000
    assert not trivial(KEY.public, made).any()
    # Without noise all would be the one ciphertext 1.
    monkeypatch.setattr(encryption, "powers", lambda base, moduli, comb, exponents: [mpz(1)] * (len(exponents) // 32))
    bare = encryptor().encrypt([0] * 5, "a")
    assert trivial(KEY.public, bare).all()
    assert len(np.unique(bare, axis=0)) == 1


@pytest.mark.parametrize("bits", [512, 1024])
def test_every_value_takes_the_same_work(bits, monkeypatch):
    """What is multiplied has as many machine words for 0 as for any other number, and ciphertexts are of one length."""
    key, words = KEYS[bits], []
    multiply = Encryptor._multiply

    def record(self, numbers, noise):
        words.extend(-(-number.bit_length() // 64) for number in numbers)
        return multiply(self, numbers, noise)

    monkeypatch.setattr(Encryptor, "_multiply", record)
    values = edges(key)
    assert encryptor(key).encrypt(values, "a").shape == (len(values), bits // 4)
    assert words == [2 * bits // 64 + 1] * len(values)
    assert {-(-(value % key.public.n * key.public.n + 1).bit_length() // 64) for value in values} >= {1, 2 * bits // 64}


def symbols(ciphertexts):
    """Jacobi symbols, for everyone to see, int[n]."""
    return np.array([gmpy2.jacobi(number % N, N) for number in KEY.public.integers(ciphertexts)])


@pytest.mark.parametrize("change", [Encryptor.rerandomise, Encryptor.blind])
def test_a_ciphertext_is_not_recognised_by_its_jacobi_symbol(change):
    """A peer sends ciphertexts of symbol −1; those it gets back look like encryptions of 0 by another."""
    e = encryptor()
    marked = np.repeat(e.encrypt([5] * 40, "a"), 10, axis=0)
    marked = marked[symbols(marked) == -1][:100]
    assert len(marked) == 100
    for made in (change(e, marked, "b"), e.encrypt([0] * 100, "c")):
        assert 30 < (symbols(made) == 1).sum() < 70
    # Noise from a square, as published in the literature, would keep the mark.
    e._base = e._base**2 % KEY.public.square
    assert (symbols(e.rerandomise(marked, "d")) == -1).all()
    assert (symbols(e.encrypt([0] * 100, "e")) == 1).all()


def test_the_owner_can_tell_noise_of_the_base_from_blinded_ciphertexts():
    """The n-th root of a power of h is a square or h times a square; that of uniform noise is any unit."""
    to_root = gmpy2.invert(N, (KEY.p - 1) * (KEY.q - 1))

    def characters(noise):
        roots = [gmpy2.powmod(number % N, to_root, N) for number in KEY.public.integers(noise)]
        return [(gmpy2.legendre(root, KEY.p), gmpy2.legendre(root, KEY.q)) for root in roots]

    plain = KEY.public.rows([mpz(1)] * 400)
    assert set(characters(encryptor().rerandomise(plain, "a"))) in ({(1, 1), (1, -1)}, {(1, 1), (-1, 1)})
    seen = characters(encryptor().blind(plain, "a"))
    counts = [seen.count((a, b)) for a in (1, -1) for b in (1, -1)]
    assert sum(counts) == 400
    assert sum((count - 100) ** 2 / 100 for count in counts) < 25  # chi-square, 3 degrees of freedom


def test_each_encryptor_has_a_base_of_its_own():
    """A base from the key's owner could be of small order; then rerandomising would leave a mark it can read."""
    bases = {Encryptor(KEY.public, Randomness(bytes([i]) * 32), HERE)._base for i in range(10)}
    assert len(bases) == 10
    assert all(gmpy2.powmod(base, (KEY.p - 1) * (KEY.q - 1) // 2, KEY.public.square) == 1 for base in bases)
    assert all(gmpy2.jacobi(base % N, N) == -1 for base in bases)


@pytest.mark.parametrize(
    ("bits", "long", "short"),
    [(2048, 1024, 448), (3072, 1536, 512), (4096, 2048, 608), (256, 128, 128), (1024, 512, 448), (258, 129, 129)],
)
def test_lengths_of_exponents(bits, long, short):
    assert encryption._exponent_bits(bits, short=False) == long
    assert encryption._exponent_bits(bits, short=True) == short


@pytest.mark.parametrize("short", [False, True])
def test_exponents_are_drawn_at_their_full_length(short, monkeypatch):
    drawn = []
    real = encryption.powers
    monkeypatch.setattr(
        encryption, "powers", lambda b, m, comb, data: drawn.append((comb.exponent_bytes, data)) or real(b, m, comb, data)
    )
    encryptor(KEYS[1024], short_exponents=short).encrypt([0] * 50, "a")
    [(size, data)] = drawn
    assert size == (56 if short else 64)
    assert len(data) == 50 * size
    assert len({data[i : i + size] for i in range(0, len(data), size)}) == 50
    bits = np.unpackbits(np.frombuffer(data, np.uint8).reshape(50, size), axis=1)
    assert bits.any(axis=0).all()
    assert not bits.all(axis=0).any()
