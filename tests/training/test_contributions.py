"""Which rows and parts the permutations of ``evaluate.contributions`` move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.places import ColumnPlaces
from vfl_node.data.tables import NumericColumn
from vfl_node.job import Evaluate
from vfl_node.models.inputs import ModelInput
from vfl_node.training.evaluation import Values
from vfl_node.training.split.contributions import (
    MOST_ROWS,
    PERMUTATIONS,
    ColumnMovements,
    HeldOutInputs,
    column_drops,
    draw_rows,
    drops,
)

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


ROWS = ModelInput(torch.arange(3 * 50.0).reshape(50, 3), torch.arange(100, 150)[:, None], bags=torch.arange(100).reshape(50, 2))
COLUMNS = {"a": ColumnPlaces([0, 2], [], []), "b": ColumnPlaces([1], [0], []), "list": ColumnPlaces([], [], [0, 1])}


def parts_of(rows: ModelInput) -> dict[str, list[Tensor]]:
    assert rows.bags is not None
    return {
        "a": [rows.numeric[:, 0].clone(), rows.numeric[:, 2].clone()],
        "b": [rows.numeric[:, 1].clone(), rows.categorical[:, 0].clone()],
        "list": [rows.bags[:, 0].clone(), rows.bags[:, 1].clone()],
    }


def test_one_column_is_permuted_whole_and_all_others_stay() -> None:
    asked: list[ModelInput] = []

    def measured(rows: ModelInput) -> Values:
        asked.append(rows)
        return {"auc": 0.8 if len(asked) == 1 else 0.7}

    found = column_drops(ROWS, COLUMNS, measured, SECRET)
    assert found == {name: {"auc": [pytest.approx(0.1)] * PERMUTATIONS} for name in COLUMNS}
    assert len(asked) == 1 + PERMUTATIONS * len(COLUMNS)
    for number, rows in enumerate(asked[1:]):
        moved = list(COLUMNS)[number // PERMUTATIONS]
        for name, parts in parts_of(rows).items():
            true = parts_of(ROWS)[name]
            if name != moved:
                assert all(torch.equal(part, whole) for part, whole in zip(parts, true, strict=True))
                continue
            orders = [torch.argsort(whole)[torch.searchsorted(whole, part)] for part, whole in zip(parts, true, strict=True)]
            assert torch.equal(*orders)  # the cells of a row stay together
            assert (orders[0] != torch.arange(50)).float().mean() > 0.7
            assert torch.equal(orders[0].sort().values, torch.arange(50))


def test_movement_is_measured_by_how_far_embeddings_lie_from_their_mean() -> None:
    def embed(rows: ModelInput) -> Tensor:
        return torch.stack([rows.numeric[:, 1], torch.ones(50)], dim=1)

    attachment = ColumnMovements(embed, ROWS, COLUMNS, SECRET)
    moved = attachment.findings(None)["movements"]
    assert moved == {"a": 0.0, "b": pytest.approx(2**0.5, abs=0.1), "list": 0.0}
    assert attachment.findings({}) == {}  # the first repeat's counts
    still = ColumnMovements(lambda rows: torch.ones(50, 2), ROWS, COLUMNS, SECRET)
    assert set(still.findings(None)["movements"].values()) == {0.0}


def test_rows_are_as_many_however_many_a_party_owns() -> None:
    few, many = draw_rows(np.arange(3, 6), SECRET), draw_rows(np.arange(10_000), SECRET)
    assert len(few) == len(many)
    assert set(few) == {3, 4, 5}
    assert len(draw_rows(np.arange(0), SECRET)) == 0


def test_a_column_that_labels_follow_from_is_worth_more_than_one_of_noise(synthetic: Any, run: Any) -> None:
    parties = synthetic(people=600, owned=(1.0, 1.0))
    rng = np.random.default_rng(1)
    for table in (parties.clinic, parties.lab):
        table.columns["noise"] = NumericColumn(rng.normal(size=len(table)))
    both = run(run.train.model_copy(update={"epochs": 10}))
    both.evaluate = Evaluate(contributions=True)
    active, passive = (result.section for result in both(parties))
    worth = {name: drops_["auc"].mean for name, drops_ in active.column_contributions.items()}
    assert set(worth) == set(parties.clinic.columns)
    assert max(worth, key=worth.__getitem__) != "noise"
    assert worth["noise"] < max(worth.values()) / 3
    assert set(passive.column_movements) == set(parties.lab.columns)
    assert min(passive.column_movements.values()) > 0
    assert active.column_movements is passive.column_contributions is None
    plain = run(run.train)(parties)
    assert plain[0].section.column_contributions is plain[1].section.column_movements is None
