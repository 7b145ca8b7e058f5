"""X·b and Xᵀ·b are numpy's modulo 2^64, for odd shapes and extreme numbers, in both variants; and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.crypto.lattice.variants import compiled, key, numbers, randomness, ring, variants
from vfl_node.crypto.lattice import products, tiles
from vfl_node.crypto.lattice.keys import PublicRingKey, SecretKey
from vfl_node.crypto.lattice.products import EncryptedBlock
from vfl_node.crypto.lattice.ring import Ring, Words
from vfl_node.crypto.lattice.sizes import Tiles, block_bytes, forward_bytes, transposed_bytes

pytestmark = compiled

SHAPES = [
    (1, 1, 512),
    (3, 1, 8192),
    (700, 2, 4096),
    (100, 15, 512),
    (513, 17, 512),
    (600, 165, 512),
    (60, 330, 24),
    (3, 8192, 1),
]
EXTREME = np.array([1 << 63, (1 << 63) - 1, 0, 2**64 - 1, (1 << 63) + 1], np.uint64)


def encrypted(owner: SecretKey, shape: Tiles, x: Words) -> list[EncryptedBlock]:
    blocks = []
    for at in range(shape.blocks):
        part = x[at * shape.tile_rows :][: shape.tile_rows]
        data = products.encrypt_block(owner, shape, part, randomness(f"block {at}"))
        assert len(data) == block_bytes(shape)
        blocks.append(EncryptedBlock.from_bytes(owner.ring, data, shape, shape.block_rows(at)))
    return blocks


@variants
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["random", "extreme"])
def test_products_are_those_of_numpy(variant: str, shape: tuple[int, int, int], kind: str) -> None:
    of, owner = Tiles(*shape), key("linear", variant)
    rows, columns, _ = shape
    count = 3 if columns == 15 else 1
    if kind == "random":
        x, b, c = numbers(1, rows, columns), numbers(2, columns, count), numbers(3, rows, count)
    else:
        x, b, c = (np.resize(EXTREME, each) for each in ((rows, columns), (columns, count), (rows, count)))
        b[:], c[:] = EXTREME[0], EXTREME[0]  # the largest in size
    blocks = encrypted(owner, of, x)
    forward, share = products.multiply(owner.public, blocks, b, randomness("forward"))
    assert sum(map(len, forward)) == forward_bytes(of, rows, count)
    np.testing.assert_array_equal(products.open_forward(owner, of, forward, rows, count) + share, x @ b)
    transposed, share = products.multiply_transposed(owner.public, blocks, c, randomness("transposed"))
    assert sum(map(len, transposed)) == transposed_bytes(of, count)
    np.testing.assert_array_equal(products.open_transposed(owner, of, transposed, count) + share, x.T @ c)


def test_any_whole_blocks_may_be_chosen() -> None:
    of, owner, x = Tiles(1500, 20, 128), key("linear"), numbers(4, 1500, 20)
    blocks, chosen = encrypted(owner, of, x), [7, 2, 9]
    rows = np.concatenate([x[128 * at : 128 * (at + 1)] for at in chosen])
    b, c = numbers(5, 20, 1), numbers(6, 384, 1)
    some = [blocks[at] for at in chosen]
    forward, share = products.multiply(owner.public, some, b, randomness("f"))
    np.testing.assert_array_equal(products.open_forward(owner, of, forward, 384) + share, rows @ b)
    transposed, share = products.multiply_transposed(owner.public, some, c, randomness("t"))
    np.testing.assert_array_equal(products.open_transposed(owner, of, transposed) + share, rows.T @ c)
    with pytest.raises(ValueError, match="not the last"):
        products.multiply(owner.public, [blocks[11], blocks[0]], b, randomness("f"))


def test_without_the_sign_of_negative_powers_products_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A control of the tests above."""

    def unsigned(values: Words, step: int) -> Words:
        out = np.zeros((*values.shape[:-1], 8192), np.uint64)
        out[..., (8192 - np.arange(values.shape[-1]) * step) % 8192] = values
        return out

    of, owner, x, b = Tiles(100, 15, 512), key("linear"), numbers(1, 100, 15), numbers(2, 15, 1)
    blocks = encrypted(owner, of, x)
    monkeypatch.setattr(tiles, "reversed_powers", unsigned)
    forward, share = products.multiply(owner.public, blocks, b, randomness("forward"))
    assert (products.open_forward(owner, of, forward, 100) + share != x @ b).all()


def test_what_is_malformed_is_refused() -> None:
    of, owner, other = Tiles(40, 15, 64), key("linear"), ring("linear")
    data = products.encrypt_block(owner, of, numbers(1, 40, 15), randomness("block"))
    block = EncryptedBlock.from_bytes(other, data, of, 40)
    for wrong in (data[:-1], data + b"\0", b"", data[:32]):
        with pytest.raises(ValueError, match="bytes"):
            EncryptedBlock.from_bytes(other, wrong, of, 40)
    with pytest.raises(ValueError, match="not below its prime"):
        EncryptedBlock.from_bytes(other, data[:-25] + b"\xff" * 25, of, 40)
    with pytest.raises(ValueError, match="rows"):
        EncryptedBlock.from_bytes(other, data, of, 65)
    with pytest.raises(ValueError, match="columns"):
        products.multiply(owner.public, [block], numbers(2, 16, 1), randomness("f"))
    with pytest.raises(ValueError, match="rows"):
        products.multiply_transposed(owner.public, [block], numbers(2, 41, 1), randomness("f"))
    with pytest.raises(ValueError, match="blocks"):
        products.multiply(owner.public, [], numbers(2, 15, 1), randomness("f"))
    answers, _ = products.multiply(owner.public, [block], numbers(2, 15, 1), randomness("f"))
    for broken in ([answers[0][:-1]], [], answers * 2, [answers[0] + b"\0"]):
        with pytest.raises(ValueError, match="answers"):
            products.open_forward(owner, of, broken, 40)
        with pytest.raises(ValueError, match="answers"):
            products.open_transposed(owner, of, broken)
    public = owner.public.to_bytes()
    for broken_key in (public[:-1], public + b"\0", public[:-25] + b"\xff" * 25):
        with pytest.raises(ValueError, match=r"bytes|prime"):
            PublicRingKey.from_bytes(other, broken_key)
    with pytest.raises(ValueError, match="block"):
        products.encrypt_block(owner, of, numbers(1, 65, 15), randomness("block"))
    for rows, columns, high in ((0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 1, 8193)):
        with pytest.raises(ValueError, match="matrix"):
            Tiles(rows, columns, high)


@variants
def test_the_same_place_gives_the_same_bytes_and_another_one_others(variant: str) -> None:
    """Transcripts of two runs are equal, and in another context nothing is, not even by chance: 16 bytes are compared."""

    def transcript(label: str, of: Ring, change: int = 0) -> list[bytes]:
        shape, x = Tiles(40, 33, 512), numbers(1, 40, 33)
        x[3, 3] += np.uint64(change)
        owner = SecretKey(of, randomness(label))
        data = products.encrypt_block(owner, shape, x, randomness(label + "block"))
        blocks = [EncryptedBlock.from_bytes(of, data, shape, 40)]
        forward, _ = products.multiply(owner.public, blocks, numbers(2, 33, 1), randomness(label + "product"))
        transposed, _ = products.multiply_transposed(owner.public, blocks, numbers(2, 40, 1), randomness(label + "product"))
        return [owner.public.to_bytes(), data, *forward, *transposed]

    once = transcript("one", ring("linear", variant))
    assert transcript("one", ring("linear", "portable")) == once
    for first, second in zip(once, transcript("another", ring("linear", variant), 1), strict=True):
        pieces = [{each[at : at + 16] for at in range(0, len(each) - 15, 16)} for each in (first, second)]
        assert not pieces[0] & pieces[1]
