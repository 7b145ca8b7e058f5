"""The end of the standing link between two nodes: a stream of notices."""

from __future__ import annotations

from contextlib import suppress

from vfl_node.errors import PeerLost, VflError
from vfl_node.transport.generated.vfl.v1 import session_pb2
from vfl_node.transport.streams import Stream

LINK_BYTES = 1 << 20
"""Bytes that may wait in each direction of a standing link; notices are small."""

LINK_SEND_S = 15.0
"""How long a notice waits for room on a link: a peer that reads nothing must not block jobs and owner of this node."""

LINK_CLOSE_S = 1.0
"""How long closing a link waits until it is sent; no last message of it matters."""


class LinkStream(Stream[session_pb2.Notice]):
    """The standing link between two nodes."""

    def __init__(self, peer: str) -> None:
        parse = session_pb2.Notice.FromString
        super().__init__(
            peer, session_pb2.Notice, lambda pieces: parse(b"".join(pieces)), limit_bytes=LINK_BYTES, close_s=LINK_CLOSE_S
        )

    def send(self, notice: session_pb2.Notice) -> None:
        """Queue one notice. Raises PeerLost when the link has ended; a link ends if its queue stays full for LINK_SEND_S."""
        self._put(notice, LINK_SEND_S)

    def part(self, reason: str, error: VflError) -> None:
        """Tell the peer for what ``reason`` the link ends, if it reads that in time, and end it for ``error``."""
        with suppress(PeerLost), self._changed:
            self._parting = error  # a peer that reads the reason ends the stream itself
            self.send(session_pb2.Notice(parting=reason, parting_code=error.peer_code))
            self._changed.wait_for(lambda: self._over, self._close_s)  # what is sent may not have left before that
        self.end(error)

    def receive(self, timeout_s: float) -> session_pb2.Notice | None:
        """The next notice; None after ``timeout_s`` without one.

        Raises:
            PeerLost: the link has ended.
            ProtocolError: the bytes are not a notice, or the notice is too large (``E_SIZE``).
        """
        return self._get(timeout_s)
