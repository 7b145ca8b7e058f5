"""Curve25519 against RFC 9380, RFC 7748 and the published points of small order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfl_node.crypto.expand import expander
from vfl_node.crypto.groups import Curve25519, Scalar
from vfl_node.crypto.groups.curve25519 import L
from vfl_node.crypto.randomness import Randomness
from vfl_node.engines.threads import Threads
from vfl_node.errors import ProtocolError

P, J = 2**255 - 19, 486662
CURVE, WORKERS = Curve25519(), Threads(1)
DOMAIN = b"QUUX-V01-CS02-with-curve25519_XMD:SHA-512_ELL2_NU_"

# RFC 9380, appendix J.4.2: message, u = hash_to_field, Q.x = map_to_curve, P.x = clear_cofactor (8Q)
HASH_VECTORS = [
    (
        b"",
        0x608D892B641F0328523802A6603427C26E55E6F27E71A91A478148D45B5093CD,
        0x51125222DA5E763D97F3C10FCC92EA6860B9CCBBD2EB1285728F566721C1E65B,
        0x1BB913F0C9DAEFA0B3375378FFA534BDA5526C97391952A7789EB976EDFE4D08,
    ),
    (
        b"abc",
        0x46F5B22494BFEAA7F232CC8D054BE68561AF50230234D7D1D63D1D9ABECA8DA5,
        0x7D56D1E08CB0CCB92BAF069C18C49BB5A0DCD927EFF8DCF75CA921EF7F3E6EEB,
        0x7C22950B7D900FA866334262FCAEA47A441A578DF43B894B4625C9B450F9A026,
    ),
    (
        b"abcdef0123456789",
        0x235FE40C443766CE7E18111C33862D66C3B33267EFA50D50F9E8E5D252A40AAA,
        0x3FBE66B9C9883D79E8407150E7C2A1C8680BEE496C62FABE4619A72B3CABE90F,
        0x31AD08A8B0DEEB2A4D8B0206CA25F567AB4E042746F792F4B7973F3AE2096C52,
    ),
    (
        b"q128_" + b"q" * 128,
        0x001E92A544463BDA9BD04DDBE3D6EED248F82DE32F522669EFC5DDCE95F46F5B,
        0x227E0BB89DE700385D19EC40E857DB6E6A3E634B1C32962F370D26F84FF19683,
        0x027877759D155B1997D0D84683A313EB78BDB493271D935B622900459D52CEAA,
    ),
    (
        b"a512_" + b"a" * 512,
        0x1A68A1AF9F663592291AF987203393F707305C7BAC9C8D63D6A729BDC553DC19,
        0x3BCD651EE54D5F7B6013898AAB251EE8ECC0688166FCE6E9548D38472F6BD196,
        0x5FD892C0958D1A75F54C3182A18D286EFAB784E774D1E017BA2FB252998B5DC1,
    ),
]


def rows(*coordinates):
    data = b"".join(u.to_bytes(32, "little") for u in coordinates)
    return np.frombuffer(data, np.uint8).reshape(-1, 32)


def numbers(elements):
    return [int.from_bytes(row.tobytes(), "little") for row in elements]


def doubled(u):
    """The affine doubling formula, by itself."""
    return (u * u - 1) ** 2 * pow(4 * u * (u * u + J * u + 1), -1, P) % P


def is_on_curve(u):
    return pow(u**3 + J * u**2 + u, (P - 1) // 2, P) in (0, 1)


@pytest.mark.parametrize(("message", "field", "q", "p"), HASH_VECTORS)
def test_hash_vectors(message, field, q, p):
    assert int.from_bytes(expander(DOMAIN, 48)(message), "big") % P == field
    assert numbers(CURVE.hash_to_group([message], DOMAIN)) == [q]
    assert doubled(doubled(doubled(q))) == p


# RFC 9380, appendix K.3
@pytest.mark.parametrize(
    ("message", "size", "expected"),
    [
        (b"", 32, "6b9a7312411d92f921c6f68ca0b6380730a1a4d982c507211a90964c394179ba"),
        (b"abc", 32, "0da749f12fbe5483eb066a5f595055679b976e93abe9be6f0f6318bce7aca8dc"),
        (
            b"",
            128,
            "41b037d1734a5f8df225dd8c7de38f851efdb45c372887be655212d07251b921b052b62eaed99b46f72f2ef4cc96bfaf"
            "254ebbbec091e1a3b9e4fb5e5b619d2e0c5414800a1d882b62bb5cd1778f098b8eb6cb399d5d9d18f5d5842cf5d13d7e"
            "b00a7cff859b605da678b318bd0e65ebff70bec88c753b159a805d2c89c55961",
        ),
    ],
)
def test_expand_vectors(message, size, expected):
    assert expander(b"QUUX-V01-CS02-with-expander-SHA512-256", size)(message).hex() == expected


@pytest.mark.parametrize(("domain", "size"), [(b"", 32), (b"x" * 256, 32), (b"x", 0), (b"x", 16321)])
def test_expand_limits(domain, size):
    with pytest.raises(ValueError, match="a domain has"):
        expander(domain, size)


def test_hash_satisfies_the_definition_of_elligator_2():
    """On the curve, and its field element is recovered from it by the inverse map."""
    for i in range(100):
        message = b"%d" % i
        r = int.from_bytes(expander(DOMAIN, 48)(message), "big") % P
        (u,) = numbers(CURVE.hash_to_group([message], DOMAIN))
        assert is_on_curve(u)
        assert r * r % P in {-(u + J) * pow(2 * u, -1, P) % P, -u * pow(2 * (u + J), -1, P) % P}


def test_a_bare_hash_as_coordinate_would_keep_a_bit_of_the_identifier():
    """The reason for the map: blinding keeps a point on its side, curve or twist."""
    bare = [int.from_bytes(expander(DOMAIN, 48)(b"%d" % i), "big") % P for i in range(40)]
    blinded = numbers(CURVE.power(rows(*bare), CURVE.draw(Randomness(bytes(32))), WORKERS))
    assert [is_on_curve(u) for u in bare] == [is_on_curve(u) for u in blinded]
    assert len({is_on_curve(u) for u in bare}) == 2


# RFC 7748, section 5.2
@pytest.mark.parametrize(
    ("scalar", "u", "result"),
    [
        (
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
        ),
        (
            "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
            "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a413",
            "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
        ),
    ],
)
def test_power_vectors(scalar, u, result):
    row = np.frombuffer(bytes.fromhex(u), np.uint8).reshape(1, 32)
    power = CURVE.power(row, Scalar(int.from_bytes(bytes.fromhex(scalar), "little")), WORKERS)
    assert power.tobytes().hex() == result


@given(st.binary(min_size=32, max_size=32))
def test_scalars_are_clamped_and_represent_the_product(seed):
    randomness = Randomness(seed)
    a, b = CURVE.draw(randomness), CURVE.draw(randomness)
    product, inverse = CURVE.product(a, b), CURVE.inverse(a)
    for scalar in (a, b, product, inverse):
        k = scalar.reveal()
        assert k % 8 == 0
        assert 2**254 <= k < 2**255
    assert product.reveal() % L in {sign * a.reveal() * b.reveal() % L for sign in (1, -1)}
    assert inverse.reveal() * a.reveal() % L in {1, L - 1}


def test_a_residue_without_clamped_representative():
    with pytest.raises(ArithmeticError):
        CURVE.product(Scalar(0))


# https://cr.yp.to/ecdh.html#validate, with the encodings that are not canonical
E1 = 325606250916557431795983626356110631294008115727848805560023387167927233504
E2 = 39382357235489614581723060781553021112529911719440698176882885853963445705823


@pytest.mark.parametrize("u", [0, 1, E1, E2, P - 1, P, P + 1, P + E1, P + E2, 2 * P - 1, 2 * P, 2 * P + 1])
def test_points_of_small_order_are_refused(u):
    with pytest.raises(ProtocolError) as refused:
        CURVE.decode(rows(9, u))
    assert refused.value.code == "E_ELEMENT"
    if u < 2**255:  # the ladder drops the top bit, decode refuses it
        with pytest.raises(ProtocolError) as refused:
            CURVE.power(rows(9, u), CURVE.draw(Randomness(bytes(32))), WORKERS)
        assert refused.value.code == "E_ELEMENT"


@pytest.mark.parametrize(
    ("u", "reason"),
    [(2, "not on the curve"), (P + 9, "not canonical"), (2**255 + 9, "not canonical"), (2**256 - 1, "not canonical")],
)
def test_other_bad_encodings_are_refused(u, reason):
    with pytest.raises(ProtocolError, match=reason):
        CURVE.decode(rows(9, u))


def test_decode_agrees_with_eulers_criterion():
    for u in range(2, 60):
        if is_on_curve(u):
            np.testing.assert_array_equal(CURVE.decode(rows(u)), rows(u))
        else:
            with pytest.raises(ProtocolError):
                CURVE.decode(rows(u))


def test_a_small_order_component_is_cleared():
    """9 and 1/9 differ by (0, 0), the point of order 2: both valid, one power."""
    pair = CURVE.decode(rows(9, pow(9, -1, P)))
    for scalar in (CURVE.draw(Randomness(bytes(32))), CURVE.product()):
        first, second = numbers(CURVE.power(pair, scalar, WORKERS))
        assert first == second
