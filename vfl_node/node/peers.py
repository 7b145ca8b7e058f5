"""The peers of this node: a standing link with each of them, and conversations on demand.

Either end may open a stream. A peer with an address is dialled; one without is waited for. If both know the other's address,
the node whose name sorts first dials, and the other's call is turned away with ``E_CALL_BACK`` as long as that works.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

import structlog

from vfl_node.errors import PeerLost, PolicyError, ProtocolError, VflError, peer_text
from vfl_node.node.calls import CONNECT_S, Calls, Waiting
from vfl_node.node.certificates import CertificateWatch
from vfl_node.node.dialling import Dialling
from vfl_node.node.peer_state import NO_LINK, PeerState, PeerStates, clock_ahead, greeting, mistake_in, parting_error
from vfl_node.node.probed import Probed
from vfl_node.node.pulse import Beats
from vfl_node.node.questions import Questions
from vfl_node.node.renewal import Renewal
from vfl_node.node.voices import Voice, Voices
from vfl_node.settings.node import Settings
from vfl_node.transport.channel import Channel
from vfl_node.transport.credentials import Credentials
from vfl_node.transport.generated.vfl.v1.session_pb2 import Notice
from vfl_node.transport.guests import Guests
from vfl_node.transport.link_stream import LinkStream
from vfl_node.transport.recorder import Recorder
from vfl_node.transport.server import NodeServer
from vfl_node.transport.streams import StreamPipe

log = structlog.get_logger()

BEAT_S = 5.0
"""How often a node tells each peer over its link whether it makes progress."""

SILENCE_S = 15.0
"""A link without a word for this long is dead: the peer's process hangs, or its machine is gone."""


class Peers:
    """The links and conversations of one node.

    Args:
        settings: this node's settings.
        credentials: TLS material, or None for plaintext on loopback.
        on_notice: called with (peer, notice) for each offer and cancellation that arrives; may return a reply.
        expects: whether a conversation of a peer about a job may be waited for: no other is.
        recorder: hears everything that is sent.
        guests: whoever talks with guests that want to pair; None: there are none.
        voices: whatever else is said and heard over links, each of one kind of notice.

    Attributes:
        certificates: watches this node's own and those of its peers; None in plaintext.
        on_up: called with the peer whenever its link comes up.
        news: what all peers hear, asked whenever the certificates were looked at.
        steps: as an argument of :class:`vfl_node.node.pulse.Beats`.
    """

    def __init__(
        self,
        settings: Settings,
        credentials: Credentials | None,
        on_notice: Callable[[str, Notice], Notice | None],
        expects: Callable[[str, str], bool],
        recorder: Recorder | None = None,
        guests: Guests | None = None,
        voices: Sequence[Voice] = (),
    ) -> None:
        self.on_up: Callable[[str], None] = lambda peer: None
        self.news: Callable[[], Sequence[Notice]] = tuple
        self.steps: Callable[[str], Mapping[str, int]] = lambda peer: {}
        self._settings, self._on_notice = settings, on_notice
        self._recorder, self._voices = recorder, Voices(voices)
        self._changed, self._stopping = threading.Condition(), threading.Event()
        self._states = PeerStates({name: PeerState(name, peer.address) for name, peer in settings.connected.items()})
        self._beats = Beats(self._states, self._changed, steps=lambda peer: self.steps(peer), relays=settings.role == "active")
        self._asking = Questions(self._states, self._changed, self._send)
        self._dialling = Dialling(
            settings,
            credentials,
            self._states,
            check=self._check_process,
            serve=self._serve_link,
            down=self._disconnect,
            stopping=self._stopping,
        )
        self._dialers = self._dialling.dialers
        self.certificates = (
            CertificateWatch(
                credentials,
                self._dialers,
                self._states,
                self._disconnect,
                self._cut,
                renew=Renewal(settings).renew_if_due,
                looked=self._tell_news,
            )
            if credentials
            else None
        )
        if watch := self.certificates:
            self._dialling.fault = lambda: watch.fault
        self._calls = Calls(
            self._dialers,
            check=self._check_process,
            expects=expects,
            describe=self.describe,
            stopping=self._stopping,
        )
        self._server = (
            NodeServer(
                settings.listen,
                own=settings.name,
                federation=settings.federation,
                credentials=credentials,
                peers=settings.authorities,
                on_converse=self._accept_conversation,
                on_link=self._accept_link,
                instance=self._dialling.instance,
                streams_per_party=settings.streams_per_party,
                guests=guests,
                on_probe=Probed(settings, self._dialling.reaches).answer,
            )
            if settings.listen
            else None
        )

    def start(self) -> str | None:
        """Listen and dial; returns the bound ``host:port``, if any. Raises UsageError (``E_PORT``)."""
        bound = self._server.start() if self._server else None
        if self.certificates:
            self.certificates.start(self._stopping)
        self._dialling.start()
        return bound

    def admit(self, name: str, address: str | None) -> None:
        """Take up a peer that this node's owner has listed, while it runs; one that was there already begins anew."""
        again = f"{self._settings.name} has taken up {name} again"
        self.dismiss(name, PeerLost(again, for_peer=again))
        with self._changed:
            self._states[name] = PeerState(name, address)
        if address:
            self._dialling.add(name, address)

    def dismiss(self, name: str, error: VflError) -> None:
        """End everything with a peer that this node's owner lists no more; it is told why first."""
        with self._changed:
            state = self._states.pop(name, None)
            pipes = list(state.pipes) if state else []
            self._changed.notify_all()
        for pipe in pipes:
            pipe.cancel(error)
        dialer = self._dialling.remove(name)
        if state and state.link:
            state.link.part(error.for_peer, error)  # waits for a peer that does not read
        if dialer:
            dialer.close()

    def stop(self) -> None:
        """End every link and conversation."""
        self._stopping.set()
        with self._changed:
            links = [state.link for state in self._states.values() if state.link]
            self._changed.notify_all()
        for link in links:
            link.close()
        self._calls.stop()
        self._dialling.stop()
        if self._server:
            self._server.stop()

    def status(self) -> dict[str, dict[str, object]]:
        """Per peer: whether its link is up, since when, and why not; nulls of a relayed peer, with which there is no link."""
        with self._changed:
            links = {name: state.status() for name, state in self._states.items()}
        return {name: links.get(name, NO_LINK) for name in self._settings.peers}

    def online(self, peer: str) -> bool:
        """Whether the link with ``peer`` is up. Takes no lock: callers may hold one that is taken under this object's."""
        return self._states[peer].link is not None

    def last_progress(self, peer: str) -> float:
        """When ``peer`` last made progress with anything, as far as its beats tell (monotonic seconds)."""
        with self._changed:
            return self._states[peer].moved

    def describe(self, peer: str) -> str:
        """As :meth:`vfl_node.node.peer_state.PeerState.describe`."""
        with self._changed:
            return self._states[peer].describe()

    def ask(self, peer: str, notice: Notice, *, key: str, waiting: Waiting, deadline: float) -> Notice:
        """As :meth:`vfl_node.node.questions.Questions.ask`."""
        return self._asking.ask(peer, notice, key=key, waiting=waiting, deadline=deadline)

    def check_version(self, peer: str) -> None:
        """As :meth:`vfl_node.node.questions.Questions.check_version`."""
        self._asking.check_version(peer)

    def tell(self, peer: str, notice: Notice) -> bool:
        """Send a notice if the link is up; best effort. Returns whether it is on its way."""
        with self._changed:
            link = self._states[peer].link
        if link is not None:
            try:
                self._send(peer, link, notice)
                return True
            except PeerLost:
                log.info("notice not delivered", peer=peer)
        return False

    def channel(self, pipe: StreamPipe, peer: str, job_id: str) -> Channel:
        """A channel over a pipe of :meth:`conversation`."""
        channel = Channel(pipe, peer=peer, job_id=job_id)
        return self._recorder.wrap(self._settings.name, channel) if self._recorder else channel

    def conversation(self, peer: str, job_id: str, *, waiting: Waiting, deadline: float) -> StreamPipe:
        """As :meth:`vfl_node.node.calls.Calls.open`."""
        pipe = self._calls.open(peer, job_id, waiting=waiting, deadline=deadline)
        with self._changed:
            self._states[peer].pipes[pipe] = job_id
        return pipe

    def _accept_conversation(self, peer: str, job_id: str, pipe: StreamPipe) -> None:
        """A peer opened a conversation; the handler's thread stays until it is over."""
        self._call_back_if_ours(peer)
        self._check_process(peer, pipe)
        self._calls.take(peer, job_id, pipe)

    def _accept_link(self, peer: str, link: LinkStream) -> None:
        """A peer opened its standing link; the handler's thread serves it until it ends."""
        self._call_back_if_ours(peer)
        self._check_process(peer, link)
        self._serve_link(peer, link)

    def _call_back_if_ours(self, peer: str) -> None:
        if peer in self._dialers and self._settings.name < peer and self._states[peer].dialable:
            raise PolicyError(f"{peer} is dialled by this node", code="E_CALL_BACK", for_peer="it dials this peer itself")

    def _check_process(self, peer: str, stream: LinkStream | StreamPipe) -> None:
        with self._changed:
            self._states[peer].check_same_process(stream)

    def _serve_link(self, peer: str, link: LinkStream) -> None:
        """Greet, then answer notices until the link breaks."""
        self._send(peer, link, greeting(self._settings))
        answer = link.receive(CONNECT_S)
        mistake = mistake_in(answer, peer)
        if answer is None or mistake:
            link.close()
            if mistake and not self.online(peer):  # otherwise there is another link, which works
                self._disconnect(peer, mistake.message, mistake.code)
            return
        version = peer_text(answer.hello.software_version, 20)
        with self._changed:
            state = self._states[peer]
            known = peer in self._states  # otherwise it was dismissed meanwhile
            previous = state.connect(link, version, clock_ahead(answer.hello)) if known else link
            self._changed.notify_all()
        if previous is not None:
            previous.close()
        if not known:
            return
        log.info("peer connected", peer=peer, version=version)
        if clocks := state.describe_clock():
            log.warning(clocks, peer=peer, hint="set both clocks by a time server: certificates and answers hold for a time")
        heard = beaten = time.monotonic()
        try:
            for said in self._voices.show(peer):
                self._send(peer, link, said)
            self.on_up(peer)
            while not self._stopping.is_set():
                notice = link.receive(BEAT_S)
                now = time.monotonic()
                if now - beaten >= BEAT_S:
                    self._send(peer, link, Notice(beat=self._beats.make_beat(peer)))
                    self._send(peer, link, Notice(echo=state.echoes.ask()))
                    beaten = now
                if notice is not None:
                    heard = now
                    self._handle(peer, link, notice)
                elif now - heard >= SILENCE_S:
                    self._silent(peer)
        except (PeerLost, ProtocolError) as error:
            with self._changed:
                ours = state.link is link and self._states[peer] is state  # it may have been dismissed, or taken up again
            if ours and not self._stopping.is_set():
                self._disconnect(peer, error.message, error.code)
        finally:
            with self._changed:
                state.end_link(link)
            link.close()

    def _silent(self, peer: str) -> None:
        """End link and conversations of a peer that hangs; the conversations would be waited for much longer by themselves."""
        lost = PeerLost(f"not a word from {peer} for {SILENCE_S:.0f} s")
        self._cut(peer, lost)
        raise lost

    def _cut(self, peer: str, error: VflError) -> None:
        """End the conversations with ``peer``."""
        with self._changed:
            pipes = list(self._states[peer].pipes)
        for pipe in pipes:
            pipe.cancel(error)

    def _handle(self, peer: str, link: LinkStream, notice: Notice) -> None:
        kind = notice.WhichOneof("body")
        if kind == "beat":
            with self._changed:
                self._states[peer].beat(progressed=notice.beat.progressed)
        elif kind == "echo":
            if answer := self._states[peer].echoes.hear(notice.echo):
                self._send(peer, link, Notice(echo=answer))
        elif notice.parting:
            raise parting_error(peer, notice)
        elif kind == "offer_reply":
            self._asking.hear(peer, notice)
        else:
            hear = self._on_notice if kind in ("offer", "cancel") else self._voices.hear
            self._send(peer, link, hear(peer, notice))

    def _tell_news(self) -> None:
        for notice in self.news():
            for peer in list(self._states):
                self.tell(peer, notice)

    def _send(self, peer: str, link: LinkStream, notice: Notice | None) -> None:
        if notice is not None:
            if self._recorder:
                self._recorder.notice(self._settings.name, peer, notice)
            link.send(notice)

    def _disconnect(self, peer: str, cause: str, code: str) -> None:
        with self._changed:
            news = self._states[peer].disconnect(cause, code)
            self._changed.notify_all()
        if news and cause:
            log.warning("peer absent", peer=peer, cause=cause, code=code)
