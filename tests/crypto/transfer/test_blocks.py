"""Transposition and hash, beside plain computations and published vectors."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tests.crypto.transfer.parties import randomness
from vfl_node.crypto.transfer.blocks import RobustHash, points_of, spread, transpose


@pytest.mark.parametrize("words", [1, 2, 3, 17])
def test_columns_are_what_numpy_says(words: int) -> None:
    rows = np.frombuffer(randomness("rows").bytes(128 * 8 * words), np.uint8).reshape(128, -1).copy()
    bits = np.unpackbits(rows, axis=1, bitorder="little")  # (row, column)
    expected = np.ascontiguousarray(np.packbits(bits.T, axis=1, bitorder="little")).view("<u8")
    blocks = transpose(rows)
    assert blocks.shape == (64 * words, 2)
    assert blocks.dtype == np.uint64
    assert (blocks == expected).all()


def test_no_columns_have_no_blocks() -> None:
    assert transpose(np.zeros((128, 0), np.uint8)).shape == (0, 2)


def test_a_block_is_spread_by_a_linear_orthomorphism() -> None:
    units = np.zeros((128, 2), np.uint64)
    for bit in range(128):
        units[bit, bit // 64] = np.uint64(1) << np.uint64(bit % 64)
    a, b = randomness("a").uint64(200).reshape(-1, 2), randomness("b").uint64(200).reshape(-1, 2)
    assert (spread(a ^ b) == spread(a) ^ spread(b)).all()
    for images in (spread(units), spread(units) ^ units):  # both have an inverse: 128 independent rows
        rows = [int(low) | int(high) << 64 for low, high in images]
        basis: list[int] = []
        for row in rows:
            for one in basis:
                row = min(row, row ^ one)
            assert row
            basis.append(row)


def test_the_hash_is_aes_of_the_published_vectors() -> None:
    """FIPS 197, appendix C.1, and SP 800-38A, F.1.1."""
    for key, plain, sealed in (
        ("000102030405060708090a0b0c0d0e0f", "00112233445566778899aabbccddeeff", "69c4e0d86a7b0430d8cdb78070b4c55a"),
        ("2b7e151628aed2a6abf7158809cf4f3c", "6bc1bee22e409f96e93d7e117393172a", "3ad77bb40d7a3660a89ecaf32466ef97"),
    ):
        point = np.frombuffer(bytes.fromhex(plain), "<u8").reshape(1, 2)
        expected = int.from_bytes(bytes.fromhex(sealed)[:8], "little") ^ int.from_bytes(bytes.fromhex(plain)[:8], "little")
        assert RobustHash(bytes.fromhex(key)).digest(point).tolist() == [expected]


def test_keys_of_blocks_are_those_of_a_direct_computation() -> None:
    key, first, blocks = bytes(range(16)), 2**40 + 5, randomness("blocks").uint64(2 * 33).reshape(-1, 2)
    keys = RobustHash(key).digest(points_of(blocks, first))
    for number, (low, high) in enumerate(blocks.tolist()):
        point = ((low ^ high) ^ (first + number)) | low << 64
        encryptor = Cipher(algorithms.AES128(key), modes.ECB()).encryptor()
        permuted = int.from_bytes(encryptor.update(point.to_bytes(16, "little")), "little")
        assert int(keys[number]) == (permuted ^ point) & (1 << 64) - 1
    assert RobustHash(key).digest(blocks[:0]).shape == (0,)
