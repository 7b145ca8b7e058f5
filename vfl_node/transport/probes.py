"""A probe: a stream by which ``vfl-node doctor`` measures the line to a peer. It carries random bytes, digests and clocks.

The probed node greets, then answers each question at once: with its clock, a digest, and as many random bytes as are wanted.
The last question may have the stream kept open in silence, to see whether something on the way cuts it.
"""

from __future__ import annotations

from collections.abc import Sequence

from vfl_node.transport.generated.vfl.v1.session_pb2 import ProbeMessage
from vfl_node.transport.streams import Stream

PROBE_S = 10.0
"""How long the questions of one probe may take."""

PROBE_BYTES = 32 << 20
"""Bytes of one probe, each way."""

PROBE_EVERY_S = 60.0
"""How often one peer may probe this node."""

HOLD_S = 600
"""For how many seconds a probe may be kept open in silence."""

NO_ADDRESS, REACHED, NOT_REACHED = 1, 2, 3
"""What came of dialling back."""

WAITING_BYTES = 1 << 20
"""Bytes that may wait in each direction; a larger message is sent alone."""

_CLOSE_S = 1.0


class ProbeStream(Stream[ProbeMessage]):
    """The stream of one probe, at either end."""

    def __init__(self, peer: str) -> None:
        super().__init__(peer, ProbeMessage, _parse, limit_bytes=WAITING_BYTES, close_s=_CLOSE_S)

    def send(self, message: ProbeMessage) -> None:
        """Queue one message; waits for room for as long as a probe may take. Raises PeerLost when the stream has ended."""
        self._put(message, PROBE_S)

    def receive(self, timeout_s: float) -> ProbeMessage | None:
        """The next message; None after ``timeout_s`` without one.

        Raises:
            PeerLost: the stream has ended.
            ProtocolError: the bytes are no such message, or too many (``E_SIZE``).
        """
        return self._get(timeout_s)


def _parse(pieces: Sequence[bytes]) -> ProbeMessage:
    return ProbeMessage.FromString(b"".join(pieces))
