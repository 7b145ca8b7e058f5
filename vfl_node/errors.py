"""Every error a person or a peer can meet, as one tree.

::

    VflError                 code, message, hint, and what a peer may be told
    ├── UsageError           the command, the job file or the settings are wrong   exit 2
    ├── DataError            the party's own table cannot be used                  exit 1
    ├── PolicyError          this party's owner does not allow it                  exit 1
    ├── ProtocolError        a peer sent what the protocol does not permit         exit 1
    ├── PeerError            a peer is absent, lost, different or stopped          exit 1
    │   └── PeerLost         the conversation ended before its final record; it may resume
    ├── StateError           what was stored cannot be used                        exit 1
    ├── Cancelled            the owner cancelled the job                           exit 1
    └── Paused               this node is stopping; the job goes on after a restart
        └── GaveWay          another job goes first; this one has its turn again

``message`` and ``hint`` are for the owner of the node where the error rises. A
peer is told ``for_peer`` and ``peer_code`` and nothing else, so that no file name, column, id or
label crosses the wire inside an error.
"""

from __future__ import annotations


class VflError(Exception):
    """Base of all errors with a stable code and a text made for people.

    Args:
        message: What happened and where (party, phase, file, line, column).
        hint: What to do about it; empty if there is nothing to add.
        code: Stable identifier such as ``E_CSV``; scripts may match on it.
        for_peer: What the other parties may be told; a neutral text by default.
        peer_code: The code they are told, where ``code`` itself would tell too much.
    """

    exit_status = 1
    default_code = "E_INTERNAL"

    def __init__(self, message: str, *, hint: str = "", code: str = "", for_peer: str = "", peer_code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code or self.default_code
        self.peer_code = peer_code or self.code
        self.for_peer = for_peer or "it met an error of its own; its owner sees the cause"

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]" + (f"\n  hint: {self.hint}" if self.hint else "")


def peer_text(text: str, limit: int = 300) -> str:
    """What a peer wrote, fit for a terminal and a log: printable characters only, and not too many."""
    text = text[:limit]
    return text if text.isprintable() else "".join(filter(str.isprintable, text))


class UsageError(VflError):
    """The command line, the job file or the node's settings cannot be used."""

    exit_status = 2
    default_code = "E_USAGE"


UNUSABLE_DATA = "its data cannot be used for this job"
"""What a peer is told of a table that is damaged, too small, of one class or otherwise of no use, with ``E_DATA``."""


class DataError(VflError):
    """The party's own table cannot be used; the message names file, line and column.

    A peer gets the same text for all of them: it chooses the job, and could otherwise search for what the table holds.
    """

    default_code = "E_DATA"

    def __init__(self, message: str, *, hint: str = "", code: str = "", for_peer: str = "", peer_code: str = "") -> None:
        text_for_peer = for_peer or UNUSABLE_DATA
        super().__init__(message, hint=hint, code=code, for_peer=text_for_peer, peer_code=peer_code or self.default_code)


class PolicyError(VflError):
    """This party's settings do not allow what a job or a peer asks."""

    default_code = "E_POLICY"


class ProtocolError(VflError):
    """A peer sent what the protocol does not permit; the conversation is aborted."""

    default_code = "E_PROTOCOL"

    def __init__(self, message: str, *, hint: str = "", code: str = "", for_peer: str = "") -> None:
        super().__init__(
            message, hint=hint, code=code, for_peer=for_peer or "it received a message the protocol does not permit"
        )


class PeerError(VflError):
    """A peer is absent, stopped, or runs another job, version or identity."""

    default_code = "E_PEER"


class PeerLost(PeerError):
    """The conversation broke off before its final record; a service waits and resumes."""

    default_code = "E_PEER_LOST"


class StateError(VflError):
    """What an earlier attempt stored cannot be used (changed input, damaged or newer state)."""

    default_code = "E_STATE"


class Cancelled(VflError):
    """The owner of this node cancelled the job; another party's owner did where a peer's error has this code."""

    default_code = "E_CANCELLED"


class Paused(VflError):
    """This node is stopping; the job goes on when it is started again."""

    default_code = "E_PAUSED"


class GaveWay(Paused):
    """The job has let another one have its place, and goes on when it has its turn again."""

    default_code = "E_GAVE_WAY"
