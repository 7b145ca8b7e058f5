"""What a node knows of one peer at the moment: whether their link is up, since when, why not, and how busy the peer is."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone

from vfl_node.errors import PeerLost, PolicyError, ProtocolError, VflError, peer_text
from vfl_node.process.counters import LINKS_LOST, code_label
from vfl_node.session.preflight import version_error
from vfl_node.settings.node import Settings
from vfl_node.transport.generated.vfl.v1.session_pb2 import Echo, Hello, Notice
from vfl_node.transport.identity import Validity
from vfl_node.transport.link_stream import LinkStream
from vfl_node.transport.streams import StreamPipe
from vfl_node.version import OLDEST_SENT, PROTOCOL_VERSION, VERSION, common_version

CLOCKS_S = 120
"""How far the clocks of two parties may be apart before their owners are told."""

MOST_CLOCK_S = 1 << 37
"""What no clock says yet: so that what a peer sends is a time that can be written."""

ECHOES = 8
"""So many round trips of a link are kept."""


class Echoes:
    """How long a notice takes to the peer and back, on one link.

    Args:
        clock: seconds, of any origin.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._number = 0
        self._asked: float | None = None  # when, if the answer is still to come
        self._took: deque[float] = deque(maxlen=ECHOES)

    def ask(self) -> Echo:
        """The next question."""
        self._number, self._asked = self._number + 1, self._clock()
        return Echo(number=self._number)

    def hear(self, echo: Echo) -> Echo | None:
        """Take what came from the peer; returns the answer to a question. An answer that is late counts as none."""
        if not echo.answer:
            return Echo(number=echo.number, answer=True)
        if echo.number == self._number and self._asked is not None:
            self._took.append(self._clock() - self._asked)
            self._asked = None
        return None

    @property
    def round_trip_ms(self) -> float | None:
        """The shortest of the last ones, in ms: the others had to wait for something. None: not known yet."""
        return 1000 * min(self._took) if self._took else None


NO_LINK: dict[str, object] = {
    **dict.fromkeys(("address", "online", "since", "version", "round_trip_ms", "certificate_days", "clock_ahead_s")),
    "cause": "",
}
"""The status of a relayed peer."""


@dataclass
class PeerState:
    """The state of one peer. Whoever uses it holds the lock of all of them, except to read ``link``.

    Attributes:
        name: of the peer.
        address: where this node dials it; None if it dials in.
        link: the standing link, while it is up.
        version: of its software, as it said when the link last went up.
        since: when ``link`` last went up or down, seconds since the epoch.
        cause: why the link is down, if that is known.
        code: of ``cause``.
        dialable: whether the last call of this node reached the peer, as far as it has called.
        asked: keys of the offers that somebody waits for a reply to.
        replies: key → reply.
        told: how far the jobs with it had got here when it last had a beat.
        moved: when it last said that it had made progress, monotonic seconds.
        moves: how often it has said so.
        pipes: the open conversations, each with the id of its job.
        echoes: of its link.
        clock_ahead_s: how far its clock was ahead of this node's when ``link`` went up; None: it did not say.
    """

    name: str
    address: str | None
    link: LinkStream | None = None
    version: str | None = None
    since: float = field(default_factory=time.time)
    cause: str = ""
    code: str = ""
    dialable: bool = True
    asked: set[str] = field(default_factory=set)
    replies: dict[str, Notice] = field(default_factory=dict)
    told: object = None
    moved: float = field(default_factory=time.monotonic)
    moves: int = 0
    pipes: weakref.WeakKeyDictionary[StreamPipe, str] = field(default_factory=weakref.WeakKeyDictionary)
    echoes: Echoes = field(default_factory=Echoes)
    clock_ahead_s: int | None = None

    def connect(self, link: LinkStream, version: str | None = None, clock_ahead_s: int | None = None) -> LinkStream | None:
        """``link`` is up, to software of this ``version``; returns the link before it, if that was still there."""
        previous, self.link, self.since, self.version, self.echoes = self.link, link, time.time(), version, Echoes()
        self.cause, self.code, self.clock_ahead_s = "", "", clock_ahead_s
        return previous

    def describe_clock(self) -> str:
        """What its clock and this node's said when the link went up, where they are far apart; else nothing."""
        if abs(self.clock_ahead_s or 0) <= CLOCKS_S:
            return ""
        ours, theirs = (datetime.fromtimestamp(at, timezone.utc) for at in (self.since, self.since + (self.clock_ahead_s or 0)))
        return f"the clock of {self.name} says {theirs:%Y-%m-%d %H:%M} UTC, and this node's says {ours:%Y-%m-%d %H:%M}"

    def disconnect(self, cause: str, code: str) -> bool:
        """There is no link, for ``cause``; returns whether that is news."""
        news = self.link is not None or self.cause != cause
        if self.link is not None:
            LINKS_LOST.series(self.name, code_label(code)).inc()
            self.link, self.since = None, time.time()
        self.cause, self.code = cause, code
        return news

    def end_link(self, link: LinkStream) -> None:
        """``link`` has ended; nothing changes if there is another one by now."""
        if self.link is link:
            self.link, self.since = None, time.time()

    def beat(self, *, progressed: bool) -> None:
        """The peer sent a beat."""
        if progressed:
            self.moved, self.moves = time.monotonic(), self.moves + 1

    def check_same_process(self, stream: LinkStream | StreamPipe) -> None:
        """Turn away a second node that shows the identity of one that is connected.

        Raises:
            PolicyError: another process is at the other end of ``stream`` than at that of the link (``E_FENCED``).
        """
        if self.link is not None and self.link.ended is None and self.link.instance != stream.instance:
            raise PolicyError(
                f"a second node that presents itself as {self.name} was turned away",
                code="E_FENCED",
                hint=f"two nodes run under one certificate: ask the owner of {self.name}",
                for_peer="another node under this name is connected here",
            )

    def describe(self) -> str:
        """The peer in words: name, address, since when it is connected or absent and, if known, why."""
        where = f"at {self.address}" if self.address else "which dials in to this node"
        since = datetime.fromtimestamp(self.since).strftime("%H:%M:%S")
        cause = f": {self.cause}" if self.cause and self.link is None else ""
        return f"{self.name} ({where}), {'connected' if self.link else 'absent'} since {since}{cause}"

    def status(self) -> dict[str, object]:
        """The peer as the board shows it."""
        return {
            "address": self.address,
            "online": self.link is not None,
            "since": datetime.fromtimestamp(self.since).astimezone().isoformat(timespec="seconds"),
            "cause": self.cause,
            "version": self.version,
            "round_trip_ms": self.echoes.round_trip_ms if self.link else None,
            "certificate_days": days_left(self.link.validity if self.link else None),
            "clock_ahead_s": self.clock_ahead_s if self.link else None,
        }


class PeerStates(dict[str, PeerState]):
    """The states of all peers. A party that is no peer, such as one that a job names and that was revoked, is never there."""

    def __missing__(self, name: str) -> PeerState:
        return PeerState(name, None, cause="it is no peer of this node")


PARTING_CODES = ("E_CERTIFICATE", "E_IDENTITY", "E_REVOKED")
"""Codes with which a peer may end a link for good or for long."""


def parting_error(peer: str, notice: Notice) -> PeerLost:
    """Why ``peer`` has ended the link, as its ``notice`` says."""
    code = notice.parting_code if notice.parting_code in PARTING_CODES else PARTING_CODES[0]
    return PeerLost(f"{peer} ended the link: {peer_text(notice.parting)}", code=code)


def days_left(validity: Validity | None) -> int | None:
    """For how many days a certificate is still valid, by this machine's clock; None where that is not known."""
    return None if validity is None else (validity.until - datetime.now(timezone.utc)).days


def greeting(settings: Settings) -> Notice:
    """What this node says first."""
    hello = Hello(
        party=settings.name,
        role=settings.role,
        protocol_version=PROTOCOL_VERSION,
        oldest_protocol_version=OLDEST_SENT,
        software_version=VERSION,
        clock_s=int(time.time()),
    )
    return Notice(hello=hello)


def clock_ahead(hello: Hello) -> int | None:
    """How many seconds the clock of who says ``hello`` is ahead of this node's now; None: it does not say, or none that is."""
    return int(hello.clock_s - time.time()) if 0 < hello.clock_s < MOST_CLOCK_S else None


def mistake_in(notice: Notice | None, peer: str) -> VflError | None:
    """What is wrong with the first notice of ``peer``, None if there was none."""
    if notice is None or notice.WhichOneof("body") != "hello":
        return ProtocolError("it did not greet")
    hello = notice.hello
    if hello.party != peer:
        return ProtocolError("it presents itself as another party")
    if common_version(hello.protocol_version, hello.oldest_protocol_version) is None:
        return version_error(peer, hello.protocol_version, hello.software_version)
    return None
