"""A linkage cut off anywhere ends, once begun again, with the same bytes as one that never was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tests.alignment.linkage.worlds import A, B, C, Killed, World, numbers, pairs
from vfl_node.alignment.lists.columns import Column
from vfl_node.errors import StateError
from vfl_node.transport.generated.vfl.v1 import session_pb2

OWN = {A: numbers(9, 1), B: numbers(7, 2)}
ROWS = 3
"""Rows of a chunk."""


@pytest.fixture(autouse=True)
def small_chunks() -> Iterator[None]:
    small = ROWS * 4 * 4  # of candidates and similarities; a filter is larger, so each is a chunk of its own
    with (
        mock.patch("vfl_node.alignment.linkage.side.CHUNK_BYTES", small),
        mock.patch("vfl_node.alignment.linkage.coordination.CHUNK_BYTES", small),
        mock.patch("vfl_node.alignment.linkage.coordination.BLOCK_ROWS", ROWS),
        mock.patch("vfl_node.transport.channel.CHUNK_BYTES", small),
    ):
        yield


class Deaths:
    """Counts down to a party's death, and lets nothing of it happen after that."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __call__(self) -> None:
        if self.left <= 0:
            raise Killed
        self.left -= 1


def stored(world: World) -> dict[str, bytes]:
    """The bytes of all columns of the job under way."""
    job = f"job {world.jobs}"
    return {str(path.relative_to(world.folder)): path.read_bytes() for path in world.folder.glob(f"*/{job}/**/*.rows")}


def outcome(world: World, results: dict[str, Any]) -> Any:
    facts = {name: (results[name].linkage, results[name].learnt) for name in (A, B)}
    return pairs(world, results), facts, results[C], results[A].similarities.tobytes(), results[B].rows.tobytes()


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Any:
    world = World(tmp_path_factory.mktemp("clean"), OWN)
    world.begin()
    return outcome(world, world.attempt()), stored(world)


@pytest.mark.parametrize("victim", [A, B, C])
def test_killed_before_any_message(tmp_path, clean, victim):
    whole, columns = clean
    world = World(tmp_path, OWN)
    died = 0
    for left in range(1000):
        world.begin()
        results = world.attempt(before={victim: Deaths(left)})
        if not isinstance(results[victim], Exception):
            break
        died += 1
        assert isinstance(results[victim], Killed)
        assert outcome(world, world.attempt()) == whole, left
        assert sorted(stored(world).values()) == sorted(columns.values())
    assert died > 15


@pytest.mark.parametrize("victim", [A, B, C])
def test_killed_while_a_chunk_is_stored(tmp_path, clean, monkeypatch, victim):
    """A chunk lies in the file, and its mark does not."""
    whole, columns = clean
    append, world, died = Column.append, World(tmp_path, OWN), 0
    for left in range(1000):
        deaths = Deaths(left)

        def dying(column: Column, rows: np.ndarray, deaths: Deaths = deaths) -> None:
            if victim in column._path.parts:
                try:
                    deaths()
                except Killed:
                    with column._path.open("ab") as file:
                        file.write(rows.tobytes()[:-1])
                    raise
            append(column, rows)

        world.begin()
        monkeypatch.setattr(Column, "append", dying)
        results = world.attempt()
        monkeypatch.setattr(Column, "append", append)
        if not isinstance(results[victim], Exception):
            break
        died += 1
        assert outcome(world, world.attempt()) == whole, left
        assert sorted(stored(world).values()) == sorted(columns.values())
    assert died == {A: 9 + 3, B: 7 + 3, C: 9 + 7 + 3}[victim]


def test_nothing_that_arrived_is_sent_again(tmp_path, clean):
    world = World(tmp_path, OWN)
    world.begin()

    def dies() -> None:
        if any(isinstance(message, session_pb2.RowsEnd) for message in world.sent[A, C]):
            raise Killed

    world.attempt(before={A: dies})
    world.attempt()
    assert not [message for message in world.sent[A, C] if isinstance(message, session_pb2.Chunk)]


def test_other_keys_in_a_later_attempt(tmp_path):
    world = World(tmp_path, OWN)
    world.begin()
    world.attempt(before={C: Deaths(8)})
    world.keys = {**OWN, A: OWN[A][::-1]}
    for column in world.folder.glob(f"{A}/*/lists/filters*"):
        column.unlink()
    results = world.attempt()
    assert isinstance(results[A], StateError)
    assert results[A].code == "E_REPLAY"
