"""Keys: how they are made, which a peer may not send, and what the proof proves."""

from __future__ import annotations

import itertools
import pickle

import gmpy2
import pytest

from vfl_node.crypto.paillier import keys
from vfl_node.crypto.paillier.keys import PublicKey
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import ProtocolError

SEED = Randomness(bytes(32))
KEY = keys.generate(512, SEED.derive("key"))
OTHER = keys.generate(512, SEED.derive("other"))
CONTEXT = b"a job, a party"


def prime(bits, name="prime"):
    stream = SEED.derive(name)
    return gmpy2.next_prime(stream.draw_below(1 << (bits - 1)) + (1 << (bits - 1)))


def refused(function, *arguments):
    with pytest.raises(ProtocolError) as caught:
        function(*arguments)
    assert caught.value.code == "E_KEY"
    assert caught.value.hint
    return caught.value.message


@pytest.mark.parametrize("bits", [256, 258, 512, 1000, 2048])
@pytest.mark.parametrize("seed", range(3))
def test_what_a_key_is(bits, seed):
    key = keys.generate(bits, SEED.derive(f"{bits} {seed}"))
    p, q, public = key.p, key.q, key.public
    assert gmpy2.is_prime(p)
    assert gmpy2.is_prime(q)
    assert p.bit_length() == q.bit_length() == bits // 2
    assert p % 4 == q % 4 == 3
    assert abs(p - q).bit_length() > bits // 2 - 100
    assert gmpy2.gcd(public.n, (p - 1) * (q - 1)) == 1
    assert gmpy2.gcd(p - 1, q - 1) == 2
    assert (public.n, public.bits, public.square) == (p * q, bits, public.n**2)
    assert public.width == -(-2 * bits // 8)
    keys.check(public, bits)
    keys.verify(public, keys.prove(key, CONTEXT), CONTEXT)


def test_a_restarted_party_makes_the_same_key():
    assert keys.generate(256, Randomness(b"a" * 32)) == keys.generate(256, Randomness(b"a" * 32))
    assert keys.generate(256, Randomness(b"a" * 32)) != keys.generate(256, Randomness(b"b" * 32))


@pytest.mark.parametrize("bits", [257, 254, 0, -2048])
def test_sizes_that_are_none(bits):
    with pytest.raises(ValueError, match="at least 256"):
        keys.generate(bits, SEED)


def test_a_private_key_keeps_its_primes_to_itself():
    assert repr(KEY) == str(KEY) == f"{KEY}" == "PrivateKey(secret)"


def test_a_public_key_in_bytes():
    data = KEY.public.to_bytes()
    assert len(data) == 64
    assert PublicKey.from_bytes(data) == KEY.public
    assert PublicKey.from_bytes(data).square == KEY.public.square
    assert pickle.loads(pickle.dumps(KEY.public)) == KEY.public
    assert len(KEY.public.fingerprint()) == 32
    assert KEY.public.fingerprint() == PublicKey.from_bytes(data).fingerprint() != OTHER.public.fingerprint()


def test_rows_are_big_endian_and_keep_leading_zeros():
    numbers = [gmpy2.mpz(v) for v in (0, 1, 256, KEY.public.square - 1)]
    rows = KEY.public.rows(numbers)
    assert rows.shape == (4, 128)
    assert rows.flags.c_contiguous
    assert rows[2].tobytes() == bytes(126) + b"\1\0"
    assert KEY.public.integers(rows) == numbers
    assert KEY.public.integers(rows[::2]) == numbers[::2]
    assert KEY.public.rows([]).shape == (0, 128)
    with pytest.raises(OverflowError):
        KEY.public.rows([gmpy2.mpz(1) << 1024])


P, Q = prime(128, "p"), prime(128, "q")
FAULTY = {
    "of another size": (KEY.public.n, 510, "has 512 bits, not 510"),
    "even": (2 * prime(255), 256, "a prime factor up to 65536"),
    "with a small factor": (3 * prime(255), 257, "a prime factor up to 65536"),
    "with the largest of the small factors": (65521 * prime(240), 256, "a prime factor up to 65536"),
    "prime": (prime(256), 256, "is a prime number"),
    "a square": (P**2, int(P**2).bit_length(), "is a power"),
    "a cube": (P**3, int(P**3).bit_length(), "is a power"),
    "nothing": (0, 256, "has 0 bits"),
    "one": (1, 1, "is a power"),
}


@pytest.mark.parametrize("fault", FAULTY)
def test_keys_that_show_their_fault(fault):
    n, bits, message = FAULTY[fault]
    public = PublicKey(int(n))
    assert message in refused(keys.check, public, bits)


def test_a_factor_above_the_bound_is_not_refused():
    public = PublicKey(int(65537 * prime(256)))
    keys.check(public, public.bits)


@pytest.mark.parametrize(
    ("public", "context"),
    [(OTHER.public, CONTEXT), (KEY.public, b"another job"), (KEY.public, b"")],
    ids=["key", "context", "no context"],
)
def test_a_proof_is_for_one_key_and_one_context(public, context):
    proof = keys.prove(KEY, CONTEXT)
    keys.verify(KEY.public, proof, CONTEXT)
    refused(keys.verify, public, proof, context)


def test_a_proof_that_was_altered():
    proof, width = keys.prove(KEY, CONTEXT), 64
    assert len(proof) == 8 * width
    for place in range(0, len(proof), 37):
        refused(keys.verify, KEY.public, proof[:place] + bytes([proof[place] ^ 1]) + proof[place + 1 :], CONTEXT)
    roots = [proof[i : i + width] for i in range(0, len(proof), width)]
    refused(keys.verify, KEY.public, b"".join([roots[1], roots[0], *roots[2:]]), CONTEXT)
    for wrong in (b"", proof[:-1], proof + b"\0", proof[:-width], proof + roots[0]):
        assert f"a proof of {len(wrong)} bytes" in refused(keys.verify, KEY.public, wrong, CONTEXT)


def test_each_root_has_one_form():
    """y + n is the same root once more, and 0 is none; a root in another form would be another proof."""
    small = next(k for i in itertools.count() if 2 * (k := keys.generate(258, SEED.derive(f"{i}"))).public.n < 1 << 264)
    proof = keys.prove(small, CONTEXT)
    root = int.from_bytes(proof[:33], "big")
    for other in (root + small.public.n, 0, small.public.n):
        refused(keys.verify, small.public, other.to_bytes(33, "big") + proof[33:], CONTEXT)


def not_squarefree():
    """n = p²·q: n and φ(n) share p."""
    return P * P * Q, P * (P - 1) * (Q - 1), P


def one_factor_divides_the_other_less_one():
    """n = p·q with q = 1 mod p: n and φ(n) share p."""
    q = next(q for k in itertools.count(1 << 32) if gmpy2.is_prime(q := 2 * k * P + 1))
    return P * q, (P - 1) * (q - 1), P


@pytest.mark.parametrize("make", [not_squarefree, one_factor_divides_the_other_less_one])
def test_no_proof_for_a_key_whose_noise_is_no_permutation(make, monkeypatch):
    """The prover knows the factors and gives every n-th root there is; only one challenge in p has one."""
    n, phi, shared = make()
    public = PublicKey(int(n))
    assert gmpy2.gcd(n, phi) == shared
    to_root = gmpy2.invert(n, phi // shared)
    width = (public.bits + 7) // 8

    def best_proof():
        roots = [gmpy2.powmod(x, to_root, n) for x in keys._challenges(public, CONTEXT)]
        return b"".join(root.to_bytes(width, "big") for root in roots)

    keys.check(public, public.bits)  # nothing is to be seen from outside
    assert "does not hold" in refused(keys.verify, public, best_proof(), CONTEXT)
    # The same prover convinces where it may choose the challenges: their origin in a hash is what refuses it.
    monkeypatch.setattr(keys, "_challenges", lambda public, context: [gmpy2.powmod(x, n, n) for x in range(2, 10)])
    keys.verify(public, best_proof(), CONTEXT)


def test_a_shared_small_factor_is_found_by_division_not_by_the_proof(monkeypatch):
    """For n = 9·q a third of all challenges have roots, and one context in 3^8 leads to eight of them."""
    q = next(q for i in itertools.count() if (q := prime(128, f"{i}")) % 3 == 2)
    n, public = 9 * q, PublicKey(int(9 * q))
    to_root = gmpy2.invert(n, 2 * (q - 1))

    def roots(context):
        for x in keys._challenges(public, context):
            if gmpy2.powmod(y := gmpy2.powmod(x, to_root, n), n, n) != x or gmpy2.gcd(x, n) != 1:
                return
            yield y

    tries = (b"%d" % i for i in itertools.count())
    context, found = next((context, y) for context in tries if len(y := list(roots(context))) == 8)
    proof = b"".join(y.to_bytes(17, "big") for y in found)
    assert "a prime factor up to" in refused(keys.verify, public, proof, context)
    monkeypatch.setattr(keys, "_check_small_factors", lambda public: None)
    keys.verify(public, proof, context)


def test_challenges_that_share_a_factor_with_n_are_refused(monkeypatch):
    """p^n has the root p for every n with the factor p; such challenges would prove nothing."""
    p, n = KEY.p, KEY.public.n
    monkeypatch.setattr(keys, "_challenges", lambda public, context: [gmpy2.powmod(p, n, n)] * 8)
    refused(keys.verify, KEY.public, 8 * p.to_bytes(64, "big"), CONTEXT)


def test_challenges_look_uniform():
    """Of 400, each of the top three bits, taken together, is met about equally often (chi-square, 7 degrees of freedom)."""
    seen = [int(x * 8 // KEY.public.n) for i in range(50) for x in keys._challenges(KEY.public, b"%d" % i)]
    assert len({x for i in range(50) for x in keys._challenges(KEY.public, b"%d" % i)}) == 400
    assert sum((seen.count(v) - 50) ** 2 / 50 for v in range(8)) < 30
