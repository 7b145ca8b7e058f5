"""All kernels give the same bytes: those of the RFCs, of libsodium and of gmpy2, at the edges of limbs too."""

from __future__ import annotations

from hashlib import sha256
from itertools import compress, pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from tests.thorough import every
from vfl_node.crypto.groups.curve25519 import SMALL_ORDER, L
from vfl_node.crypto.kernels import Kernel, find_kernel
from vfl_node.crypto.kernels.choice import _available
from vfl_node.crypto.texts import laid_out
from vfl_node.errors import UsageError

HERE = Path(__file__).parent
P = 2**255 - 19
KERNELS = _available()
LIBRARIES = find_kernel("libsodium")
DOMAIN = b"VFL tests"

kernels = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)


def rows(*numbers: int) -> np.ndarray:
    return np.frombuffer(b"".join(number.to_bytes(32, "little") for number in numbers), np.uint8).reshape(-1, 32)


def edges() -> list[int]:
    """Numbers whose limbs, of 51, 25.5 or 64 bits, are all ones or zeros or next to it, below and above p."""
    limbs = [0, 1, 2**51 - 1]
    numbers = [sum(limb << (51 * at) for at, limb in enumerate(each)) for each in product(limbs, repeat=5)]
    starts = [-(-51 * at // 2) for at in range(11)]
    full = [(1 << end) - (1 << start) for start, end in pairwise(starts)]
    numbers += [sum(compress(full, each)) for each in product((False, True), repeat=10)]
    near = [base + offset for base in (P, 2**255, 2**254, 2**64, 2**128, 2**192) for offset in range(-20, 20)]
    return [number for number in (*numbers, *near) if 0 <= number < 2**256]


@kernels
@pytest.mark.parametrize(
    ("key", "u", "expected"),
    [  # RFC 7748, section 5.2
        (
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
        ),
        (
            "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
            "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
            "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
        ),
    ],
)
def test_published_ladders(kernel: Kernel, key: str, u: str, expected: str) -> None:
    for count in (1, 7, 8, 9):
        points = np.repeat(np.frombuffer(bytes.fromhex(u), np.uint8)[None], count, axis=0)
        assert kernel.ladders(points, bytes.fromhex(key)).tobytes() == bytes.fromhex(expected) * count


@kernels
def test_a_thousand_published_ladders_in_a_row(kernel: Kernel) -> None:
    key = u = (9).to_bytes(32, "little")
    for _ in range(1000):
        key, u = kernel.ladders(np.frombuffer(u, np.uint8)[None], key).tobytes(), key
    assert key.hex() == "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51"


@kernels
def test_ladders_at_the_edges_of_limbs(kernel: Kernel) -> None:
    points = rows(*edges())
    for key in (bytes(32), b"\xff" * 32, bytes(range(32))):
        np.testing.assert_array_equal(kernel.ladders(points, key), LIBRARIES.ladders(points, key))


def special() -> list[int]:
    """Points at which implementations of X25519 went wrong, by class; those of Project Wycheproof are of these classes too."""
    small_on_twist = [P - 1]  # order 4
    twice = [number + offset for number in (0, P) for offset in range(20)]  # a number below 19 has two encodings
    powers = [1 << bit for bit in range(256)]
    return [
        *SMALL_ORDER,
        *small_on_twist,
        *(
            number | 1 << 255 for number in (*SMALL_ORDER, *small_on_twist, *range(20), P - 2, 2**255 - 1)
        ),  # a bit that is ignored
        *twice,
        *range(2**255 - 19, 2**255),  # not canonical
        *powers,
        *(number - 1 for number in powers),
        *((1 << 255) - power for power in powers[:255]),
        *(P - power for power in powers[:255]),
    ]


@kernels
def test_ladders_of_special_points_and_scalars_are_those_of_two_libraries(kernel: Kernel) -> None:
    points = rows(*special())
    clamped = 2**254
    scalars = [
        0,
        1,
        8,
        clamped,
        clamped + 8,
        2**255 - 8,
        2**256 - 1,
        L,
        8 * L,
        P,
        *(clamped + (8 << bit) for bit in every(4, range(0, 251, 25))),
    ]
    for scalar in scalars:
        key = scalar.to_bytes(32, "little")
        found = kernel.ladders(points, key)
        np.testing.assert_array_equal(found, LIBRARIES.ladders(points, key))
        if kernel is KERNELS[0]:
            private = X25519PrivateKey.from_private_bytes(key)
            for point, result in zip(points, found, strict=True):
                public = X25519PublicKey.from_public_bytes(point.tobytes())
                if result.any():
                    assert private.exchange(public) == result.tobytes()
                else:
                    with pytest.raises(ValueError, match="shared key"):  # small order
                        private.exchange(public)


@kernels
def test_special_ladders_of_wycheproof(kernel: Kernel) -> None:
    """Each in every lane, beside the points of other vectors."""
    vectors = [line.split() for line in (HERE / "wycheproof_x25519.txt").read_text().splitlines() if not line.startswith("#")]
    points = np.array([list(bytes.fromhex(public)) for _, public, _, _ in vectors], np.uint8)
    for at, (number, _, private, shared) in enumerate(vectors):
        for first in range(8):
            found = kernel.ladders(np.roll(points, first, axis=0), bytes.fromhex(private))
            assert found[(at + first) % len(points)].tobytes().hex() == shared, number


@kernels
def test_published_hashes(kernel: Kernel) -> None:
    """RFC 9380, appendix J.4.2, the column Q.x; tests/crypto/test_curve25519.py has the rest."""
    domain = b"QUUX-V01-CS02-with-curve25519_XMD:SHA-512_ELL2_NU_"
    published = {
        b"": "51125222da5e763d97f3c10fcc92ea6860b9ccbbd2eb1285728f566721c1e65b",
        b"abc": "7d56d1e08cb0ccb92baf069c18c49bb5a0dcd927eff8dcf75ca921ef7f3e6eeb",
        b"abcdef0123456789": "3fbe66b9c9883d79e8407150e7c2a1c8680bee496c62fabe4619a72b3cabe90f",
        b"q128_" + b"q" * 128: "227e0bb89de700385d19ec40e857db6e6a3e634b1c32962f370d26f84ff19683",
        b"a512_" + b"a" * 512: "3bcd651ee54d5f7b6013898aab251ee8ecc0688166fce6e9548d38472f6bd196",
    }
    found = kernel.hash_ids(*laid_out(list(published)), domain)
    assert [row.tobytes()[::-1].hex() for row in found] == list(published.values())


@kernels
@pytest.mark.parametrize("count", [0, 1, 5, 8, 31, 64, 65, 100, 2000])
def test_ladders_of_random_points(kernel: Kernel, count: int) -> None:
    rng = np.random.default_rng(count)
    points, key = rng.integers(0, 256, (count, 32), np.uint8), rng.bytes(32)
    found = kernel.ladders(points, key)
    np.testing.assert_array_equal(found, LIBRARIES.ladders(points, key))
    assert found.shape == (count, 32)


@kernels
def test_a_point_of_small_order_gives_zeros(kernel: Kernel) -> None:
    """Wherever it stands, and the points beside it, which share an inversion with it, are as they are without it."""
    assert not kernel.ladders(rows(*SMALL_ORDER), bytes(range(32))).any()
    points, key = LIBRARIES.hash_ids(*laid_out([f"{number}".encode() for number in range(70)]), DOMAIN), bytes(range(32))
    expected = kernel.ladders(points, key)
    for at in (0, 1, 7, 8, 63, 64, 69):
        spoilt = points.copy()
        spoilt[at] = rows(1)[0]
        found = kernel.ladders(spoilt, key)
        assert not found[at].any()
        np.testing.assert_array_equal(np.delete(found, at, axis=0), np.delete(expected, at, axis=0))


@kernels
@pytest.mark.parametrize("longest", [0, 3, 20, 127, 128, 1000])
def test_hashes_of_identifiers_of_any_length(kernel: Kernel, longest: int) -> None:
    rng = np.random.default_rng(longest)
    for domain in (b"d", DOMAIN, bytes(255)):
        ids = [rng.bytes(int(size)) for size in rng.integers(0, longest + 1, 21)]
        np.testing.assert_array_equal(kernel.hash_ids(*laid_out(ids), domain), LIBRARIES.hash_ids(*laid_out(ids), domain))


@kernels
def test_identifiers_at_the_edges_are_hashed_alike(kernel: Kernel) -> None:
    """Empty, of zero bytes, of 64 KiB beside short ones, and around the ends of the blocks of both hashes."""
    ids = [b"", b"\0", b"\0" * 64, b"a\0b", bytes(range(256)), "é\U0010ffff".encode(), b"x" * 65_536, b"y"]
    ids += [b"z" * size for edge in (55, 64, 119, 128) for size in range(edge - 2, edge + 3)]
    text, offsets = laid_out(ids)
    np.testing.assert_array_equal(kernel.hash_ids(text, offsets, DOMAIN), LIBRARIES.hash_ids(text, offsets, DOMAIN))
    assert [row.tobytes() for row in kernel.digests(text, offsets)] == [sha256(item).digest() for item in ids]
    for start, stop in ((0, 0), (3, 8), (len(ids) - 1, len(ids))):  # a part of a text
        part = offsets[start : stop + 1]
        expected = LIBRARIES.hash_ids(*laid_out(ids[start:stop]), DOMAIN)
        np.testing.assert_array_equal(kernel.hash_ids(text, part, DOMAIN), expected)
        assert [row.tobytes() for row in kernel.digests(text, part)] == [sha256(item).digest() for item in ids[start:stop]]


@kernels
@pytest.mark.parametrize("offsets", [[], [-1, 2], [0, 4], [0, 3, 2], [3, 2, 3], [0, 2**62]])
def test_offsets_outside_of_the_text_are_refused(kernel: Kernel, offsets: list[int]) -> None:
    for compute in (kernel.digests, lambda *given: kernel.hash_ids(*given, DOMAIN)):
        with pytest.raises(ValueError, match="offsets"):
            compute(b"abc", np.array(offsets, np.int64))


@kernels
def test_no_identifiers_have_no_hashes(kernel: Kernel) -> None:
    assert kernel.hash_ids(*laid_out([]), DOMAIN).shape == (0, 32)


@kernels
@pytest.mark.parametrize("size", [0, 256])
def test_a_domain_has_1_to_255_bytes(kernel: Kernel, size: int) -> None:
    with pytest.raises(ValueError, match="255"):
        kernel.hash_ids(*laid_out([b"id"]), bytes(size))


@kernels
def test_points_are_checked_alike(kernel: Kernel) -> None:
    rng = np.random.default_rng(5)
    faults = []
    for number in [*edges(), *(int.from_bytes(rng.bytes(32), "little") % P for _ in range(100))]:
        fault = kernel.fault(rows(number))
        assert fault == LIBRARIES.fault(rows(number))
        assert (fault == "is not canonical") == (number >= P)
        faults.append(fault)
    assert set(faults) == {None, "is not canonical", "is not on the curve"}


@kernels
@pytest.mark.parametrize("count", [0, 1, 8, 19])
def test_one_bad_point_among_good_ones_is_noticed_anywhere(kernel: Kernel, count: int) -> None:
    good = LIBRARIES.hash_ids(*laid_out([f"{number}".encode() for number in range(count)]), DOMAIN)
    assert kernel.fault(good) is None
    for at in range(count):
        for number, fault in ((P + 9, "is not canonical"), (2, "is not on the curve")):
            spoilt = good.copy()
            spoilt[at] = rows(number)[0]
            assert kernel.fault(spoilt) == fault


@given(points=st.lists(st.binary(min_size=32, max_size=32), max_size=70), key=st.binary(min_size=32, max_size=32))
def test_any_points_and_any_scalar(points: list[bytes], key: bytes) -> None:
    given_points = np.frombuffer(b"".join(points), np.uint8).reshape(-1, 32)
    expected, fault = (
        LIBRARIES.ladders(given_points, key),
        {LIBRARIES.fault(given_points[at : at + 1]) for at in range(len(points))},
    )
    for kernel in KERNELS:
        np.testing.assert_array_equal(kernel.ladders(given_points, key), expected)
        assert {kernel.fault(given_points[at : at + 1]) for at in range(len(points))} == fault


@given(ids=st.lists(st.binary(max_size=400), max_size=70), domain=st.binary(min_size=1, max_size=255))
def test_any_identifiers_in_any_domain(ids: list[bytes], domain: bytes) -> None:
    expected = LIBRARIES.hash_ids(*laid_out(ids), domain)
    for kernel in KERNELS:
        np.testing.assert_array_equal(kernel.hash_ids(*laid_out(ids), domain), expected)
        assert [row.tobytes() for row in kernel.digests(*laid_out(ids))] == [sha256(item).digest() for item in ids]


EDGES = np.array([0, 1, 2**32 - 1, 2**32, 2**36 - 1, 2**36, 2**63, 2**64 - 1], np.uint64)
"""Numbers at the edges of the parts in which they are multiplied."""


@kernels
@pytest.mark.parametrize("width", [1, 3, 4, 23, 24, 25, 383, 384, 385, 800])
@pytest.mark.parametrize("rows", [1, 21, 64, 65, 700])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 9])
def test_products_of_cells(kernel: Kernel, rows: int, width: int, count: int) -> None:
    """At sizes around those of tiles, panels and blocks."""
    rng = np.random.default_rng(rows * width * count)
    cells = rng.integers(0, 1 << 16, (rows, width)).astype(np.uint16)
    cells[rng.random(cells.shape) < 0.1] = 0xFFFF
    numbers = rng.integers(0, 1 << 64, (count, rows), dtype=np.uint64)
    at_edges = rng.random(numbers.shape) < 0.2
    numbers[at_edges] = rng.choice(EDGES, at_edges.sum())
    expected = numbers @ cells.astype(np.uint64)
    np.testing.assert_array_equal(kernel.multiply_cells(cells, numbers), expected)
    part = np.concatenate([numbers, numbers], axis=1)[:, :rows]  # whose rows are farther apart
    np.testing.assert_array_equal(kernel.multiply_cells(np.asfortranarray(cells), part), expected)


@kernels
def test_the_largest_cells_and_numbers(kernel: Kernel) -> None:
    """More rows than sums of floats are exact for, and many more than one lane of 52 bits has room for."""
    rows = (1 << 20) + 5
    cells, numbers = np.full((rows, 2), 0xFFFF, np.uint16), np.full((2, rows), 2**64 - 1, np.uint64)
    numbers[1] = 2**36 - 1
    expected = [[factor * 0xFFFF * rows % 2**64] * 2 for factor in (2**64 - 1, 2**36 - 1)]
    np.testing.assert_array_equal(kernel.multiply_cells(cells, numbers), np.array(expected, np.uint64))


@kernels
@pytest.mark.parametrize(("rows", "words", "count"), [(1, 1, 1), (63, 2, 3), (64, 6, 16), (1000, 52, 5), (70_000, 1, 2)])
def test_products_of_bits(kernel: Kernel, rows: int, words: int, count: int) -> None:
    rng = np.random.default_rng(rows)
    first, second = (rng.integers(0, 1 << 64, (size, words), dtype=np.uint64) for size in (rows, count))
    one, other = (np.unpackbits(each.view(np.uint8), axis=1).astype(np.int64) for each in (first, second))
    np.testing.assert_array_equal(kernel.multiply_bits(first, second), other @ one.T % 2)
    np.testing.assert_array_equal(kernel.multiply_bits(np.asfortranarray(first), second), other @ one.T % 2)


@kernels
def test_empty_matrices_have_empty_products(kernel: Kernel) -> None:
    for rows, width, count in product((0, 2), repeat=3):
        cells, numbers = np.ones((rows, width), np.uint16), np.ones((count, rows), np.uint64)
        np.testing.assert_array_equal(kernel.multiply_cells(cells, numbers), np.full((count, width), rows, np.uint64))
        first, second = np.ones((rows, width), np.uint64), np.ones((count, width), np.uint64)
        np.testing.assert_array_equal(kernel.multiply_bits(first, second), np.zeros((count, rows), np.uint8))


@kernels
def test_matrices_that_do_not_fit_are_refused(kernel: Kernel) -> None:
    cells, numbers, words = np.zeros((3, 2), np.uint16), np.zeros((1, 3), np.uint64), np.zeros((1, 2), np.uint64)
    for one, other in (
        (cells, numbers[:, :2]),
        (cells.astype(np.uint32), numbers),
        (cells, numbers.view(np.int64)),
        (cells, numbers[0]),
    ):
        with pytest.raises(ValueError, match="cells"):
            kernel.multiply_cells(one, other)
    for one, other in ((words, words[:, :1]), (words, words.view(np.int64)), (words.view(np.int64), words), (words[0], words)):
        with pytest.raises(ValueError, match="bits"):
            kernel.multiply_bits(one, other)


def test_a_kernel_is_chosen_by_its_name() -> None:
    assert find_kernel("").name == KERNELS[0].name
    assert [find_kernel(of.name).name for of in KERNELS] == [of.name for of in KERNELS]
    with pytest.raises(UsageError, match="this machine has"):
        find_kernel("abacus")


def test_without_compiled_code_libraries_do_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError

    monkeypatch.setattr("vfl_node.crypto.kernels.choice.importlib.import_module", missing)
    assert find_kernel("").name == "libsodium"
