"""Which rows and parts the permutations of ``evaluate.contributions`` move."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.training.evaluation import Values
from vfl_node.training.split.contributions import MOST_ROWS, PERMUTATIONS, HeldOutInputs, drops

POSITIONS = np.arange(100, 140)
OWNED = np.arange(200) % 4 != 0  # of all shared rows
SECRET = Randomness(b"s" * 32)

Asked = tuple[NDArray[np.int64], list[NDArray[np.int64]]]


def held_out() -> HeldOutInputs:
    """Embeddings that name their party and the shared position."""
    parts = HeldOutInputs()
    for batch in np.split(POSITIONS, 4):
        parts.add(batch, [torch.from_numpy(1000.0 * party + batch[:, None]) for party in (1, 2)])
    return parts


def permuted(active: str | None, randomness: Randomness = SECRET) -> list[Asked]:
    """What is measured one after the other: positions of own columns, and of each passive party's embeddings."""
    asked: list[Asked] = []

    def measured(columns: NDArray[np.int64], embeddings: Sequence[Tensor]) -> Values:
        of_each = [(of[:, 0].numpy() - 1000 * party).astype(np.int64) for party, of in enumerate(embeddings, 1)]
        asked.append((columns, of_each))
        return {"auc": 0.8}

    drops(held_out(), OWNED, active, ["lab", "insurer"], measured, randomness)
    return asked


def test_one_partys_part_is_permuted_among_the_own_rows_and_all_else_stays() -> None:
    whole, *others = permuted("clinic")
    np.testing.assert_array_equal([whole[0], *whole[1]], [POSITIONS] * 3)
    assert len(others) == 3 * PERMUTATIONS
    own = OWNED[POSITIONS]
    orders = []
    for number, (columns, embeddings) in enumerate(others):
        parts = [columns, *embeddings]
        moved = parts.pop(number // PERMUTATIONS)  # the active party's first, then in the order of the job
        for part in parts:
            np.testing.assert_array_equal(part, POSITIONS)
        np.testing.assert_array_equal(moved[~own], POSITIONS[~own])
        np.testing.assert_array_equal(np.sort(moved[own]), POSITIONS[own])
        assert (moved[own] != POSITIONS[own]).mean() > 0.7
        orders.append(tuple(moved))
    assert len(set(orders)) == PERMUTATIONS  # the same ones for each party
    assert orders == [tuple(asked[1][0]) for asked in permuted(None)[1 : 1 + PERMUTATIONS]] * 3
    assert orders[0] != tuple(permuted(None, Randomness(b"o" * 32))[1][1][0])


def test_a_drop_is_above_0_where_the_metric_is_worse() -> None:
    values = iter([{"auc": 0.9, "nll": 0.3, "lift": None}] + [{"auc": 0.7, "nll": 0.4, "lift": 1.0}] * 2 * PERMUTATIONS)
    found = drops(held_out(), OWNED, None, ["lab", "insurer"], lambda *_: next(values), SECRET)
    assert list(found) == ["lab", "insurer"]
    for of in found.values():
        assert of["auc"] == pytest.approx([0.2] * PERMUTATIONS)
        assert of["nll"] == pytest.approx([0.1] * PERMUTATIONS)
        assert of["lift"] == [None] * PERMUTATIONS


def test_so_many_rows_are_stored_and_no_more() -> None:
    parts, size = HeldOutInputs(), MOST_ROWS // 2 + 1
    for start in range(0, 4 * size, size):
        parts.add(np.arange(start, start + size), [torch.arange(start, start + size)[:, None]])
    np.testing.assert_array_equal(parts.positions, np.arange(MOST_ROWS))
    assert torch.equal(parts.embeddings[0][:, 0], torch.arange(MOST_ROWS))
