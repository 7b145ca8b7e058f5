"""What an attempt of two data parties has in common where no dealer helps them: keys, columns as ciphertexts, phases.

::

    setup     keys of both, and each one's columns as ciphertexts        once an attempt
    offline   what the next sections need                                ahead of need, within a bound
    online    the computation

All three are one conversation. What was opened in an earlier attempt must come again as it was. What both parties have kept of
an earlier attempt is not made again; if nothing else is needed, columns are not sent again either.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.machine import Wire
from vfl_node.crypto.shares.operation import Opening
from vfl_node.crypto.shares.paired.kit import PairKit
from vfl_node.crypto.shares.paired.machine import PairParty, Program, look_ahead
from vfl_node.crypto.shares.paired.stock import MadeAhead
from vfl_node.crypto.shares.paired.tools import BlockMatrix, PairTools, describe_columns, swap_columns, swap_keys
from vfl_node.crypto.shares.ring import FRACTION, Ring
from vfl_node.session.openings import OpeningLog
from vfl_node.session.session import Session
from vfl_node.session.share_wire import PairWire
from vfl_node.training.shares.phases import PHASES, PhaseFigures
from vfl_node.transport.generated.vfl.v1.shares_pb2 import KeptAhead

ROOM_BYTES = 1 << 30
"""What is made ahead takes no more of the disk, about."""


@dataclass
class PhaseWire:
    """A wire that counts what goes over it in one phase.

    Attributes:
        wire: between both parties.
        clock: seconds.
        rounds, sent: messages that were waited for, and bytes that this party sent.
        seconds: from the first message of a piece of the phase to its last.
    """

    wire: PairWire
    clock: Callable[[], float]
    rounds: int = 0
    sent: int = 0
    seconds: float = 0.0

    async def open(self, shown: Sequence[Opening], shares: Sequence[Ring]) -> Sequence[Ring]:
        """As :meth:`vfl_node.crypto.shares.machine.Wire.open`."""
        before = self.wire.rounds, self.wire.sent
        opened = await self.wire.open(shown, shares)
        self.rounds += self.wire.rounds - before[0]
        self.sent += self.wire.sent - before[1]
        return opened

    @asynccontextmanager
    async def timed(self) -> AsyncIterator[None]:
        """Seconds within count."""
        began = self.clock()
        try:
            yield
        finally:
            self.seconds += self.clock() - began


@dataclass
class MetPair:
    """What a party computes with.

    Attributes:
        tools: keys of both parties.
        context: of all masks, hexadecimal.
        kit: of operations.
        log: of what was opened.
        setup, offline, online: what each phase has sent.
    """

    session: Session
    context: str
    tools: PairTools
    kit: PairKit
    log: OpeningLog
    setup: PhaseWire
    offline: PhaseWire
    online: PhaseWire
    _new_machine: Callable[[Wire, str], PairParty]
    _stock: MadeAhead = field(init=False)

    def change_context(self, context: bytes) -> MetPair:
        """The same keys, for values that are made of other things."""
        return replace(self, context=context.hex())

    def describe_columns(self, own: Ring, rows: int, widths: Sequence[int], tile_rows: int) -> list[BlockMatrix]:
        """As :func:`~vfl_node.crypto.shares.paired.tools.describe_columns`."""
        return describe_columns(self.session.job.parties.data.index(self.session.name), own, rows, widths, tile_rows, FRACTION)

    async def swap_columns(self, columns: Sequence[BlockMatrix], after: Callable[[], None] = lambda: None) -> None:
        """Each party's columns, for the other one as ciphertexts; ``after`` each block. Raises ProtocolError (``E_COUNT``)."""
        machine = self._new_machine(self.setup, self.context)
        machine.begin("columns")
        async with self.setup.timed():
            await swap_columns(machine, self.tools, columns, after)

    def party(self, program: Program) -> PairParty:
        """The machine for a program, which says itself what is to be made ahead."""
        maker = self._new_machine(self.offline, self.context)
        folder = self.session.attempt.folder / "ahead"
        self._stock = MadeAhead(maker, self.tools, look_ahead(program), ROOM_BYTES, folder, self.offline.timed)
        party = self._new_machine(self.online, self.context)
        party.stock = self._stock
        return party

    async def recall_ahead(self) -> bool:
        """Go on with what both have kept of an earlier attempt; whether the program needs nothing else."""
        return await self._stock.recall(self._tell_kept)

    async def make_ahead(self) -> None:
        """What the program needs, as much as has room; when this returns, both parties have it on their disks."""
        await self._tell_kept(await self._stock.fill())
        self.log.keep()

    async def _tell_kept(self, groups: int) -> int:
        """How many groups the other party has, for how many this one has."""
        (channel,) = self.session.data_peers.values()
        await channel.send(KeptAhead(groups=groups))
        return (await channel.receive(KeptAhead)).groups

    def pass_point(self) -> None:
        """A point is stored from which this party can go on: what is surely needed no more is removed."""
        self._stock.pass_point()

    def remove_ahead(self) -> None:
        """Remove all that was made ahead."""
        self._stock.clear()

    def describe(self) -> dict[str, PhaseFigures]:
        """Phase → what it took; what is made ahead while the computation goes on is no part of it."""
        apart = {"online": self.offline.seconds}
        return {
            name: PhaseFigures(seconds=phase.seconds - apart.get(name, 0.0), rounds=phase.rounds, bytes=phase.sent)
            for name, phase in zip(PHASES, (self.setup, self.offline, self.online), strict=True)
        }

    @property
    def most_ahead(self) -> int:
        """The most bytes that were kept on the disk."""
        return self._stock.most


@asynccontextmanager
async def meet_pair(session: Session, context: bytes, common: bytes) -> AsyncIterator[MetPair]:
    """Swap keys with the other data party, and compute with what both make themselves.

    Args:
        session: of a data party.
        context: digest of all that values are made of.
        common: 32 bytes that both parties know.

    Raises:
        ProtocolError: what the other party sent are no keys (``E_COUNT``).
        StateError: nothing was compiled when the package was installed (``E_DEVICE``).
    """
    place = session.job.parties.data.index(session.name)
    (channel,) = session.data_peers.values()
    wire, clock = PairWire(place, channel), session.machine.clock
    setup_wire, offline, online = (PhaseWire(wire, clock) for _ in range(3))
    secret, both = session.randomness.derive(f"pair {context.hex()}"), Randomness(common)
    log = OpeningLog(session.attempt.folder / "openings", hashlib.sha256(b"vfl-node pair" + context).digest())

    def machine(phase: Wire, masks: str) -> PairParty:
        def check(section: str, number: int, opened: Sequence[Ring]) -> None:
            log.check(f"{masks} {section}", number, opened)

        return PairParty(place, secret, phase, masks, check, both)

    try:
        setup = machine(setup_wire, context.hex())
        setup.begin("keys")
        async with setup_wire.timed():
            tools = await swap_keys(setup, secret.derive("keys"))
        assert tools is not None
        try:
            yield MetPair(session, context.hex(), tools, PairKit(tools), log, setup_wire, offline, online, machine)
        finally:
            tools.blocks.clear()  # the largest of all, and others may still hold the tools
    finally:
        log.close()
