"""A node that stores lists in small chunks, and kills itself where a file tells it to.

:func:`run` becomes one, in a process forked from one that has imported what a node needs: a
tenth of the work of a start. Its folder holds

- ``death``, until it comes: ``append LIST ROWS SIGNAL``, to die instead of storing the chunk that
  follows that many rows of a list, or ``send LIST ROWS SIGNAL``, instead of sending it; a list
  is sent to its end when its closing record is;
- ``full``, while the disk is to be full before an alignment begins;
- ``stored``, written here: a line for every chunk stored, ``JOB LIST ROWS``.

Every job has the same seed at this party, so that runs can be compared.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from vfl_node.alignment.lists.columns import Column, Columns, Source
from vfl_node.alignment.lists.lists import Lists
from vfl_node.cli import main
from vfl_node.crypto.groups import Curve25519
from vfl_node.crypto.rows import Rows
from vfl_node.execution import folder as job_folder
from vfl_node.node import service, store  # noqa: F401 - what a node imports once it runs
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import session_pb2


class KilledNode:
    """What its parts do instead of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._append, self._send_list, self._send, self._free = Column.append, Lists.send, Channel.send, Columns.free_bytes
        self._sending = ""

    def may_die(self, what: str, name: str, rows: int) -> None:
        death = self.folder / "death"
        if death.exists():
            where, among, after, of = death.read_text().split()
            if (where, among) == (what, name) and rows >= int(after):
                death.unlink()
                os.kill(os.getpid(), int(of))

    def append(self, column: Column, rows: Rows) -> None:
        name = column._path.stem
        self.may_die("append", name, len(column))
        self._append(column, rows)
        with (self.folder / "stored").open("a") as stored:
            stored.write(f"{column._path.parents[1].name} {name} {len(rows)}\n")

    async def send_list(self, lists: Lists, name: str, source: Source) -> None:
        self._sending = name.replace(" ", "-")
        await self._send_list(lists, name, source)

    async def send(self, channel: Channel, message: Any) -> None:
        if isinstance(message, session_pb2.Chunk):
            self.may_die("send", self._sending, message.offset)
        elif isinstance(message, session_pb2.RowsEnd):
            self.may_die("send", self._sending, message.count)
        await self._send(channel, message)

    def free_bytes(self, columns: Columns) -> int:
        return 0 if (self.folder / "full").exists() else self._free(columns)


def run(folder: Path, arguments: list[str], log: Path) -> None:
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    node = KilledNode(folder)
    Column.append = lambda column, rows: node.append(column, rows)  # type: ignore[method-assign]
    Lists.send = lambda lists, name, source: node.send_list(lists, name, source)  # type: ignore[method-assign]
    Channel.send = lambda channel, message: node.send(channel, message)  # type: ignore[method-assign]
    Columns.free_bytes = lambda columns: node.free_bytes(columns)  # type: ignore[method-assign]
    Curve25519.chunk_rows = 32
    job_folder.secrets = SimpleNamespace(token_bytes=lambda count: folder.name.encode().ljust(count))
    sys.argv = ["vfl-node", *arguments]
    main()
