"""What two parties without a coordinator are said to take is what they take, and how they cut rows into blocks."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from tests.crypto.lattice.variants import compiled
from tests.training.hidden.test_paired import PARTIES
from vfl_node.crypto.lattice.sizes import Tiles, block_bytes
from vfl_node.crypto.shares.paired.blocks import block_rows
from vfl_node.crypto.shares.paired.tools import blocks_together
from vfl_node.training.hidden import memory
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.terms import most_measured


@compiled
@pytest.mark.parametrize("train", [{}, {"loss": "taylor"}, {"classes": 3}], ids=["exact", "taylor", "classes"])
def test_memory_is_at_most_what_was_estimated(world: Any, attempt: Any, train: dict[str, Any]) -> None:
    """Both parties in one process; that process has all messages, too."""
    over = world(2, "psi", people=12_000, share=1.0, classes=train.get("classes", 2))
    of = attempt({**PARTIES, "epochs": 1, "batch_size": 1 << 20, "metrics_by": "none", **train})
    tracemalloc.start()
    try:
        of(over)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    plan, messages = of.plan(over), sum(entry.message.ByteSize() for entry in of.transcript)
    estimate = memory.party_bytes(Hidden.section_of(of.job(over)), len(over), plan.form.widths, plan.batch_rows)
    assert (peak - messages) / 2 < estimate
    assert estimate - memory.PAIR_BYTES < 3 * (peak - messages) / 2  # and not several times as much but for a constant


def test_blocks_follow_rows_and_columns() -> None:
    assert [block_rows(4096, columns) for columns in (1, 15, 165, 330, 8192)] == [4096, 2048, 512, 256, 64]
    assert [block_rows(batch, 23) for batch in (16, 512, 768, 98_304)] == [16, 512, 256, 4096]


def test_small_blocks_go_together() -> None:
    narrow, wide = [Tiles(10_000, 5, 512)] * 2, [Tiles(10_000, 2000, 512), Tiles(10_000, 5, 512)]
    assert blocks_together(narrow) > 10
    assert blocks_together(wide) == 1
    assert blocks_together(narrow) * block_bytes(narrow[0]) < 8 << 20


@pytest.mark.parametrize(
    ("train", "rows"), [({}, 8192), ({"bins": 1024}, 4096), ({"classes": 10}, 1638), ({"bins": 1024, "classes": 64}, 512)]
)
def test_fewer_rows_are_measured_on_where_each_takes_more(train: dict[str, Any], rows: int) -> None:
    assert most_measured(Hidden.model_validate({"algorithm": "hidden", **train})) == rows
