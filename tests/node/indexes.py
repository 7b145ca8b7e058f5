"""The index of a node as other releases leave it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from vfl_node.node import index
from vfl_node.node.rollback import roll_back
from vfl_node.node.store import Store
from vfl_node.process import failpoints


def written_by_a_newer_release(state: Path, *, min_reader: int) -> None:
    """The index of this release becomes that of the next one, with one more table and one more column."""
    with closing(sqlite3.connect(state / "jobs.sqlite")) as database:
        database.execute("CREATE TABLE another (id TEXT)")
        database.execute("ALTER TABLE jobs ADD COLUMN another TEXT")
        database.execute("UPDATE meta SET min_reader = ?, sha256 = ?", [min_reader, index._digest([min_reader])])
        database.execute(f"PRAGMA user_version = {index.VERSION + 1}")
        database.commit()


def written_by_version_7(state: Path) -> None:
    """The index of this release becomes one of version 7, whose rows are the same."""
    with closing(sqlite3.connect(state / "jobs.sqlite")) as database:
        database.execute("DROP TABLE meta")
        database.execute("DROP TABLE copies")
        database.execute("PRAGMA user_version = 7")
        database.commit()


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        return database.execute("PRAGMA user_version").fetchone()[0]


def open_and_die(point: str, state: Path) -> None:
    """Open the index, and be killed at a failpoint."""
    failpoints.arm(f"{point}=kill@1", local=True)
    Store(state)


def roll_back_and_die(point: str, settings: Any) -> None:
    """Put the index of version 7 back, and be killed at a failpoint."""
    failpoints.arm(f"{point}=kill@1", local=True)
    roll_back(settings, 7)
