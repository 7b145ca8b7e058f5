"""The table of a node's jobs in SQLite, with a version and a checksum in every row.

SQLite notices a damaged page, but not a bit that has flipped inside a cell; so each row carries its SHA-256.

An index is brought to the form of this release when it is opened. Before that it is copied beside itself
(``jobs.sqlite.v7``), so that the release before can have it again (:mod:`vfl_node.node.rollback`). An index also says from
which version on releases can use it (``min_reader``). A release that only adds tables or columns leaves that as it was, and
then the release before opens the index as it is.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from vfl_node.errors import StateError
from vfl_node.node.index_copies import keep_copy
from vfl_node.process import failpoints

COLUMNS = (
    "id",
    "name",
    "submitter",
    "spec",
    "state",
    "attempt",
    "submitted",
    "finished",
    "code",
    "message",
    "hint",
    "deaths",
    "figures",
    "person",
)

LINE = ("id", "name", "state", "submitted", "finished", "code", "figures", "spec")
"""Columns by which the jobs of a list are chosen, counted and put in order."""

_NUMBERS = ("attempt", "deaths")
_CELLS = [name if name in _NUMBERS else f"CAST({name} AS BLOB)" for name in COLUMNS]
_ROW = ", ".join(_CELLS[: COLUMNS.index("figures")])
"""The cells of a row before it had figures, as bytes: a damaged one may be no text."""
_WITH_FIGURES = ", ".join(_CELLS[: COLUMNS.index("person")])

MIGRATIONS = (
    (
        "CREATE TABLE IF NOT EXISTS jobs (id TEXT PRIMARY KEY, name TEXT NOT NULL, submitter TEXT NOT NULL, "
        "spec TEXT NOT NULL, state TEXT NOT NULL, attempt INTEGER NOT NULL, submitted TEXT NOT NULL, "
        "finished TEXT, code TEXT, message TEXT, hint TEXT)",
    ),
    (
        "ALTER TABLE jobs ADD COLUMN deaths INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE jobs ADD COLUMN sha256 TEXT NOT NULL DEFAULT ''",
        "UPDATE jobs SET sha256 = digest(id, name, submitter, spec, state, attempt, submitted, finished, code, message, hint, "
        "deaths)",
    ),
    ("CREATE TABLE pruned (id TEXT PRIMARY KEY)",),
    ("ALTER TABLE pruned ADD COLUMN state TEXT NOT NULL DEFAULT 'done'",),
    (
        "ALTER TABLE jobs ADD COLUMN figures TEXT",
        f"UPDATE jobs SET sha256 = digest({_ROW}, figures) WHERE sha256 = digest({_ROW})",  # noqa: S608 - our own words; a damaged row stays one
    ),
    (
        "ALTER TABLE jobs ADD COLUMN person TEXT",
        f"UPDATE jobs SET sha256 = digest({_WITH_FIGURES}, person) WHERE sha256 = digest({_WITH_FIGURES})",  # noqa: S608 - the same
    ),
    (
        "CREATE TABLE documents (job TEXT NOT NULL, name TEXT NOT NULL, body BLOB NOT NULL, sha256 TEXT NOT NULL, "
        "PRIMARY KEY (job, name))",
    ),
    (
        "CREATE TABLE meta (min_reader INTEGER NOT NULL, sha256 TEXT NOT NULL)",
        "CREATE TABLE copies (version INTEGER PRIMARY KEY, sha256 TEXT NOT NULL)",
    ),
)
"""Statements number k turn a table of version k into one of version k + 1; an empty file has version 0."""

VERSION = len(MIGRATIONS)

MIN_READER = 8
"""The oldest version whose releases can read and write an index of :data:`VERSION`.

A release only adds to the form; what nobody uses any more is dropped one release later. So this is mostly the version of the
release before. A step that changes or removes what that one uses makes it :data:`VERSION`, such as one more column in the
digest of a row. It is never below 8: earlier releases open no index of a later version.
"""

Value = str | int | None


class Index:
    """The table. Not safe to use from several threads at once. Once it is open, its errors are SQLite's own."""

    def __init__(self, path: Path) -> None:
        """Open or begin the table in ``path``.

        Raises:
            StateError: it is damaged (``E_STATE_CORRUPT``), or a newer release wrote it in a form that this one cannot use
                (``E_STATE_VERSION``).
            OSError, sqlite3.OperationalError: the system refuses.
        """
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.text_factory = bytes  # a damaged cell may be no text
        self._db.create_function("digest", -1, lambda *values: _digest(values).decode(), deterministic=True)
        try:
            self._open(path)
        except sqlite3.DatabaseError as error:
            self._db.close()
            if any(word in str(error) for word in ("full", "locked", "I/O", "unable", "readonly")):
                raise
            raise damage_error(path, str(error)) from None
        except BaseException:
            self._db.close()
            raise

    def _open(self, path: Path) -> None:
        """Check it, and bring it up to date. Raises as the above."""
        check_whole(self._db, path)
        version = check_version(self._db, path)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        if version < VERSION:
            self._migrate(path, version)
        self._db.execute(f"SELECT rowid, sha256, {', '.join(COLUMNS)} FROM jobs LIMIT 0")  # noqa: S608 - they are all there

    def _migrate(self, path: Path, version: int) -> None:
        """Copy an index of this earlier version, unless it is empty, and then take all steps or none."""
        filled = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        copied = keep_copy(path, version) if filled else None
        with self.transaction():
            for step in chain.from_iterable(MIGRATIONS[version:]):
                self._db.execute(step)
            self._db.execute("DELETE FROM meta")
            self._db.execute("INSERT INTO meta VALUES (?, ?)", [MIN_READER, _digest([MIN_READER])])
            if copied:
                self._db.execute("INSERT OR REPLACE INTO copies VALUES (?, ?)", [version, copied])
            self._db.execute(f"PRAGMA user_version = {VERSION}")
            failpoints.reach("index")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def put(self, row: Mapping[str, Value], *, anew: bool) -> None:
        """Add a row, or replace the one with the same id, which keeps its place among the others."""
        names = (*COLUMNS, "sha256")
        values = [row[name] for name in COLUMNS]
        stated = ", ".join(f"{name} = excluded.{name}" for name in names)
        again = "" if anew else f" ON CONFLICT (id) DO UPDATE SET {stated}"
        marks = ", ".join("?" * len(names))
        sql = f"INSERT INTO jobs ({', '.join(names)}) VALUES ({marks}){again}"  # noqa: S608 - our own words
        self._db.execute(sql, [*values, _digest(values)])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A context in which rows are written with one wait for the disk."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # SQLite has ended it already where the disk is full, and that is the error to tell
                self._db.execute("ROLLBACK")
            raise

    def prune(self, job_id: str, state: str) -> None:
        """Remove a row; its id stays known, and how the job ended."""
        self._db.execute("INSERT OR IGNORE INTO pruned VALUES (?, ?)", [job_id, state])
        self._db.execute("DELETE FROM jobs WHERE id = ?", [job_id])
        self._db.execute("DELETE FROM documents WHERE job = ?", [job_id])

    def keep(self, job_id: str, documents: Mapping[str, bytes]) -> None:
        """Add documents of a job by their names; one of a name that there is stays as it is."""
        for name, body in documents.items():
            row = [job_id, name, body, hashlib.sha256(body).hexdigest()]
            self._db.execute("INSERT OR IGNORE INTO documents VALUES (?, ?, ?, ?)", row)

    def jobs_with(self, name: str, body: bytes) -> list[str]:
        """The ids of the jobs that have a document of this name and body; of that which was kept last first."""
        found = self._db.execute("SELECT job FROM documents WHERE name = ? AND body = ? ORDER BY rowid DESC", [name, body])
        return [job.decode(errors="replace") if isinstance(job, bytes) else job for (job,) in found]

    def documents(self, job_id: str) -> Iterator[tuple[str, bytes | None]]:
        """Name and body of each document of a job; None of one that is damaged."""
        for name, body, digest in self._db.execute("SELECT name, body, sha256 FROM documents WHERE job = ?", [job_id]):
            whole = isinstance(body, bytes) and hashlib.sha256(body).hexdigest().encode() == digest
            yield name.decode(errors="replace"), body if whole else None

    def pruned_state(self, job_id: str) -> str | None:
        """The state of the row of this id that was removed; None if none was."""
        row = self._db.execute("SELECT state FROM pruned WHERE id = ?", [job_id]).fetchone()
        return row[0].decode() if row else None

    def count(self, submitter: str) -> int:
        """How many rows there are of jobs that ``submitter`` submitted."""
        return self._db.execute("SELECT count(*) FROM jobs WHERE submitter = ?", [submitter]).fetchone()[0]

    def lines(self, needed: Collection[str]) -> Iterator[tuple[int, list[str | None]]]:
        """Number and :data:`LINE` of every row, newest first, with None for what is not ``needed``; not checked for damage."""
        names = ", ".join(name if name in needed else "NULL" for name in LINE)
        for number, *cells in self._db.execute(f"SELECT rowid, {names} FROM jobs ORDER BY submitted DESC, rowid DESC"):  # noqa: S608
            yield number, [cell.decode(errors="replace") if isinstance(cell, bytes) else cell for cell in cells]

    def rows(self, job_id: str | None = None) -> list[tuple[str, dict[str, Value] | None]]:
        """Id and values of every row, newest first, or of the row of ``job_id``; values are None if the row is damaged."""
        return self._rows("WHERE id = ?", job_id) if job_id else self._rows()

    def standing(self, *states: str, submitter: str | None = None) -> list[tuple[str, dict[str, Value] | None]]:
        """The same of the rows in one of these states; of this submitter only, if one is given."""
        where = f"WHERE state IN ({', '.join('?' * len(states))})"
        return self._rows(where, *states) if submitter is None else self._rows(f"{where} AND submitter = ?", *states, submitter)

    def numbered(self, numbers: Sequence[int]) -> list[tuple[str, dict[str, Value] | None]]:
        """The same of the rows of these numbers, in their order; a row that has gone is left out."""
        return [row for number in numbers for row in self._rows("WHERE rowid = ?", number)]

    def _rows(self, where: str = "", *given: Value) -> list[tuple[str, dict[str, Value] | None]]:
        select = f"SELECT rowid, sha256, {', '.join(COLUMNS)} FROM jobs {where} ORDER BY submitted DESC, rowid DESC"  # noqa: S608
        rows: list[tuple[str, dict[str, Value] | None]] = []
        for number, digest, *cells in self._db.execute(select, given):
            whole = digest == _digest(cells)
            values = [cell.decode() if isinstance(cell, bytes) and whole else cell for cell in cells]
            name = cells[0].decode("ascii", "replace") if isinstance(cells[0], bytes) else ""
            row_id = name if name.replace("-", "").isalnum() else f"damaged-{number}"
            rows.append((row_id, dict(zip(COLUMNS, values, strict=True)) if whole else None))
        return rows


def check_whole(database: sqlite3.Connection, path: Path, schema: str = "main") -> None:
    """Check the pages of the index in ``path``, open as ``schema``. Raises StateError (``E_STATE_CORRUPT``), sqlite3.Error."""
    verdict = database.execute(f"PRAGMA {schema}.integrity_check(1)").fetchone()[0]
    text = verdict.decode(errors="replace") if isinstance(verdict, bytes) else verdict
    if text != "ok":
        raise damage_error(path, text)


def check_version(database: sqlite3.Connection, path: Path) -> int:
    """The version of the index in ``path``.

    Raises:
        StateError: a newer release wrote it in a form that this one cannot use (``E_STATE_VERSION``), or it is damaged.
        sqlite3.Error: it cannot be read.
    """
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION and (oldest := read_min_reader(database, path)) > VERSION:
        raise StateError(
            f"the job index {path} is of version {version}, which needs version {oldest}, and this vfl-node has {VERSION}",
            code="E_STATE_VERSION",
            hint=f"start the newer release again, or go back: vfl-node rollback --to {VERSION} --config FILE",
        )
    return version


def read_min_reader(database: sqlite3.Connection, path: Path) -> int:
    """From which version on releases can use the index in ``path``. Raises StateError (``E_STATE_CORRUPT``), sqlite3.Error."""
    row = database.execute("SELECT min_reader, CAST(sha256 AS BLOB) FROM meta").fetchone()
    if row is None or row[1] != _digest(row[:1]):
        raise damage_error(path, "it does not say which releases can read it")
    return row[0]


def damage_error(path: Path, how: str) -> StateError:
    """What it means that the index in ``path`` is damaged."""
    return StateError(
        f"the job index {path} is damaged: {how}",
        code="E_STATE_CORRUPT",
        hint="stop the node, and restore it from a backup or move it away to begin with an empty index",
    )


def _digest(values: Sequence[object]) -> bytes:
    """SHA-256 of a row's cells, as they are given to SQLite or as it gives them back, in hexadecimal."""
    cells = [value.decode("latin-1") if isinstance(value, bytes) else _to_stored(value) for value in values]
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest().encode()


def _to_stored(value: object) -> object:
    return value.encode().decode("latin-1") if isinstance(value, str) else value
