"""Whom this node talks to: a standing link with each peer, and conversations on demand.

Either end may open a stream. A peer with an address is dialled; one without is waited for.
Where both know the other's address, the name that sorts first dials, and the other's call
is turned away with ``E_CALL_BACK`` until it does.
"""

from __future__ import annotations

import secrets
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import structlog

import vfl_node
from vfl_node.errors import PeerError, PeerLost, PolicyError, ProtocolError, VflError, peer_text
from vfl_node.node.pulse import Pulse
from vfl_node.session.preflight import PROTOCOL_VERSION
from vfl_node.settings import Settings
from vfl_node.transport.channel import Channel
from vfl_node.transport.credentials import Credentials
from vfl_node.transport.dialer import Dialer
from vfl_node.transport.generated.vfl.v1.session_pb2 import Beat, Hello, Notice
from vfl_node.transport.recorder import Recorder
from vfl_node.transport.server import NodeServer
from vfl_node.transport.streams import LinkStream, StreamPipe

log = structlog.get_logger()

CONNECT_S = 5.0
BEAT_S = 5.0
SILENCE_S = 15.0
"""A link without a word for this long is dead: the peer's process hangs, or its machine is gone."""

RETRY_S = (0.2, 0.5, 1.0, 2.0, 3.0)


class Waiting(Protocol):
    """Whoever waits for a peer, and what may end the wait (:class:`vfl_node.run.live.Stop`, a meeting)."""

    def check(self) -> None:
        """Raise if there is no more use in waiting."""

    def wait(self, timeout_s: float) -> None:
        """Sleep up to ``timeout_s``, and raise at once when the owner wants the end."""


@dataclass
class _PeerState:
    """What is known of one peer right now."""

    link: LinkStream | None = None
    since: float = field(default_factory=time.time)
    cause: str = ""
    asked: set[str] = field(default_factory=set)  # keys of the offers that somebody waits for a reply to
    replies: dict[str, Notice] = field(default_factory=dict)
    dialable: bool = True
    progress: int = 0
    moved: float = field(default_factory=time.monotonic)  # when its progress changed last
    fenced: bool = False  # it turns this node away, since another one under this name is connected there
    pipes: weakref.WeakSet[StreamPipe] = field(default_factory=weakref.WeakSet)


class Peers:
    """The links and conversations of one node.

    Args:
        settings: this node's settings.
        credentials: TLS material, or None for plaintext on loopback.
        on_notice: called with (peer, notice) for each offer and cancellation that arrives; may return a reply.
        expects: whether a conversation of a peer about a job may be waited for: no other is.
        recorder: hears everything that is sent.

    Attributes:
        on_up: called with the peer whenever its link is up.
        steps: changes whenever a job of this node gets on.
    """

    def __init__(
        self,
        settings: Settings,
        credentials: Credentials | None,
        on_notice: Callable[[str, Notice], Notice | None],
        expects: Callable[[str, str], bool],
        recorder: Recorder | None = None,
    ) -> None:
        self.on_up: Callable[[str], None] = lambda peer: None
        self.steps: Callable[[], int] = lambda: 0
        self._pulse = Pulse()
        self._settings = settings
        self._on_notice = on_notice
        self._expects = expects
        self._recorder = recorder
        self._changed = threading.Condition()
        self._states = {name: _PeerState() for name in settings.peers}
        self._arrived: dict[tuple[str, str], StreamPipe] = {}
        self._wanted: set[tuple[str, str]] = set()
        self._stopping = threading.Event()
        instance = secrets.token_hex(16)
        self._dialers = {
            name: Dialer(
                peer.address,
                own=settings.name,
                peer=name,
                federation=settings.federation,
                credentials=credentials,
                instance=instance,
            )
            for name, peer in settings.peers.items()
            if peer.address
        }
        self._server = (
            NodeServer(
                settings.listen,
                own=settings.name,
                federation=settings.federation,
                credentials=credentials,
                peers=frozenset(settings.peers),
                on_converse=self._accept_conversation,
                on_link=self._accept_link,
                instance=instance,
                streams_per_party=settings.streams_per_party,
            )
            if settings.listen
            else None
        )

    def start(self) -> str | None:
        """Listen and dial; returns the bound ``host:port``, if any. Raises UsageError (``E_PORT``)."""
        bound = self._server.start() if self._server else None
        for name in self._dialers:
            threading.Thread(target=self._keep_link, args=(name,), name=f"link-{name}", daemon=True).start()
        return bound

    def stop(self) -> None:
        """End every link and conversation."""
        self._stopping.set()
        with self._changed:
            links = [state.link for state in self._states.values() if state.link]
            pipes = list(self._arrived.values())
            self._changed.notify_all()
        for link in links:
            link.close()
        for pipe in pipes:
            pipe.close()
        for dialer in self._dialers.values():
            dialer.close()
        if self._server:
            self._server.stop()

    def status(self) -> dict[str, dict[str, object]]:
        """Per peer: whether its link is up, since when, and why not."""
        with self._changed:
            return {
                name: {
                    "address": self._settings.peers[name].address,
                    "online": state.link is not None,
                    "since": datetime.fromtimestamp(state.since).astimezone().isoformat(timespec="seconds"),
                    "cause": state.cause,
                }
                for name, state in self._states.items()
            }

    def online(self, peer: str) -> bool:
        """Whether the link with ``peer`` is up. Takes no lock: who asks may hold one that is asked for under this one's."""
        return self._states[peer].link is not None

    def moved(self, peer: str) -> float:
        """When ``peer`` got on with anything last, as far as its beats tell (monotonic seconds)."""
        with self._changed:
            return self._states[peer].moved

    def _progress(self) -> int:
        """What changes while this node computes, gets on with a job, or sends and receives."""
        with self._changed:
            pieces = sum(pipe.pieces for state in self._states.values() for pipe in state.pipes)
        return (self._pulse.spells() + self.steps() + pieces) % (1 << 63)

    def describe(self, peer: str) -> str:
        """Whom a job waits for: name, address, since when and, if known, why."""
        with self._changed:
            state = self._states[peer]
            address = self._settings.peers[peer].address
            where = f"at {address}" if address else "which dials in to this node"
            since = datetime.fromtimestamp(state.since).strftime("%H:%M:%S")
            cause = f": {state.cause}" if state.cause and state.link is None else ""
            return f"{peer} ({where}), {'connected' if state.link else 'absent'} since {since}{cause}"

    def ask(self, peer: str, notice: Notice, *, key: str, waiting: Waiting, deadline: float) -> Notice:
        """Send an offer once the link is up and wait for the reply to ``key``.

        Raises:
            PeerLost: no reply until ``deadline`` (monotonic seconds; ``E_PEER_ABSENT``).
            VflError: what ``waiting`` raises.
        """
        state = self._states[peer]
        try:
            while True:
                waiting.check()
                with self._changed:
                    link = state.link
                    state.asked.add(key)
                    state.replies.pop(key, None)
                if link is not None:
                    try:
                        self._send(peer, link, notice)
                        reply = self._reply(peer, key, link, waiting, deadline)
                        if reply is not None:
                            return reply
                    except PeerLost:
                        pass
                if time.monotonic() > deadline:
                    if state.fenced:
                        hint = "two nodes run under one certificate: stop one, then go on: vfl-node resume JOB"
                        raise PeerLost(f"no word from {self.describe(peer)}", code="E_FENCED", hint=hint)
                    raise PeerLost(
                        f"no word from {self.describe(peer)}",
                        code="E_PEER_ABSENT",
                        hint="is that node running, and are its address and certificate right?",
                    )
                waiting.wait(0.1)
        finally:
            with self._changed:
                state.asked.discard(key)
                state.replies.pop(key, None)

    def tell(self, peer: str, notice: Notice) -> None:
        """Send a notice if the link is up; best effort."""
        with self._changed:
            link = self._states[peer].link
        if link is not None:
            try:
                self._send(peer, link, notice)
            except PeerLost:
                log.info("notice not delivered", peer=peer)

    def channel(self, pipe: StreamPipe, peer: str, job_id: str) -> Channel:
        """The conversation with ``peer`` that a pipe of :meth:`conversation` carries."""
        channel = Channel(pipe, peer=peer, job_id=job_id)
        return self._recorder.wrap(self._settings.name, channel) if self._recorder else channel

    def conversation(self, peer: str, job_id: str, *, waiting: Waiting, deadline: float) -> StreamPipe:
        """Open or wait for the conversation about ``job_id``.

        Raises:
            PeerLost: none until ``deadline`` (``E_PEER_ABSENT``).
            VflError: what ``waiting`` raises.
        """
        key = (peer, job_id)
        with self._changed:
            self._wanted.add(key)
        try:
            attempt = 0
            while True:
                waiting.check()
                pipe, cause = self._open(peer, job_id, key)
                if pipe is not None:
                    with self._changed:
                        self._states[peer].pipes.add(pipe)
                    return pipe
                if time.monotonic() > deadline:
                    raise PeerLost(
                        f"no conversation with {self.describe(peer)}{cause}",
                        code="E_PEER_ABSENT",
                        hint="is that node running, and does it accept jobs from this one?",
                    )
                waiting.wait(RETRY_S[min(attempt, len(RETRY_S) - 1)] if peer in self._dialers else 0.02)
                attempt += 1
        finally:
            with self._changed:
                self._wanted.discard(key)
                late = self._arrived.pop(key, None)  # it called while we did, or while the wait ended
            if late is not None:
                late.close()

    def _open(self, peer: str, job_id: str, key: tuple[str, str]) -> tuple[StreamPipe | None, str]:
        """One try: what has arrived, or a call of our own where we dial."""
        with self._changed:
            if key in self._arrived:
                return self._arrived.pop(key), ""
        if peer not in self._dialers:
            with self._changed:
                self._changed.wait(0.2)
                return self._arrived.pop(key, None), ""
        try:
            pipe = self._dialers[peer].converse(job_id, timeout_s=CONNECT_S)
            try:
                self._fence(peer, pipe)
            except PolicyError:
                pipe.close()
                raise
            return pipe, ""
        except (PeerError, PolicyError) as error:
            with self._changed:  # it may have called meanwhile
                return self._arrived.pop(key, None), f": {error.message}"

    def _accept_conversation(self, peer: str, job_id: str, pipe: StreamPipe) -> None:
        """A peer opened a conversation; the handler's thread stays until it is over."""
        self._call_back_if_ours(peer)
        self._fence(peer, pipe)
        if not self._expects(peer, job_id):
            raise _not_waiting(peer)
        key = (peer, job_id)
        limit = time.monotonic() + CONNECT_S / 2
        with self._changed:
            while key not in self._wanted:
                left = limit - time.monotonic()
                if left <= 0 or self._stopping.is_set():
                    raise _not_waiting(peer)
                self._changed.wait(min(left, 0.05))
            stale = self._arrived.pop(key, None)
            self._arrived[key] = pipe
            self._changed.notify_all()
        if stale is not None:
            stale.close()

    def _accept_link(self, peer: str, link: LinkStream) -> None:
        """A peer opened its standing link; the handler's thread serves it until it ends."""
        self._call_back_if_ours(peer)
        self._fence(peer, link)
        self._serve_link(peer, link)

    def _call_back_if_ours(self, peer: str) -> None:
        if peer in self._dialers and self._settings.name < peer and self._states[peer].dialable:
            raise PolicyError(f"{peer} is dialled by this node", code="E_CALL_BACK", for_peer="it dials this peer itself")

    def _fence(self, peer: str, stream: LinkStream | StreamPipe) -> None:
        """Turn away a second node that shows the identity of one that is connected.

        Raises:
            PolicyError: it is another process than that at the other end of the link (``E_FENCED``).
        """
        with self._changed:
            link = self._states[peer].link
        if link is not None and link.ended is None and link.instance != stream.instance:
            raise PolicyError(
                f"a second node that presents itself as {peer} was turned away",
                code="E_FENCED",
                hint=f"two nodes run under one certificate: ask the owner of {peer}",
                for_peer="another node under this name is connected here",
            )

    def _keep_link(self, peer: str) -> None:
        """Keep a link to a dialled peer for as long as the node runs."""
        failures = 0
        while not self._stopping.is_set():
            try:
                link = self._dialers[peer].link(timeout_s=CONNECT_S)
                failures, self._states[peer].dialable = 0, True
                try:
                    self._fence(peer, link)
                except PolicyError as error:
                    link.close()
                    log.warning(error.message, peer=peer, code=error.code)
                else:
                    self._serve_link(peer, link)
            except VflError as error:
                if error.code != "E_CALL_BACK":
                    self._states[peer].dialable = False
                    self._down(peer, error.message, fenced=error.code == "E_FENCED")
            except Exception:
                log.exception("internal error", peer=peer)  # the link is begun again whatever happened
            self._stopping.wait(RETRY_S[min(failures, len(RETRY_S) - 1)])
            failures += 1

    def _serve_link(self, peer: str, link: LinkStream) -> None:
        """Greet, then answer notices until the link breaks."""
        hello = Hello(
            party=self._settings.name,
            role=self._settings.role,
            protocol_version=PROTOCOL_VERSION,
            software_version=vfl_node.__version__,
        )
        self._send(peer, link, Notice(hello=hello))
        greeting = link.receive(CONNECT_S)
        wrong = _wrong_greeting(peer, greeting)
        if greeting is None or wrong:
            link.close()
            if not self.online(peer):  # else there is another link, which is good
                self._down(peer, wrong)
            return
        with self._changed:
            state = self._states[peer]
            previous, state.link, state.cause, state.since = state.link, link, "", time.time()
            self._changed.notify_all()
        if previous is not None:
            previous.close()
        log.info("peer connected", peer=peer, version=peer_text(greeting.hello.software_version, 20))
        heard = beaten = time.monotonic()
        try:
            self.on_up(peer)
            while not self._stopping.is_set():
                notice = link.receive(BEAT_S)
                now = time.monotonic()
                if now - beaten >= BEAT_S:
                    self._send(peer, link, Notice(beat=Beat(progress=self._progress())))
                    beaten = now
                if notice is not None:
                    heard = now
                    self._handle(peer, link, notice)
                elif now - heard >= SILENCE_S:
                    self._silent(peer)
        except (PeerLost, ProtocolError) as error:
            with self._changed:
                ours = state.link is link
            if ours and not self._stopping.is_set():
                self._down(peer, error.message)
        finally:
            with self._changed:
                if state.link is link:
                    state.link, state.since = None, time.time()
            link.close()

    def _silent(self, peer: str) -> None:
        """A peer that hangs: its conversations are as dead as its link, and would be waited for much longer."""
        lost = PeerLost(f"not a word from {peer} for {SILENCE_S:.0f} s")
        with self._changed:
            pipes = list(self._states[peer].pipes)
        for pipe in pipes:
            pipe.cancel(lost)
        raise lost

    def _handle(self, peer: str, link: LinkStream, notice: Notice) -> None:
        kind = notice.WhichOneof("body")
        if kind == "offer_reply":
            with self._changed:
                state, key = self._states[peer], notice.offer_reply.job_id
                if key in state.asked:  # else nobody waits for it any more, or ever did
                    state.replies[key] = notice
                    self._changed.notify_all()
        elif kind == "beat":
            with self._changed:
                state = self._states[peer]
                if state.progress != notice.beat.progress:
                    state.progress, state.moved = notice.beat.progress, time.monotonic()
        elif kind in ("offer", "cancel"):
            reply = self._on_notice(peer, notice)
            if reply is not None:
                self._send(peer, link, reply)

    def _send(self, peer: str, link: LinkStream, notice: Notice) -> None:
        if self._recorder:
            self._recorder.notice(self._settings.name, peer, notice)
        link.send(notice)

    def _reply(self, peer: str, key: str, link: LinkStream, waiting: Waiting, deadline: float) -> Notice | None:
        state = self._states[peer]
        with self._changed:
            while key not in state.replies and state.link is link and time.monotonic() < deadline:
                waiting.check()
                self._changed.wait(0.1)
            return state.replies.pop(key, None)

    def _down(self, peer: str, cause: str, *, fenced: bool = False) -> None:
        with self._changed:
            state = self._states[peer]
            state.fenced = fenced
            fresh = state.link is not None or state.cause != cause
            if state.link is not None:
                state.link, state.since = None, time.time()
            state.cause = cause
            self._changed.notify_all()
        if fresh:
            log.warning("peer absent", peer=peer, cause=cause)


def _not_waiting(peer: str) -> PeerError:
    return PeerError(
        f"{peer} asked about a job that is not waiting here",
        code="E_NOT_WAITING",
        for_peer="this job is not waiting for a conversation here",
    )


def _wrong_greeting(peer: str, notice: Notice | None) -> str:
    """What is wrong with a link's first notice; empty if nothing is."""
    if notice is None or notice.WhichOneof("body") != "hello":
        return "it did not greet"
    hello = notice.hello
    if hello.party != peer:
        return "it presents itself as another party"
    if hello.protocol_version != PROTOCOL_VERSION:
        version = peer_text(hello.software_version, 20)
        return f"it speaks protocol version {hello.protocol_version} (vfl-node {version}), this node {PROTOCOL_VERSION}"
    return ""
