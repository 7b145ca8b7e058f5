"""Rows in blocks: every row once, whole blocks in every batch, and all rows where a step takes all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfl_node.crypto.shares.paired.blocks import LARGEST_BLOCK, block_rows
from vfl_node.training.hidden.layout import BlockLayout, batch_rows
from vfl_node.training.schedule import Schedule


@given(batch=st.integers(1, 1 << 21), trained=st.integers(1, 1 << 21))
def test_batches_are_whole_blocks(batch: int, trained: int) -> None:
    rows = batch_rows(batch, trained)
    size = block_rows(rows)
    assert size & (size - 1) == 0
    assert min(8, rows) <= size <= LARGEST_BLOCK
    assert rows % size == 0
    assert abs(rows - min(batch, trained)) <= max(16, min(batch, trained))
    if batch >= trained:
        assert rows >= trained


@pytest.mark.parametrize(("trained", "tested", "batch"), [(75, 25, 200), (1000, 300, 100), (5000, 1, 4096), (40, 0, 12)])
def test_every_row_has_one_place(trained: int, tested: int, batch: int) -> None:
    schedule = Schedule(bytes(32), trained + tested, 0)
    training, testing = np.arange(trained), np.arange(trained, trained + tested)
    rows = batch_rows(batch, trained)
    layout = BlockLayout.make(schedule, training, testing, rows, 23)
    assert sorted(layout.order[: layout.trained][layout.order[: layout.trained] >= 0]) == list(training)
    assert list(layout.order[layout.tested][layout.order[layout.tested] >= 0]) == list(testing)
    assert len(layout) % layout.tile_rows == 0
    seen = [np.concatenate(layout.batches(schedule, epoch, rows)) for epoch in range(3)]
    for batches in seen:
        assert len(np.unique(batches)) == len(batches) == layout.trained // rows * rows
    if rows < layout.trained:
        assert not np.array_equal(seen[0], seen[1])
    values = np.arange(1, trained + tested + 1, dtype=np.uint64)[:, None]
    assert layout.lay_out(values).sum() == values.sum()


def test_rows_trained_on_may_be_measured_on() -> None:
    schedule, rows = Schedule(bytes(32), 100, 0), np.arange(100)
    layout = BlockLayout.make(schedule, rows, rows, batch_rows(100, 100), 23)
    assert len(layout.tested) == layout.trained == len(layout)
