"""How masked shares travel between the data parties, and corrections from the dealer to one of them.

Two data parties send each other their shares, so a round takes one way of a message. Several ones have a conversation with the
active party alone, which adds all shares and sends the sums: a round takes two ways, and what it adds are masked values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.shares.machine import SEED_BYTES
from vfl_node.crypto.shares.operation import Opening
from vfl_node.crypto.shares.ring import BITS, BYTES, Ring, add_shares
from vfl_node.errors import ProtocolError
from vfl_node.transport.channel import CHUNK_BYTES, Channel
from vfl_node.transport.generated.vfl.v1 import shares_pb2

Bytes = bytes | memoryview

WINDOW = 8 << 20
"""Numbers that a party has from the dealer, or are on their way, before it uses them: 64 MiB."""

_REPORTED = WINDOW // 8  # how often it says how many it has used

_MOST_PIECES = 1024


class PairWire:
    """The wire of two data parties.

    Args:
        place: this party's.
        channel: to the other one.
    """

    def __init__(self, place: int, channel: Channel) -> None:
        self._place, self._channel = place, channel
        self.rounds = self.sent = 0

    async def open(self, shown: Sequence[Opening], shares: Sequence[Ring]) -> list[Ring]:
        """As :meth:`vfl_node.crypto.shares.machine.Wire.open`."""
        own, peer = self._place, 1 - self._place
        to_peer = [(each, share) for each, share in zip(shown, shares, strict=True) if _goes(each, own, peer)]
        from_peer = [each for each in shown if _goes(each, peer, own)]
        received = iter(await _exchange(self._channel, [_pack(each, share) for each, share in to_peer], from_peer))
        self.rounds += 1
        self.sent += sum(each.size for each, _ in to_peer)
        return [
            _sum(each, [share] * (each.by in (None, own)), [next(received)] if _goes(each, peer, own) else [], own)
            for each, share in zip(shown, shares, strict=True)
        ]

    async def swap_seeds(self, seed: bytes) -> bytes:
        """Show the other party the seed of a section, and get its own. Raises ProtocolError: another size (``E_COUNT``)."""
        await self._channel.send(shares_pb2.SectionSeed(seed=seed))
        theirs = (await self._channel.receive(shares_pb2.SectionSeed)).seed
        if len(theirs) != SEED_BYTES:
            raise ProtocolError(f"{self._channel.peer} showed a seed of {len(theirs)} bytes", code="E_COUNT")
        self.rounds += 1
        self.sent += len(seed)
        return theirs


class StarWire:
    """The wire of several data parties: they send to the active one, which sends sums.

    Args:
        place: this party's; 0 for the active one.
        channels: the active party's to all others in their order; a passive party's to the active one.
    """

    def __init__(self, place: int, channels: Sequence[Channel]) -> None:
        self._place, self._channels = place, channels
        self.rounds = self.sent = 0

    async def open(self, shown: Sequence[Opening], shares: Sequence[Ring]) -> list[Ring]:
        """As :meth:`vfl_node.crypto.shares.machine.Wire.open`."""
        self.rounds += 1
        if self._place:
            return await self._open_spoke(shown, shares, self._channels[0])
        parts = [[share] if each.by in (None, 0) else [] for each, share in zip(shown, shares, strict=True)]
        for place, channel in enumerate(self._channels, 1):
            coming = [each for each in shown if _goes_to_hub(each, place)]
            received = iter(await _exchange(channel, [], coming))
            for each, summands in zip(shown, parts, strict=True):
                summands += [next(received)] if _goes_to_hub(each, place) else []
        totals = [_total(each, summands) for each, summands in zip(shown, parts, strict=True)]
        for place, channel in enumerate(self._channels, 1):
            going = [(each, total) for each, total in zip(shown, totals, strict=True) if _comes_from_hub(each, place)]
            await _exchange(channel, [_pack(each, total) for each, total in going], [])
            self.sent += sum(each.size for each, _ in going)
        return [
            total if each.to in (None, 0) else np.zeros(each.shape, np.uint64)
            for each, total in zip(shown, totals, strict=True)
        ]

    async def _open_spoke(self, shown: Sequence[Opening], shares: Sequence[Ring], channel: Channel) -> list[Ring]:
        place = self._place
        going = [(each, share) for each, share in zip(shown, shares, strict=True) if _goes_to_hub(each, place)]
        await _exchange(channel, [_pack(each, share) for each, share in going], [])
        self.sent += sum(each.size for each, _ in going)
        received = iter(await _exchange(channel, [], [each for each in shown if _comes_from_hub(each, place)]))
        results = []
        for each, share in zip(shown, shares, strict=True):
            if _comes_from_hub(each, place):
                total = next(received)
                results.append(_total(each, [total, share]) if each.to == place and each.by is None else total)
            else:
                results.append(share if each.by == place else np.zeros(each.shape, np.uint64))
        return results


class DealtCorrections:
    """What the dealer sends to this party.

    Args:
        channel: to the coordinator.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._waiting: list[Ring] = []
        self._count = self._unreported = self.received = 0
        self._ended = False

    async def ahead(self, count: int) -> Ring:
        """As :meth:`vfl_node.crypto.shares.machine.Corrections.ahead`.

        Raises:
            ProtocolError: they are too few, or no whole numbers (``E_COUNT``).
        """
        while self._count < count:
            await self._receive()
        if len(self._waiting) != 1:
            self._waiting = [np.concatenate(self._waiting) if self._waiting else np.empty(0, np.uint64)]
        return self._waiting[0][:count]

    async def take(self, count: int) -> Ring:
        """As :meth:`vfl_node.crypto.shares.machine.Corrections.take`. Raises as :meth:`ahead`."""
        taken = await self.ahead(count)
        self._waiting, self._count = [self._waiting[0][count:]], self._count - count
        return taken

    async def finish(self) -> None:
        """Say that all has been used. Raises ProtocolError: it has not (``E_COUNT``)."""
        while not self._ended and not self._count:
            await self._receive()
        if self._count:
            raise ProtocolError(f"{self._channel.peer} sent corrections for more than the job has", code="E_COUNT")
        if self._unreported:
            await self._channel.send(shares_pb2.CorrectionsUsed(count=self._unreported))

    async def _receive(self) -> None:
        """One more message."""
        message = None if self._ended else await self._channel.receive(shares_pb2.Corrections)
        if message is None or len(message.values) % BYTES or not (message.values or message.last):
            what = "too few corrections" if message is None else f"{len(message.values)} bytes of corrections"
            raise ProtocolError(f"{self._channel.peer} sent {what}", code="E_COUNT")
        self._ended = message.last
        count = len(message.values) // BYTES
        self._waiting.append(np.frombuffer(message.values, dtype="<u8").astype(np.uint64))
        if len(self._waiting) > _MOST_PIECES:  # small ones, as nobody sends who is honest
            self._waiting = [np.concatenate(self._waiting)]
        self._count += count
        self.received += len(message.values)
        self._unreported += count
        if self._unreported >= _REPORTED:
            await self._channel.send(shares_pb2.CorrectionsUsed(count=self._unreported))
            self._unreported = 0


class DealingSink:
    """Where the dealer's numbers for one party go: at most :data:`WINDOW` ahead of what it has used.

    Args:
        channel: to that party.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._waiting: list[bytes] = []
        self._size = self._ahead = self.sent = 0

    async def put(self, corrections: Ring) -> None:
        """As :meth:`vfl_node.crypto.shares.machine.Sink.put`."""
        self._waiting.append(corrections.astype("<u8").tobytes())
        self._size += corrections.nbytes
        if self._size >= CHUNK_BYTES:
            await self.flush()

    async def finish(self) -> None:
        """Send what waits, say that it is all, and hear that all has been used.

        Raises:
            ProtocolError: the party claims to have used none, or more than it was sent (``E_COUNT``).
        """
        await self.flush()
        await self._channel.send(shares_pb2.Corrections(last=True))
        while self._ahead > 0:
            await self._hear_used()

    async def flush(self) -> None:
        """Send what waits. Raises ProtocolError: as :meth:`finish`."""
        data, self._waiting, self._size = b"".join(self._waiting), [], 0
        for part in _cut([data]):
            while self._ahead + len(part) // BYTES > WINDOW:
                await self._hear_used()
            await self._channel.send(shares_pb2.Corrections(values=part))
            self._ahead += len(part) // BYTES
            self.sent += len(part)

    async def _hear_used(self) -> None:
        """One message of the party's use; a false one would let more than the window be on its way."""
        used = (await self._channel.receive(shares_pb2.CorrectionsUsed)).count
        if not 0 < used <= self._ahead:
            raise ProtocolError(f"{self._channel.peer} used {used} corrections, of {self._ahead} on their way", code="E_COUNT")
        self._ahead -= used


async def _exchange(channel: Channel, payloads: Sequence[Bytes], expected: Sequence[Opening]) -> list[Ring]:
    """Send payloads and receive as much as is expected, message by message in turn: so no queue fills up on both sides."""
    outgoing, place = _cut(payloads), 0
    received = np.empty(sum(each.size for each in expected), np.uint8)
    while (part := next(outgoing, None)) is not None or place < len(received):
        if part is not None:
            await channel.send(shares_pb2.MaskedShares(values=part))
        if place < len(received):
            values = (await channel.receive(shares_pb2.MaskedShares)).values
            if len(values) != min(CHUNK_BYTES, len(received) - place):
                raise ProtocolError(f"{channel.peer} sent {len(values)} bytes of shares at byte {place}", code="E_COUNT")
            received[place : place + len(values)] = np.frombuffer(values, np.uint8)
            place += len(values)
    return list(_unpack(received, expected))


def _cut(parts: Iterable[Bytes]) -> Iterator[bytes]:
    """All parts behind each other, in pieces of :data:`CHUNK_BYTES`; the last one may be smaller."""
    piece = bytearray()
    for part in parts:
        view = memoryview(part)
        while len(view):
            taken = view[: CHUNK_BYTES - len(piece)]
            piece += taken
            view = view[len(taken) :]
            if len(piece) == CHUNK_BYTES:
                yield bytes(piece)
                piece.clear()
    if piece:
        yield bytes(piece)


def _pack(each: Opening, values: Ring) -> Bytes:
    """The low bytes of each number; the numbers themselves where that is all of them."""
    flat = np.ascontiguousarray(values, dtype="<u8").reshape(-1).view(np.uint8)
    return flat.data if each.bytes == BYTES else flat.reshape(-1, BYTES)[:, : each.bytes].tobytes()


def _unpack(data: NDArray[np.uint8], expected: Sequence[Opening]) -> Iterator[Ring]:
    start = 0
    for each in expected:
        part = data[start : start + each.size]
        if each.bytes < BYTES:
            whole = np.zeros((len(part) // each.bytes, BYTES), np.uint8)
            whole[:, : each.bytes] = part.reshape(-1, each.bytes)
            part = whole.reshape(-1)
        yield part.view("<u8").astype(np.uint64, copy=False).reshape(each.shape)
        start += each.size


def _goes(each: Opening, sender: int, receiver: int) -> bool:
    """Whether a share goes from one of two parties to the other."""
    return each.by in (None, sender) and each.to in (None, receiver)


def _goes_to_hub(each: Opening, place: int) -> bool:
    """Whether a passive party sends its share to the active one."""
    return each.by in (None, place) and each.to != place


def _comes_from_hub(each: Opening, place: int) -> bool:
    """Whether a passive party gets the sum from the active one."""
    return each.to in (None, place) and each.by != place


def _sum(each: Opening, own: Sequence[Ring], received: Sequence[Ring], place: int) -> Ring:
    """What one of two parties sees opened; zeros where it is for the other alone."""
    if each.to not in (None, place):
        return np.zeros(each.shape, np.uint64)
    return _total(each, [*own, *received])


def _total(each: Opening, shares: Sequence[Ring]) -> Ring:
    """Their sum, as many low bits of it as are opened: no carry of shares goes on to others."""
    total = add_shares(shares, each.shape, each.binary)
    if each.bits < BITS:
        total &= np.uint64((1 << each.bits) - 1)
    return total
