"""The bounded selection of the table of faults; all of it is `make faults`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import absences  # noqa: F401 - registers its rows
import kills  # noqa: F401
import network  # noqa: F401
import pytest
import storage_faults  # noqa: F401
from rows import ROWS, tried
from world import World


@pytest.fixture(scope="module")
def world(trial: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("faults"), trial)
    yield made
    made.close()


@pytest.mark.parametrize("row", [row for row in ROWS if row.bounded], ids=lambda row: row.numbers)
def test_what_must_happen_happens(world: World, row: Any) -> None:
    outcome = tried(row, world)
    assert outcome.holds, outcome


def test_no_row_is_registered_twice() -> None:
    assert len({row.numbers for row in ROWS}) == len(ROWS)
