from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numkong
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from vfl_node.crypto.nearest import matrices
from vfl_node.crypto.nearest.best import Neighbours
from vfl_node.crypto.nearest.matrices import nearest_by_products
from vfl_node.crypto.nearest.search import nearest
from vfl_node.crypto.rows import Rows
from vfl_node.engines.contract import Engine, Inline
from vfl_node.engines.threads import Threads

QUERIES, BASE, BYTES = 2000, 500, 25


def filters(rows: int, seed: int, width: int = BYTES, ones: float = 0.03) -> Rows:
    return np.packbits(np.random.default_rng(seed).random((rows, 8 * width)) < ones, axis=1)


def brute_force(queries: Rows, base: Rows, count: int, *, equal_only: bool = False) -> tuple[NDArray, NDArray]:
    """Python's own order of (distance, index), and no library that counts bits."""
    ones, others = (np.unpackbits(rows, axis=1).astype(np.float32) for rows in (queries, base))
    common = ones @ others.T  # exact: all are small integers
    distances = (ones.sum(axis=1)[:, None] + others.sum(axis=1) - 2 * common).astype(np.int64)
    rows, found = np.full((2, len(queries), count), -1)
    for query, line in enumerate(distances):
        allowed = np.flatnonzero((common[query] > 0) & ((line == 0) | (not equal_only)))
        best = sorted((line[index], index) for index in allowed)[:count]
        found[query, : len(best)], rows[query, : len(best)] = np.array(best).reshape(-1, 2).T
    return rows, found


def joined(blocks: Iterator[Neighbours]) -> tuple[NDArray, NDArray]:
    every = list(blocks)
    return np.concatenate([of.rows for of in every]), np.concatenate([of.distances for of in every])


@pytest.fixture(scope="module")
def queries() -> Rows:
    return filters(QUERIES, 1)


@pytest.fixture(scope="module")
def base(queries: Rows) -> Rows:
    """Many ties: each row stands there twice, and some are equal to a query; some have no ones at all."""
    rows = np.concatenate([filters(BASE // 2 - 30, 2), queries[:20], np.zeros((10, BYTES), np.uint8)])
    return np.random.default_rng(3).permutation(np.concatenate([rows, rows]))


@pytest.fixture(scope="module")
def threads() -> Iterator[Engine]:
    engine = Threads(2)
    yield engine
    engine.close()


@pytest.mark.parametrize("equal_only", [False, True])
@pytest.mark.parametrize("count", [1, 50, BASE + 1])
def test_equals_brute_force(queries: Rows, base: Rows, threads: Engine, count: int, equal_only: bool) -> None:
    rows, distances = joined(nearest(queries, base, count, threads, equal_only=equal_only))
    expected = brute_force(queries, base, count, equal_only=equal_only)
    assert np.array_equal(rows, expected[0])
    assert np.array_equal(distances, expected[1])
    ties = (distances[:, 1:] == distances[:, :-1]) & (rows[:, 1:] >= 0)
    assert count == 1 or ties.sum() >= (20 if equal_only else QUERIES)
    assert rows.dtype == distances.dtype == np.int32


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"))]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("equal_only", [False, True])
@pytest.mark.parametrize("count", [1, 50, BASE + 1])
def test_products_of_matrices_find_the_same(
    queries: Rows, base: Rows, count: int, equal_only: bool, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrices, "_VALUES", 8 * BYTES * 130)  # several blocks and tiles
    found = nearest_by_products(queries, base, count, torch.device(device), equal_only=equal_only, start=1)
    rows, distances = joined(found)
    expected = brute_force(queries[1:], base, count, equal_only=equal_only)
    assert np.array_equal(rows, expected[0])
    assert np.array_equal(distances, expected[1])
    assert rows.dtype == distances.dtype == np.int32


def test_rows_without_a_common_one_are_no_candidates(queries: Rows, base: Rows) -> None:
    """Neither near ones with few ones, nor an empty one of an empty query, which would be at distance 0."""
    empty, single, other = np.zeros((1, 2), np.uint8), np.array([[128, 0]], np.uint8), np.array([[128, 1]], np.uint8)
    rows, distances = joined(nearest(np.concatenate([single, empty]), np.concatenate([empty, other, single]), 3, Inline()))
    assert rows.tolist() == [[2, 1, -1], [-1, -1, -1]]
    assert distances.tolist() == [[0, 1, -1], [-1, -1, -1]]
    rows, _ = joined(nearest(queries, base, 50, Inline()))
    assert 0 < (rows == -1).mean() < 1
    assert not np.isin(np.flatnonzero(~base.any(axis=1)), rows).any()


@pytest.mark.parametrize(("block_rows", "tile_rows"), [(1, None), (7, 3), (333, 64), (5000, 5000)])
def test_blocks_and_tiles_change_nothing(queries: Rows, base: Rows, block_rows: int, tile_rows: int | None) -> None:
    some = queries[:300]
    rows, distances = joined(nearest(some, base, 20, Inline(), block_rows=block_rows, tile_rows=tile_rows))
    expected = joined(nearest(some, base, 20, Inline()))
    assert np.array_equal(rows, expected[0])
    assert np.array_equal(distances, expected[1])


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_of_the_base_may_be_the_worst(order: int) -> None:
    """Each next row is nearer than all before, so that every distance is below the limit; and the other way round."""
    base = np.packbits(np.tri(800, dtype=np.uint8), axis=1)[::order]
    query = np.packbits(np.ones((1, 800), np.uint8), axis=1)
    rows, distances = joined(nearest(query, base, 30, Inline(), tile_rows=16))
    expected = np.arange(799, 769, -1) if order > 0 else np.arange(30)
    assert rows[0].tolist() == expected.tolist()
    assert distances[0].tolist() == list(range(30))


def test_goes_on_behind_the_blocks_that_are_stored(queries: Rows, base: Rows, tmp_path: Path) -> None:
    """The first blocks, then the rest from files, as a party that was killed between them."""
    whole = joined(nearest(queries, base, 9, Inline()))
    blocks = nearest(queries, base, 9, Inline(), block_rows=128)
    stored = [next(blocks) for _ in range(3)]
    start = sum(len(block.rows) for block in stored)
    assert start == 384
    for name, rows in (("queries", queries), ("base", base)):
        rows.tofile(tmp_path / name)
    mapped = [np.memmap(tmp_path / name, np.uint8, "r").reshape(-1, BYTES) for name in ("queries", "base")]
    rest = nearest(*mapped, 9, Inline(), start=start)
    for part, again in zip(whole, joined(iter([*stored, *rest])), strict=True):
        assert np.array_equal(part, again)
    assert list(nearest(queries, base, 9, Inline(), start=QUERIES)) == []


@pytest.mark.parametrize("width", [1, 3, 64, 65, 750, 2049])
def test_any_width(width: int) -> None:
    queries, base = filters(20, 1, width, 0.3), filters(40, 2, width, 0.3)
    for found, expected in zip(joined(nearest(queries, base, 5, Inline())), brute_force(queries, base, 5), strict=True):
        assert np.array_equal(found, expected)


def test_an_empty_base_has_no_candidates(queries: Rows, base: Rows) -> None:
    rows, distances = joined(nearest(queries[:3], base[:0], 2, Inline()))
    assert rows.tolist() == distances.tolist() == [[-1, -1]] * 3


def test_every_worker_gets_blocks(queries: Rows, base: Rows, threads: Engine) -> None:
    assert len(list(nearest(queries[:80], base, 2, threads))) == 8
    assert len(list(nearest(queries, base, 2, Inline()))) == 4


def test_widths_must_be_alike(queries: Rows, base: Rows) -> None:
    with pytest.raises(ValueError, match="same width"):
        nearest(queries, base[:, 1:], 3, Inline())
    with pytest.raises(ValueError, match="1 byte"):
        nearest(queries[:, :0], base[:, :0], 3, Inline())


@pytest.fixture
def plain_processor() -> Iterator[None]:
    """One without any of the instructions that numkong has code for."""
    able = [name for name, has in numkong.get_capabilities().items() if has and name != "serial"]
    for name in able:
        numkong.disable_capability(name)
    yield
    for name in able:
        numkong.enable_capability(name)


@pytest.mark.usefixtures("plain_processor")
def test_the_processors_instructions_change_nothing(queries: Rows, base: Rows) -> None:
    some = queries[:200]
    for found, expected in zip(joined(nearest(some, base, 20, Inline())), brute_force(some, base, 20), strict=True):
        assert np.array_equal(found, expected)


def test_memory_does_not_grow_with_the_number_of_rows() -> None:
    """All distances would have four times as much."""
    queries, base = filters(2048, 1), filters(20_000, 2)
    tracemalloc.start()
    try:
        for _ in nearest(queries, base, 20, Inline()):
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(queries) * len(base) / 4
