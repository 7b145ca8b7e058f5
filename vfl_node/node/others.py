"""The other parties of one job: who is connected, who has a place for it, who takes part, and how all of them meet."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress

from vfl_node.errors import Cancelled, GaveWay, PeerError, PeerLost, peer_text
from vfl_node.execution.live import Stop
from vfl_node.node.consents import JobConsents
from vfl_node.node.ending import Ending
from vfl_node.node.endings import REFUSED, refusal_hint
from vfl_node.node.faults import JOB_DONE, NOT_NOW
from vfl_node.node.meeting import Meeting
from vfl_node.node.peers import Peers
from vfl_node.node.record import Record
from vfl_node.node.turns import Turn
from vfl_node.process import failpoints
from vfl_node.process.counters import REFUSALS, code_label
from vfl_node.progress import OwnersAsked, PeersAwaited, Progress
from vfl_node.report.words import join_names
from vfl_node.transport.generated.vfl.v1.session_pb2 import Notice, Offer, OfferReply
from vfl_node.trust.manifest import VALID_DAYS

ANNOUNCE_S = 2.0
"""How long each of them is waited for when the job is announced."""

ASK_AGAIN_S = 5.0
"""How often a party that does not come to its conversation is asked whether it still takes part."""

ASK_QUEUED_S = 30.0
"""How often it is asked, while the job waits for its turn here, whether it still has it."""

LOOK_S = 0.2
"""How often it is checked whether all are connected."""

INVITED_S = 20.0
"""For how long another party is believed to have a place for the job after it said so."""

ENDED = (JOB_DONE, "E_JOB_ENDED", Cancelled.default_code)
"""Codes with which another party says that the job has ended there."""


class Others:
    """The other parties of a job, in the order of the job: active, passive, coordinator.

    Args:
        own: this party's name.
        record: the job.
        peers: the peers of this node.
        ready: says whether this node has a place for the job.
        ending: how the job ends here; hears of it when a party says that it has ended.
        consents: to the job, which go with every offer.

    Attributes:
        names: of these parties.
        queueing: those in whose queues the job waits → whether that node begins nothing new.
        unable: those that take part and cannot at the moment, such as on a full disk → the code that they told.
        begun: whether the job has had an attempt, so that all of them know of it.
        consents: as they were given.
    """

    def __init__(
        self, own: str, record: Record, peers: Peers, ready: Callable[[], bool], ending: Ending, consents: JobConsents
    ) -> None:
        self.names = record.others(own)
        self.queueing: dict[str, bool] = {}
        self.unable: dict[str, str] = {}
        self.begun = bool(record.attempt)
        self._own, self._record, self._peers, self._ready, self._ending = own, record, peers, ready, ending
        self.consents, self._parties = consents, record.job.parties
        self._settled: set[str] = set()  # who has stored all consents
        self._asked: dict[str, set[str]] = {}  # who has answered last → parties whose owners are asked, as it says
        self._done_at: set[str] = set()
        self._invited: dict[str, float] = {}  # party → when it last said that it has a place for the job

    @property
    def absent(self) -> list[str]:
        """Those whose link is down."""
        return [name for name in self.names if not self._peers.online(name)]

    @property
    def asked(self) -> list[str]:
        """Parties whose owners have not answered yet, as far as this party knows: of each from itself, if they talk."""
        said = dict(self._asked)
        told = set().union(*said.values())
        return [name for name in self._parties.all if name != self._own and name in said.get(name, told)]

    @property
    def asked_here(self) -> list[str]:
        """Those of :attr:`asked` of which this party knows it from themselves."""
        return [name for name, asked in list(self._asked.items()) if name in asked]

    @property
    def undecided(self) -> list[str]:
        """Those of :attr:`asked`; if there are none and all are connected, those whose consent is not here, or that lack one.

        Once the job has begun there are none: it keeps what was agreed on.
        """
        if self.begun or self.asked or self.absent:
            return [] if self.begun else self.asked
        return self.consents.missing or [name for name in self.names if not self._is_settled(name)]

    def _is_settled(self, name: str) -> bool:
        return name in self._settled or not self.consents.signers or not self._may_know(name)

    def hear_consents(self, name: str, envelopes: Sequence[bytes]) -> None:
        """``name`` takes part, and has these consents. Raises PolicyError if one does not count (``E_CONSENT``)."""
        self._asked[name] = self._asked.get(name, set()) - {name}
        self.consents.hear(name, envelopes, begun=self.begun)
        if self.consents.covers(envelopes):
            self._settled.add(name)

    @property
    def able(self) -> bool:
        """Whether all are connected and may run the job, and its first party, the active one, has a place for it."""
        first = self._parties.active
        invited = first == self._own or time.monotonic() - self._invited.get(first, -INVITED_S) < INVITED_S
        return invited and not self.undecided and all(map(self._peers.online, self.names))

    def invite(self, name: str) -> None:
        """``name`` says that it has a place for the job and comes to it."""
        self._invited[name] = time.monotonic()

    def describe(self, names: list[str]) -> tuple[str, ...]:
        """``names`` with address and state of the link."""
        return tuple(map(self._peers.describe, names))

    def check_versions(self) -> None:
        """Raise PeerError (``E_VERSION``) if one of them is away because it speaks another version of the protocol."""
        for name in self.absent:
            self._peers.check_version(name)

    def tell(self) -> None:
        """Offer the job to all that may know of it, and wait for no reply; best effort."""
        for name in filter(self._may_know, self.names):
            self._peers.tell(name, self._offer(name))

    def announce_in(self, meet: Callable[[], Meeting]) -> None:
        """As :meth:`announce`, in a meeting of its own that ``meet`` makes."""
        with meet() as meeting:
            self.announce(meeting)

    def announce(self, meeting: Meeting) -> None:
        """Offer the job to all that are connected, or ask whether they go on with it. Raises PeerError if one does not."""
        for name in filter(self._peers.online, self.names):
            with suppress(PeerLost):
                self._ask(name, meeting, time.monotonic() + ANNOUNCE_S)

    def await_owners(self, meet: Callable[[], Meeting], stop: Stop, progress: Progress, turn: Turn | None) -> None:
        """Wait until the owner of every party has answered whether the job may run; nobody reads a table meanwhile.

        Args:
            meet: makes a meeting.
            stop: the owner's wish.
            progress: follows the job.
            turn: of the job, which wants no place meanwhile.

        Raises:
            PeerError: one has refused it (``E_REFUSED``), or has not answered in time (``E_CONSENT``).
            PolicyError: a consent does not count (``E_CONSENT``).
        """
        again, known = time.monotonic() + (ASK_AGAIN_S if self.asked else 0.0), self.consents.envelopes
        with turn.held_back() if turn else nullcontext():
            while undecided := self.undecided:
                asked = tuple(self.asked)
                progress.emit(OwnersAsked(asked) if asked else PeersAwaited(tuple(undecided)))
                if time.monotonic() < again and known == self.consents.envelopes:
                    stop.wait(LOOK_S)
                    continue
                known = self.consents.envelopes
                self.announce_in(meet)
                again = time.monotonic() + ASK_AGAIN_S
                if self.consents.expired:
                    text = f"the owner of {join_names(undecided)} has not answered in {VALID_DAYS} days"
                    with meet():
                        raise PeerError(text, code="E_CONSENT", hint="submit the job again", for_peer=text)

    def await_word(self, meet: Callable[[], Meeting], deadline: float) -> None:
        """Wait until the active party says that a job goes on of which this party has stored its part.

        This party may have its table no more, which it does not need if the job is done.

        Args:
            meet: makes a meeting.
            deadline: until when, monotonic seconds.

        Raises:
            PeerLost: there was no such word (``E_PEER_ABSENT``).
            PeerError: the job has ended.
        """
        while True:
            with meet() as meeting:
                try:
                    self._ask(self._parties.active, meeting, deadline)
                    return
                except PeerLost:  # it may also be there, and not able to go on now
                    if time.monotonic() > deadline:
                        raise
                meeting.wait(ASK_AGAIN_S)

    def await_links(self, meeting: Meeting, deadline: float) -> float:
        """At the active party of several, wait until all are connected, before it begins any conversation.

        Parties that it has met would wait in their conversation for one that is away, and may have no link with it. Those
        that still ask are told for whom this party waits. It waits for links, not for jobs, so in no circle.

        Returns:
            Until when their conversations may begin: ``deadline``; after a wait at least a moment from now.

        Raises:
            PeerLost: one is still away at ``deadline``, monotonic seconds (``E_PEER_ABSENT``).
            PeerError: one does not take part, or speaks another version of the protocol (``E_VERSION``).
        """
        last, again = deadline, 0.0
        announced: list[str] | None = None
        relays = self._own == self._parties.active and len(self.names) > 1
        while relays and (absent := self.absent):
            if time.monotonic() >= last:
                for name in absent:
                    self._ask(name, meeting, last)
                break
            if absent != announced or time.monotonic() > again:  # also to one that has come while another is still away
                self.announce(meeting)
                announced, again = absent, time.monotonic() + ASK_AGAIN_S
            self.check_versions()
            meeting.check()
            meeting.wait(LOOK_S)
            deadline = max(last, time.monotonic() + ASK_AGAIN_S)
        if self._done_at:  # perhaps at all: this party's word of it may be lost, as after its state was restored from a backup
            self.announce(meeting)
        return deadline

    def meet(self, meeting: Meeting, deadline: float, *, frame_bytes: int, on_queue: Callable[[], float] | None = None) -> None:
        """Begin a conversation with each of them.

        No parties wait for each other in a circle, since all meet in one order: that of pairs, (active, passive),
        (active, coordinator), (passive, coordinator), in which each party meets its own in the order of the job's parties.
        Of the pairs that have not met, the first is the next one of both its parties.

        Args:
            meeting: those met so far.
            deadline: until when they are waited for, monotonic seconds.
            frame_bytes: of the longest frame that the job needs.
            on_queue: called while a party has the job in its queue; gives the new deadline. None: the old one holds.

        Raises:
            PeerLost: one did not come (``E_PEER_ABSENT``), or was lost.
            PeerError: one does not take part.
            GaveWay: the owner of one is asked first.
        """
        for name in self.names:
            while name not in meeting.channels:
                self._ask(name, meeting, deadline)
                if self.undecided:
                    raise GaveWay("an owner is asked", for_peer="the owner of a party is asked first")
                if on_queue and name in self.queueing:
                    deadline = on_queue()
                until = min(deadline, time.monotonic() + ASK_AGAIN_S)
                try:
                    pipe = self._peers.conversation(name, self._record.id, waiting=meeting, deadline=until)
                except PeerLost as error:
                    if error.code != "E_PEER_ABSENT":
                        raise
                    if until == deadline:
                        raise meeting.absence(name, error) from None
                else:
                    pipe.most_bytes = frame_bytes
                    meeting.add(name, pipe)

    def _ask(self, name: str, meeting: Meeting, deadline: float) -> None:
        """Offer the job to ``name``, or ask whether it goes on with it: if it has ended there, nobody comes to a conversation.

        Raises:
            PeerLost: no reply until ``deadline`` (``E_PEER_ABSENT``), or it cannot take part now.
            PeerError: it refused the job (``E_REFUSED``), or the job has ended there (``E_JOB_DONE``, ``E_JOB_ENDED``,
                ``E_CANCELLED``).
        """
        if not self._may_know(name):
            return
        failpoints.reach("offer")
        reply = self._peers.ask(name, self._offer(name), key=self._record.id, waiting=meeting, deadline=deadline).offer_reply
        meeting.hears(name, tuple(other for other in self._parties.all if other in reply.awaits))
        self.consents.hear_cards(name, reply.cards)
        self._asked[name] = asked = set(reply.asked) if reply.accepted else set()
        if reply.accepted and name not in asked:
            self.hear_consents(name, reply.consents)
        self.queueing = {other: new for other, new in self.queueing.items() if other != name}
        self.queueing |= {name: reply.draining} if reply.waits else {}
        self.unable = {other: code for other, code in self.unable.items() if other != name}
        if not reply.accepted:
            self._raise_refusal(name, reply)

    def _raise_refusal(self, name: str, reply: OfferReply) -> None:
        """Raise what it means for the job that ``name`` does not take part; nothing if its submitter hears it anyway."""
        reason, code = peer_text(reply.reason), peer_text(reply.code, 40)
        if code not in ENDED and (code in NOT_NOW or self._ending.bound):  # such as a full disk: it may be able to, later
            self.unable |= {name: code_label(code)}
            raise PeerLost(f"{name} cannot take part now: {reason} ({code})")
        if code == JOB_DONE and name != self._parties.active and len(self.names) > 1:  # no other decides for several
            self._done_at.add(name)
            if not (self._ending.decides and self._done_at.issuperset(self.names)):  # all of them cannot be mistaken
                raise PeerLost(f"the job is done at {name}, and it is not known yet whether it is at all")
        if code not in ENDED:
            if self._own == self._record.submitter or self._relays_to(name):
                REFUSALS.series(code_label(code), "peer").inc()
                own = code == REFUSED and self._own == self._record.submitter
                hint, for_peer = refusal_hint(name, reason if own else ""), f"{name} refused the job: {reason}"
                raise PeerError(f"{for_peer} ({code})", code="E_REFUSED", hint=hint, for_peer=for_peer)
            return
        error = self._ended_error(name, code, reason)
        if not self._ending.hear(name, error):
            raise PeerLost(f"{error.message}, and {self._parties.active} has not said so yet")
        raise error

    def _ended_error(self, name: str, code: str, reason: str) -> PeerError:
        """The job has ended at ``name``."""
        if code == JOB_DONE:
            return PeerError(
                f"the job is done at {name}, and this party has lost what it had stored of it",
                code=code,
                hint="put the state folder back from a backup, or submit a new job",
                for_peer="what it had stored is damaged",
            )
        cancelled = code == Cancelled.default_code
        text, hint = (f"{reason} ({name} says)", "") if cancelled else (f"{name} stopped: {reason}", f"ask the owner of {name}")
        return PeerError(text, code=code, hint=hint, for_peer=text)

    def _may_know(self, name: str) -> bool:
        """Whether the job may be mentioned to ``name``: a party hears of a new job from its submitter first."""
        return self.begun or self._record.submitter in (self._own, name) or self._relays_to(name)

    def _relays_to(self, name: str) -> bool:
        """Whether ``name`` hears of the job from this party, the active one: it has no conversation with the submitter."""
        submitter = self._record.submitter
        return self._own == self._parties.active and name != submitter and submitter not in self._parties.peers_of(name)

    def _offer(self, name: str) -> Notice:
        return Notice(
            offer=Offer(
                job_id=self._record.id,
                submitter=self._own,
                job_json=self._record.spec,
                ready=self._ready(),
                manifest=self.consents.manifest,
                consents=self.consents.envelopes,
                cards=[] if self.begun else self.consents.cards_for(name),
            )
        )
