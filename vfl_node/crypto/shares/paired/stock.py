"""What two parties have made ahead, section by section, in memory or on the disk.

Both parties make the same sections in the same order, and each as much as has room. What is read back from the disk has a
checksum. A section is taken once; after a restart it is made again, with the same bytes.

Source: ours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path

import numpy as np
import safetensors.numpy

from vfl_node.crypto.shares.operation import Material
from vfl_node.crypto.shares.paired.machine import Needed, PairParty, group_sections, make_ahead
from vfl_node.crypto.shares.paired.tools import PairTools
from vfl_node.process import failpoints
from vfl_node.process.files import read_checked, write_checked

MEMORY_BYTES = 64 << 20
"""So much is kept in memory; the rest goes to the disk."""


class MadeAhead:
    """As :class:`~vfl_node.crypto.shares.paired.machine.Stock`.

    Args:
        machine: this party's, whose openings are those of what is made ahead.
        tools: this party's.
        needed: sections and what they need, in their order.
        room: bytes that are made ahead at most; one group of sections always is.
        folder: for what has no place in memory. What lies there of an earlier attempt is removed.
        working: entered while something is made.

    Attributes:
        most: the most bytes that were kept.
    """

    def __init__(
        self,
        machine: PairParty,
        tools: PairTools,
        needed: Iterator[Needed],
        room: int,
        folder: Path,
        working: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> None:
        self._machine, self._tools, self._room, self._folder = machine, tools, room, folder
        self._working = working
        self._groups = group_sections(needed)
        self._next = next(self._groups, None)
        self._sizes: dict[str, int] = {}
        self._kept: dict[str, Mapping[int, Material]] = {}
        self.most = self._held = self._in_memory = 0
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.iterdir():
            left.unlink()

    async def take(self, section: str) -> Mapping[int, Material]:
        """What a section needs. Raises StateError: what was kept on the disk is damaged (``E_STATE_CORRUPT``)."""
        if section not in self._sizes:
            async with self._working():
                await self._make()
        size = self._sizes.pop(section)
        self._held -= size
        if section in self._kept:
            self._in_memory -= size
            return self._kept.pop(section)
        path = self._path(section)
        data = read_checked(path, hint="submit the job again as a new one")
        path.unlink()
        return _unpack(data)

    async def _make(self) -> None:
        """The next groups of sections, as many as have room."""
        first = True
        while self._next is not None:
            sizes = {section: sum(each.kept_bytes for each in needed.values()) for section, needed in self._next}
            if not first and self._held + sum(sizes.values()) > self._room:
                return
            first = False
            made = await make_ahead(self._machine, self._tools, self._next)
            for section, size in sizes.items():
                self._keep(section, size, made[section])
            self._next = next(self._groups, None)
            failpoints.reach("made-ahead")

    def _keep(self, section: str, size: int, made: Mapping[int, Material]) -> None:
        self._sizes[section] = size
        self._held += size
        self.most = max(self.most, self._held)
        if self._in_memory + size <= MEMORY_BYTES:
            self._kept[section] = made
            self._in_memory += size
        else:
            write_checked(self._path(section), _pack(made))

    def _path(self, section: str) -> Path:
        return self._folder / hashlib.sha256(section.encode()).hexdigest()[:32]


def _pack(made: Mapping[int, Material]) -> bytes:
    named = {f"{number} {name}": values for number, each in made.items() for name, values in each.items()}
    return safetensors.numpy.save({key: np.ascontiguousarray(values) for key, values in named.items()})  # it takes no others


def _unpack(data: bytes) -> dict[int, Material]:
    made: dict[int, dict[str, object]] = {}
    for key, values in safetensors.numpy.load(data).items():
        number, name = key.split(" ", 1)
        made.setdefault(int(number), {})[name] = values
    return made  # type: ignore[return-value]
