"""Which tables of a node are about the same records: what is counted over one of them counts over all of them.

The node keeps marks of all records that were ever read under each name (:mod:`vfl_node.data.marks`). A table that has grown,
and a second name for most of its records, begin no new count. Where there are other records under a name, what is counted
stands under another name from then on, ``NAME~1``. It counts together with the earlier one, until the owner says that a new
count begins (``vfl-node table accept``).

All of it lies in ``state/tables``: an index, and two files of marks for each name. Each has a checksum. Were the folder lost,
each table would go on to be counted under its name.

Leaks: a budget that is used up sooner shows a partner with whom both are used that two tables have records in common.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

import structlog

from vfl_node.errors import StateError, UsageError
from vfl_node.process.files import locked_folder, read_checked, write_checked
from vfl_node.process.machine import utc_now

if TYPE_CHECKING:
    from vfl_node.data.marks import Marks, Words
    from vfl_node.data.tables import Table

log = structlog.get_logger()

FOLDER, INDEX, LAST, EVER = "tables", "index.json", ".marks", ".ever"
"""The folder in the state folder, the index in it, and how files of marks end: of the last table, and of all records ever."""

_HINT = "put the newest copy of it back, or remove state/tables: then each table is counted under its name alone"


@dataclass(frozen=True)
class KnownTable:
    """What is known of the records under one name.

    Attributes:
        name: in the settings.
        begun: which records under this name these are: each time there are others, it is one more.
        group: what is counted over one of a group counts over all.
        now: whether the table has these records now.
        word: what had become of it when it was last read, as :attr:`vfl_node.data.marks.Growth.word`; ``new`` the first time.
        rows: how many records it had then.
        added, changed, gone: how many of them were new or had another cell, and how many earlier ones were not there any more.
        digest: of the table then, in hexadecimal.
        at: when that was first read.
    """

    name: str
    begun: int
    group: str
    now: bool = True
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
        """All that was ever read. Raises StateError where it is damaged (``E_STATE_CORRUPT``)."""
        with self._lock:
            self._refresh()
            return list(self._tables)

    def find(self, name: str) -> KnownTable | None:
        """The table that has this name now. Raises StateError as :attr:`tables`."""
        return next((table for table in self.tables if table.name == name and table.now), None)

    def names(self, name: str) -> tuple[str, ...]:
        """Under which names the table is counted: its own first, then those of others about the same records.

        Raises:
            StateError: as :attr:`tables`.
        """
        if (own := self.find(name)) is None:
            return (name,)
        others = (table.counted for table in self.tables if table.group == own.group and table != own)
        return (own.counted, *others)

    def awaits_word(self, table: KnownTable) -> bool:
        """Whether it has other records than before, and is counted together with those. Raises StateError as :attr:`tables`."""
        mates = [other for other in self.tables if other.group == table.group and other.begun < table.begun]
        return any(other.name == table.name for other in mates)

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
            from vfl_node.data.marks import Marks, is_most, unite

            now = Marks.from_table(table, secret)
            with self._changing():
                ever = {each.counted: self._read_ever(each) for each in self._tables}
                same = [each for each in self._tables if is_most(ever[each.counted], now.ids)]
                own = self._choose(name, same)
                before = self._read_last(own)
                if before is None:
                    read = replace(own, word="new", rows=len(now), added=len(now), changed=0, gone=0)
                else:
                    growth = before.compare(now)
                    added, gone = growth.after - growth.common, growth.before - growth.common
                    read = replace(own, word=growth.word, rows=len(now), added=added, changed=growth.changed, gone=gone)
                write_checked(self._path(own, EVER), unite(ever.get(own.counted), now.ids).tobytes())
                read = replace(read, now=True, at=utc_now(), digest=digest)
                self._write(read, {each.group for each in same if each.counted != own.counted})
                write_checked(self._path(own, LAST), now.to_bytes())  # last: what is new is found by the earlier ones
            if self.awaits_word(read) and read.word in ("new", "other"):
                log.warning("other records under the name of a table", table=name, rows=read.rows, hint=accept_hint(name))
            return read

    def accept(self, name: str) -> KnownTable:
        """Begin new counts for the records that are under this name now; the node may be running.

        What was counted since they are there stays counted.

        Raises:
            UsageError: it was never read (``E_TABLE``), or its records are counted with no earlier ones (``E_CONFIG``).
            StateError: as :attr:`tables`.
        """
        with self._lock, self._changing():
            if (known := self.find(name)) is None:
                names = ", ".join(sorted({table.name for table in self._tables})) or "none yet"
                raise UsageError(f"no job has read a table {name!r}", code="E_TABLE", hint=f"tables that were read: {names}")
            if not self.awaits_word(known):
                raise UsageError(
                    f"table {name!r} has no other records than before when it was last read",
                    code="E_CONFIG",
                    hint="a table that has grown or changed goes on with its counts; budgets in the policy say how many",
                )
            from vfl_node.data.marks import is_most

            alone, reached = replace(known, group=known.counted), [self._read_ever(known)]
            mates = [table for table in self._tables if table.group == known.group and table.name != name]
            apart = {table.counted: self._read_ever(table) for table in mates}
            while reached:  # those that have records in common stay together
                ever = reached.pop()
                near = [counted for counted, theirs in apart.items() if is_most(theirs, ever)]
                reached += [apart.pop(counted) for counted in near]
            along = {table.counted for table in mates} - apart.keys()
            self._tables = [replace(each, group=alone.group) if each.counted in along else each for each in self._tables]
            self._write(alone, set())
            return alone

    def _choose(self, name: str, same: list[KnownTable]) -> KnownTable:
        """Which records under ``name`` those are of which most were read before; other ones are counted with the last."""
        under = [table for table in self._tables if table.name == name]
        if not under:
            return KnownTable(name, 0, name)
        current = next(table for table in under if table.now)
        if known := [table for table in same if table.name == name]:
            return current if current in known else known[-1]
        if self.awaits_word(current):
            return current
        begun = max(table.begun for table in under) + 1
        return KnownTable(name, begun, current.group)

    def _path(self, table: KnownTable, end: str) -> Path:
        return self._folder / f"{table.counted}{end}"

    def _read(self, table: KnownTable, end: str) -> Words | None:
        """The marks in a file of a table, uint64[n, 2]; None where it has none."""
        import numpy as np

        try:
            return np.frombuffer(read_checked(self._path(table, end), hint=_HINT), dtype="<u8").reshape(-1, 2)
        except FileNotFoundError:
            return None

    def _read_ever(self, table: KnownTable) -> Words:
        """The marks of all records that were ever read of a table in the index, uint64[n, 2]."""
        if (words := self._read(table, EVER)) is None:
            raise StateError(f"{self._path(table, EVER)} is gone", code="E_STATE_CORRUPT", hint=_HINT)
        return words

    def _read_last(self, table: KnownTable) -> Marks | None:
        from vfl_node.data.marks import Marks

        words = self._read(table, LAST)
        return None if words is None else Marks.from_bytes(words.tobytes())

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """A context in which no command changes the index, either."""
        self._folder.mkdir(mode=0o700, exist_ok=True)  # not the state folder, should that be gone
        with locked_folder(self._folder):
            self._refresh()
            yield

    def _write(self, table: KnownTable, joins: set[str]) -> None:
        """Store ``table``, which its name has now, in the place of what was known; all tables of ``joins`` join its group."""
        tables = [table, *(each for each in self._tables if each.counted != table.counted)]
        tables = [replace(each, now=False) if each.name == table.name and each is not table else each for each in tables]
        tables = [replace(each, group=table.group) if each.group in joins else each for each in tables]
        write_checked(self._folder / INDEX, json.dumps([asdict(each) for each in tables]).encode())
        self._refresh()

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
