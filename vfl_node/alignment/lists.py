"""Lists of group elements between two parties, with the checks every protocol makes of them.

A list received has the right count, valid and distinct elements, and is pinned: a peer that
resumes a job must send the bytes it sent before, because an answer under the same secret
scalars to another list would be an oracle.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.alignment import NOT_MINE, Pins
from vfl_node.crypto.groups import Group, Scalar
from vfl_node.crypto.rows import Rows, are_distinct, find_rows
from vfl_node.crypto.workers import Workers
from vfl_node.errors import DataError, ProtocolError
from vfl_node.progress import Progress
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import alignment_pb2

MAX_IDS = 1 << 31
"""Most identifiers accepted from a peer."""

_CHUNKS_AHEAD = 32  # received and being powered; bounds memory and keeps progress honest


class Lists:
    """One party's side of the lists of one protocol.

    Args:
        protocol: its name; separates its hashes and pins from other protocols'.
        channel: the conversation with the peer.
        group: where the elements live.
        workers: who computes powers.
        pins: digests that must not change between attempts.
        progress: told of every group operation.
    """

    def __init__(
        self, protocol: str, channel: Channel, *, group: Group, workers: Workers, pins: Pins, progress: Progress
    ) -> None:
        self._protocol, self._channel, self._group = protocol, channel, group
        self._workers, self._pins, self._progress = workers, pins, progress

    async def exchange_sizes(self, ids: Sequence[bytes]) -> int:
        """Tell the peer the number of our identifiers and learn the number of its own.

        Raises:
            DataError: an identifier occurs twice (``E_DUP_IDS``).
            ProtocolError: more than :data:`MAX_IDS` (``E_COUNT``).
        """
        if repeated := len(ids) - len(set(ids)):
            raise DataError(
                f"{repeated} of {len(ids)} identifiers repeat an earlier one",
                code="E_DUP_IDS",
                hint="keep one row for each identifier",
            )
        await self._channel.send(alignment_pb2.SetSize(count=len(ids)))
        theirs = int((await self._channel.receive(alignment_pb2.SetSize)).count)
        if theirs > MAX_IDS:
            raise ProtocolError(f"{self._channel.peer} announces {theirs} identifiers, more than {MAX_IDS}", code="E_COUNT")
        return theirs

    def hashed(self, ids: Sequence[bytes]) -> Rows:
        """The identifiers as group elements of this protocol's own domain."""
        return self._group.hash_to_group(ids, f"vfl-node-v1-{self._protocol}-{self._group.name}".encode())

    def powers(self, rows: Rows, scalar: Scalar) -> Iterator[Rows]:
        """``x^scalar`` for every row, block by block as they are computed."""
        for block in self._group.powers(rows, scalar, self._workers):
            self._progress.advance(len(block))
            yield block

    def power(self, rows: Rows, scalar: Scalar) -> Rows:
        """``x^scalar`` for every row."""
        return self._gathered(self.powers(rows, scalar))

    def power_distinct(self, name: str, rows: Rows, scalar: Scalar) -> Rows:
        """As :meth:`power`, of the received list ``name``, whose powers must differ too.

        Points of Curve25519 that differ by a component of small order have the same power.

        Raises:
            ProtocolError: two are equal (``E_DUPLICATE``).
        """
        return self._distinct(name, self.power(rows, scalar))

    async def send(self, rows: Rows) -> None:
        """Send a list."""
        await self._channel.send_rows(rows, count=len(rows), width=self._group.width)

    async def send_powers(self, rows: Rows, scalar: Scalar) -> None:
        """Send ``x^scalar`` for every row, each block as soon as it is computed."""
        await self._channel.send_rows(self.powers(rows, scalar), count=len(rows), width=self._group.width)

    async def receive(self, name: str, *, count: int) -> Rows:
        """Receive the list ``name`` of exactly ``count`` elements.

        Raises:
            ProtocolError: another count (``E_COUNT``), an invalid element (``E_ELEMENT``)
                or two equal ones (``E_DUPLICATE``).
            StateError: not the list of an earlier attempt (``E_REPLAY``).
        """
        rows = await self._channel.receive_rows(width=self._group.width, count=count)
        self._distinct(name, self._decoded(name, rows))
        self._pins.check(f"{self._protocol} {name}", hashlib.sha256(rows.tobytes()).digest())
        return rows

    async def receive_powers(self, name: str, scalar: Scalar, *, at_least: int, at_most: int) -> Rows:
        """Receive the list ``name`` and give ``x^scalar``, computed while the rest still arrives.

        Raises:
            ProtocolError: a count outside the bounds (``E_COUNT``), an invalid element
                (``E_ELEMENT``) or two equal ones (``E_DUPLICATE``).
            StateError: not the list of an earlier attempt (``E_REPLAY``).
        """
        digest = hashlib.sha256()
        started: deque[Iterator[Rows]] = deque()
        finished: list[Rows] = []
        async for chunk in self._channel.receive_chunks(width=self._group.width, max_count=at_most):
            digest.update(chunk.tobytes())
            started.append(self._group.powers(self._decoded(name, chunk), scalar, self._workers))
            if len(started) > _CHUNKS_AHEAD:
                finished.append(self._finished(started.popleft()))
        finished.extend(self._finished(blocks) for blocks in started)
        rows = self._gathered(finished)
        if len(rows) < at_least:
            raise ProtocolError(f"{self._from(name)}: {len(rows)} elements, expected at least {at_least}", code="E_COUNT")
        self._distinct(name, rows)
        self._pins.check(f"{self._protocol} {name}", digest.digest())
        return rows

    def place(self, shared: Rows, own: Rows, order: NDArray[np.int64]) -> NDArray[np.int64]:
        """Our local row at each shared position, int64[len(shared)], or :data:`NOT_MINE`.

        Args:
            shared: the sorted elements both parties index by.
            own: our own distinct elements, blinded as ``shared`` is; those not in ``shared`` are left out.
            order: the local row of each element of ``own``.
        """
        rows = np.full(len(shared), NOT_MINE, dtype=np.int64)
        places = find_rows(shared, own)
        rows[places[places >= 0]] = order[places >= 0]
        return rows

    def _finished(self, blocks: Iterator[Rows]) -> Rows:
        rows = self._gathered(blocks)
        self._progress.advance(len(rows))
        return rows

    def _gathered(self, blocks: Iterator[Rows] | list[Rows]) -> Rows:
        return np.concatenate([self._group.empty(), *blocks])

    def _decoded(self, name: str, rows: Rows) -> Rows:
        try:
            return self._group.decode(rows)
        except ProtocolError as error:
            raise ProtocolError(f"{self._from(name)}: {error.message}", code=error.code) from None

    def _distinct(self, name: str, rows: Rows) -> Rows:
        if not are_distinct(rows):
            raise ProtocolError(f"{self._from(name)}: an element occurs twice", code="E_DUPLICATE")
        return rows

    def _from(self, name: str) -> str:
        return f"{self._protocol} {name} from {self._channel.peer}"
