"""The bounded selection of the table of faults; all of it is `make faults`, and what other tests show, too, is slow here."""

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


SHOWN = {
    "1–3 (a part)": "tests/node/test_kill_defended.py::test_killed",
    "4": "tests/node/test_kill_regression.py::test_all_killed_at_once",
    "15": "tests/node/test_two_processes.py::test_lost_state_is_said_and_not_silently_begun_anew",
    "32": "tests/node/test_two_processes.py::test_port_in_use_and_second_node_on_the_same_state",
}
"""Row → the tests of `make test` that show it."""


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, marks=[pytest.mark.slow] if row.numbers in SHOWN else []) for row in ROWS if row.bounded],
    ids=lambda row: row.numbers,
)
def test_what_must_happen_happens(world: World, row: Any) -> None:
    outcome = tried(row, world)
    assert outcome.holds, outcome


def test_no_row_is_registered_twice() -> None:
    assert len({row.numbers for row in ROWS}) == len(ROWS)
