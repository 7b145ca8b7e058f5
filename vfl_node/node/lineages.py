"""Which tables of a node are about the same records: what is counted over one of them counts over all of them.

The node keeps marks of the records of each table by its name (:mod:`vfl_node.data.marks`). A table that has grown, and a second
name for most of its records, begin no new count. A table under whose name there are now other records begins one only when
its owner says so (``vfl-node table accept``).

All of it lies in ``state/tables``: an index, and a file of marks for each name, 32 bytes a record. Each has a checksum. Were
the folder lost, each table would go on to be counted under its name.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

import structlog

from vfl_node.errors import StateError, UsageError
from vfl_node.process.files import locked_folder, private_folder, read_checked, write_checked
from vfl_node.process.machine import utc_now

if TYPE_CHECKING:
    from vfl_node.data.marks import Marks
    from vfl_node.data.tables import Table

log = structlog.get_logger()

FOLDER, INDEX, MARKS = "tables", "index.json", ".marks"
"""The folder in the state folder, the index in it, and how names of files of marks end."""

_HINT = "put the newest copy of state/tables back, or remove the folder: then each table counts under its name again"


@dataclass(frozen=True)
class KnownTable:
    """What is known of the table of one name, or of one that had the name before a new count.

    Attributes:
        name: its name in the settings.
        begun: how many new counts its owner had begun before this one.
        group: tables of one group are about the same records.
        word: what had become of it when it was last read, as :attr:`vfl_node.data.marks.Growth.word`; ``new`` the first time.
        rows: how many records it had then.
        added, changed, gone: how many of them were new or had another cell, and how many earlier ones were not there any more.
        digest: of the table then, in hexadecimal.
        at: when that was first read.
    """

    name: str
    begun: int
    group: str
    word: str = "new"
    rows: int = 0
    added: int = 0
    changed: int = 0
    gone: int = 0
    digest: str = ""
    at: str = ""

    @property
    def counted(self) -> str:
        """The name under which it is counted."""
        return f"{self.name}~{self.begun}" if self.begun else self.name


class Lineages:
    """The tables of one node. Safe to use from several threads; a command may read and accept beside the node.

    Args:
        state: the node's state folder.
    """

    def __init__(self, state: Path) -> None:
        self._folder, self._lock = state / FOLDER, RLock()
        self._stamp: tuple[int, ...] = ()
        self._tables: list[KnownTable] = []

    @property
    def tables(self) -> list[KnownTable]:
        """All that was ever read, with those of earlier counts. Raises StateError: it is damaged (``E_STATE_CORRUPT``)."""
        with self._lock:
            self._refresh()
            return list(self._tables)

    def find(self, name: str) -> KnownTable | None:
        """The table that has this name now. Raises StateError as :attr:`tables`."""
        return max((table for table in self.tables if table.name == name), key=lambda table: table.begun, default=None)

    def names(self, name: str) -> tuple[str, ...]:
        """Under which names the table is counted: its own first, then those of others about the same records.

        Raises:
            StateError: as :attr:`tables`.
        """
        if (own := self.find(name)) is None:
            return (name,)
        others = (table.counted for table in self.tables if table.group == own.group and table is not own)
        return (own.counted, *others)

    def note(self, name: str, table: Table, secret: bytes) -> KnownTable:
        """Look at what a job has read under ``name``, and find out which tables it is counted with.

        Args:
            name: of the table in the settings.
            table: all of it.
            secret: by which the node marks records.

        Returns:
            What is known of it now.

        Raises:
            StateError: as :attr:`tables`.
            OSError: it cannot be written.
        """
        with self._lock:
            known, digest = self.find(name), table.digest().hex()
            if known and known.digest == digest:
                return known
            from vfl_node.data.marks import Marks

            now = Marks.from_table(table, secret)
            with self._changing():
                own = self.find(name) or KnownTable(name, 0, name)
                if (before := self._read_marks(own)) is not None:
                    growth = before.compare(now)
                    read = replace(
                        own,
                        word=growth.word,
                        rows=len(now),
                        added=growth.after - growth.common,
                        changed=growth.changed,
                        gone=growth.before - growth.common,
                    )
                else:
                    read = replace(own, word="new", rows=len(now), added=len(now))
                same = self._find_same(own, now) if read.word in ("new", "other") else None
                if read.word == "other" and same is None:
                    log.warning("other records under the name of a table", table=name, rows=read.rows, hint=accept_hint(name))
                    return self._write(own, replace(read, at=utc_now(), digest=own.digest))
                write_checked(self._path(own), now.to_bytes())
                return self._write(own, replace(read, at=utc_now(), digest=digest), joins=same)

    def accept(self, name: str) -> KnownTable:
        """Begin new counts for the table of this name, which has other records now; the node may be running.

        Raises:
            UsageError: it was never read (``E_TABLE``), or most of its records are those of before (``E_CONFIG``).
            StateError: as :attr:`tables`.
        """
        with self._lock, self._changing():
            if (known := self.find(name)) is None:
                names = ", ".join(sorted({table.name for table in self._tables})) or "none yet"
                raise UsageError(f"no job has read a table {name!r}", code="E_TABLE", hint=f"tables that were read: {names}")
            if known.word != "other":
                raise UsageError(
                    f"when table {name!r} was last read, most of its records were those of before",
                    code="E_CONFIG",
                    hint="a table that has grown or changed goes on with its counts; budgets in the policy say how many",
                )
            anew = KnownTable(name, known.begun + 1, f"{name}~{known.begun + 1}")
            return self._write(anew, anew)

    def _find_same(self, own: KnownTable, now: Marks) -> KnownTable | None:
        """Another table that has most of these records."""
        for table in self._tables:
            if table.counted != own.counted and (marks := self._read_marks(table)) and marks.compare(now).word != "other":
                return table
        return None

    def _path(self, table: KnownTable) -> Path:
        return self._folder / f"{table.counted}{MARKS}"

    def _read_marks(self, table: KnownTable) -> Marks | None:
        from vfl_node.data.marks import Marks

        try:
            return Marks.from_bytes(read_checked(self._path(table), hint=_HINT))
        except FileNotFoundError:
            return None

    def _changing(self) -> AbstractContextManager[None]:
        """A context in which no command changes the index, either."""
        private_folder(self._folder)
        return locked_folder(self._folder)

    def _write(self, before: KnownTable, after: KnownTable, joins: KnownTable | None = None) -> KnownTable:
        """Put ``after`` in the place of ``before``; all tables of its group become those of the group of ``joins``."""
        self._refresh()
        tables = [table for table in self._tables if table.counted != before.counted] + [after]
        if joins:
            tables = [replace(table, group=joins.group) if table.group == after.group else table for table in tables]
        write_checked(self._folder / INDEX, json.dumps([asdict(table) for table in tables]).encode())
        self._refresh()
        return tables[-1]

    def _refresh(self) -> None:
        path = self._folder / INDEX
        try:
            status = path.stat()
            stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
            if stamp != self._stamp:
                self._tables = [KnownTable(**each) for each in json.loads(read_checked(path, hint=_HINT))]
                self._stamp = stamp
        except FileNotFoundError:
            self._tables, self._stamp = [], ()
        except (TypeError, ValueError):
            raise StateError(f"{path} is of another version", code="E_STATE_VERSION", hint=_HINT) from None


def accept_hint(name: str) -> str:
    """What the owner of a table may do under whose name there are other records now."""
    return f"it goes on with the counts of before; for new ones: vfl-node table accept {name}"
