"""What two parties have made ahead, group by group of sections, on the disk.

Both parties make the same groups in the same order, as many as have room. A group that was used stays on the disk until two
points are stored after it, of which the other party may have only the first, or until another group needs the room. So an
attempt after a restart goes on with what both parties have. What is made again has the same bytes. What is read back has a
checksum.

Source: ours.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from itertools import chain
from pathlib import Path

import numpy as np
import safetensors.numpy

from vfl_node.crypto.shares.operation import Material
from vfl_node.crypto.shares.paired.machine import Needed, PairParty, group_sections, make_ahead
from vfl_node.crypto.shares.paired.tools import PairTools
from vfl_node.errors import StateError
from vfl_node.process import failpoints
from vfl_node.process.files import read_checked, write_checked

Group = Sequence[Needed]
"""Sections that are made together."""


class MadeAhead:
    """As :class:`~vfl_node.crypto.shares.paired.machine.Stock`, of sections that are taken in their order.

    Args:
        machine: this party's, whose openings are those of what is made ahead.
        tools: this party's.
        needed: sections and what they need, in their order.
        room: bytes on the disk at most, about; one group always has room.
        folder: of these files alone.
        working: entered while something is made.

    Attributes:
        most: the most bytes that were on the disk, about: the same at both parties.
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
        self._groups: Iterator[Group] = group_sections(needed)
        self._next: Group | None = next(self._groups, None)
        self._made: deque[Group] = deque()
        self._used: list[Group] = []
        self._used_before: list[Group] = []
        self._at_hand: dict[str, Mapping[int, Material]] = {}
        self.most = self._held = 0
        folder.mkdir(parents=True, exist_ok=True)

    async def recall(self, settle: Callable[[int], Awaitable[int]]) -> bool:
        """Before anything is made, go on with what both parties have from an earlier attempt; all else there is removed.

        Args:
            settle: how many groups the other party has, for how many this one has.

        Returns:
            Whether that is all that is needed.
        """
        found: list[Group] = []
        while self._next is not None and self._holds(self._next):
            found.append(self._next)
            self._next = next(self._groups, None)
        both = min(len(found), await settle(len(found)))
        self._groups = chain(found[both:], [] if self._next is None else [self._next], self._groups)
        self._next = next(self._groups, None)
        for group in found[:both]:
            self._add(group)
        kept = set(map(self._path, self._made))
        for file in self._folder.iterdir():
            if file not in kept:
                file.unlink()
        return self._next is None

    def clear(self) -> None:
        """Remove all files; nothing is taken after that."""
        for file in self._folder.iterdir():
            file.unlink()

    async def fill(self) -> int:
        """Make as many of the next groups as have room; one if nothing else is left. How many there are now."""
        async with self._working():
            while self._next is not None and (not self._made or self._held + _size(self._next) <= self._room):
                made = await make_ahead(self._machine, self._tools, self._next)
                write_checked(self._path(self._next), _pack(made))
                self._add(self._next)
                self._next = next(self._groups, None)
                failpoints.reach("made-ahead")
        return len(self._made)

    async def take(self, section: str) -> Mapping[int, Material]:
        """What a section needs. Raises StateError: the disk is damaged; the next attempt makes it again."""
        if section not in self._at_hand:
            if not self._made:  # all of the room is for what comes next
                self._remove(self._used_before + self._used)
                self._used_before, self._used = [], []
                await self.fill()
            group = self._made.popleft()
            self._used.append(group)
            self._at_hand = _unpack(self._read(group))
        return self._at_hand.pop(section)

    def pass_point(self) -> None:
        """A point is stored from which this party can go on. What was used before the one before it is removed."""
        self._remove(self._used_before)
        self._used_before, self._used = self._used, []

    def _remove(self, groups: Sequence[Group]) -> None:
        for group in groups:
            self._path(group).unlink(missing_ok=True)
            self._held -= _size(group)

    def _read(self, group: Group) -> bytes:
        path = self._path(group)
        try:
            return read_checked(path)
        except StateError as error:
            path.unlink()
            hint = "go on: vfl-node resume JOB, which makes it again"
            raise StateError(error.message, hint=hint, for_peer=error.for_peer) from None

    def _holds(self, group: Group) -> bool:
        """Whether it lies on the disk as it was written."""
        try:
            return bool(read_checked(self._path(group)))
        except (FileNotFoundError, StateError):
            return False

    def _add(self, group: Group) -> None:
        self._made.append(group)
        self._held += _size(group)
        self.most = max(self.most, self._held)

    def _path(self, group: Group) -> Path:
        """Under another context, or with other sections or sizes, it has another name."""
        sections = {section: [each.kept_bytes for each in needed.values()] for section, needed in group}
        return self._folder / hashlib.sha256(f"{self._machine.context} {sections}".encode()).hexdigest()[:32]


def _size(group: Group) -> int:
    return sum(each.kept_bytes for _, needed in group for each in needed.values())


def _pack(made: Mapping[str, Mapping[int, Material]]) -> bytes:
    named = {
        f"{section}\n{number}\n{name}": np.ascontiguousarray(values)  # it takes no others
        for section, numbered in made.items()
        for number, each in numbered.items()
        for name, values in each.items()
    }
    return safetensors.numpy.save(named)


def _unpack(data: bytes) -> dict[str, Mapping[int, Material]]:
    made: dict[str, dict[int, dict[str, object]]] = {}
    for key, values in safetensors.numpy.load(data).items():
        section, number, name = key.split("\n")
        made.setdefault(section, {}).setdefault(int(number), {})[name] = values
    return made  # type: ignore[return-value]
