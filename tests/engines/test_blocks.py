"""How work is divided into blocks."""

from __future__ import annotations

import pytest

from vfl_node.engines.contract import Inline, block_size


@pytest.mark.parametrize(
    ("count", "workers", "least", "most", "size"),
    [
        (100, 1, 64, 128, 100),
        (100, 2, 64, 128, 64),  # a table is not made twice for a few
        (1000, 2, 64, 128, 128),
        (3, 2, 1, 8, 2),
        (3, 2, 8, 8, 8),  # eight take as long as one
        (0, 2, 1, 8, 1),
    ],
)
def test_every_worker_gets_a_part(count: int, workers: int, least: int, most: int, size: int) -> None:
    engine = Inline()
    engine.workers = workers
    assert block_size(count, engine, least, most) == size
