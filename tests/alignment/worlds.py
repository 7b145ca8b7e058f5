"""Several parties in memory, over as many attempts as needed; each passive one has a conversation with the active one alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.sessions import session
from tests.alignment.conftest import ANY_SIZE
from tests.alignment.test_costs import CountingGroup
from vfl_node.alignment.alignment import OwnRecords
from vfl_node.alignment.protocols import align
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.job import Align, Parties
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.session.pins import MemoryPins
from vfl_node.transport.channel import Channel
from vfl_node.transport.memory import memory_network, run_together

RAM = "/dev/shm" if Path("/dev/shm").is_dir() else None
NAMES = ("clinic", "lab", "insurer", "bank", "telco")
"""The active party first."""
POSITION_BYTES = 4


class Tapped(Channel):
    """A channel that records what it sends, and may send other positions, or end after so many messages."""

    messages: list[Any]
    positions: Any = None
    left: int = 1 << 30

    async def send(self, message: Any) -> None:
        if self.left == 0:
            raise ConnectionError("killed")
        self.left -= 1
        self.messages.append(message)
        await super().send(message)

    async def send_rows(self, rows: Any, *, count: int, width: int, start: int = 0) -> None:
        if self.positions and width == POSITION_BYTES:
            rows = self.positions(rows)
            count = len(rows)
        await super().send_rows(rows, count=count, width=width, start=start)


class World:
    """What the parties of one job keep on their disks, from one attempt to the next."""

    def __init__(self, folder: Path, sets: dict[str, list[bytes]], protocol: str = "psi-pairs", **terms: Any) -> None:
        self.folder, self.sets = folder, sets
        self.parties = Parties(active=NAMES[0], passive=tuple(name for name in sets if name != NAMES[0]))
        self.align = Align(protocol=protocol, **terms)
        self.pins = {name: MemoryPins() for name in sets}
        self.memories = {
            name: {other: MemoryOfOneRun(self.randomness(name, other)) for other in self.parties.others(name)} for name in sets
        }

    def randomness(self, *of: str) -> Randomness:
        return Randomness(" ".join(of).encode().ljust(32))

    def attempt(self, *, positions: Any = None, left: dict[str, int] | None = None) -> dict[str, Any]:
        """Party → its alignment, or the error it ended with. ``left``: messages that a party sends before it is killed."""
        network = memory_network(*self.sets)
        self.sent: dict[tuple[str, str], list[Any]] = {}
        self.groups = {name: CountingGroup() for name in self.sets}
        sides = []
        for name in self.sets:
            channels = {}
            for peer in self.parties.peers_of(name):
                channel = network[name][peer]
                channel.__class__ = Tapped
                channel.messages = self.sent[name, peer] = []
                channel.positions = positions if name == NAMES[0] else None
                channel.left = (left or {}).get(name, 1 << 30)
                channels[peer] = channel
            own = session(
                name,
                channels,
                self.randomness(name),
                parties=self.parties,
                align=self.align,
                folder=self.folder / name,
                memories=self.memories[name],
                pins=self.pins[name],
                limits=ANY_SIZE,
            )
            sides.append(
                (align(own, OwnRecords(Identifiers.from_items(self.sets[name])), group=self.groups[name]), channels.values())
            )
        return dict(zip(self.sets, run_together(*sides), strict=True))

    def stored(self) -> dict[str, bytes]:
        """The bytes of all lists of all parties."""
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in self.folder.rglob("*.rows")}
