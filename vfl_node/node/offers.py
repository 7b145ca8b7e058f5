"""What peers ask of a node: to take part in their jobs, to go on with one, or to end one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice

import structlog

from vfl_node.errors import Cancelled, GaveWay, PeerError, PolicyError, StateError, VflError, peer_text
from vfl_node.execution.allowed import check_allowed
from vfl_node.job import parse_job
from vfl_node.node import predictions
from vfl_node.node.consents import Consents, JobConsents
from vfl_node.node.endings import OWN_WISH, REFUSED
from vfl_node.node.faults import JOB_DONE
from vfl_node.node.record import Record
from vfl_node.node.reuse import check_reuse
from vfl_node.node.spending import check_budget
from vfl_node.node.states import State
from vfl_node.node.store import Store
from vfl_node.node.works import Works
from vfl_node.process import failpoints
from vfl_node.process.counters import REFUSALS, code_label
from vfl_node.process.logs import Seldom
from vfl_node.settings.node import Settings
from vfl_node.settings.refusals import SILENT
from vfl_node.transport.bounds import MOST_JOB_BYTES
from vfl_node.transport.generated.vfl.v1.session_pb2 import Cancel, Notice, Offer, OfferReply
from vfl_node.trust.relaying import list_newer

log = structlog.get_logger()

JOB_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")

MOST_CANCELLED = 64
"""So many cancelled jobs, the newest, are named to a peer whenever its link is up again."""


class Offers:
    """Answers the offers and cancellations that arrive over links.

    Args:
        settings: of this node.
        store: its jobs.
        works: those under way.
    """

    def __init__(self, settings: Settings, store: Store, works: Works) -> None:
        self._settings, self._store, self._works = settings, store, works
        self._consents = Consents(settings, store)
        self._refusals: dict[str, Seldom] = {}

    def hear(self, peer: str, notice: Notice) -> Notice | None:
        """Answer an offer or a cancellation that ``peer`` sent over its link."""
        if notice.WhichOneof("body") == "cancel":
            with _outlive_errors(peer):
                self._hear_cancel(peer, notice.cancel)
            return None
        offer = notice.offer
        log.debug("offer heard", job=peer_text(offer.job_id, 63), peer=peer, ready=offer.ready)
        try:
            state = self._accept(peer, offer).state
            work = self._works.get(offer.job_id)
            consents = work.others.consents if work else JobConsents(self._settings, self._store, offer.job_id)
            consents.hear_cards(peer, offer.cards)
            if work:
                work.others.hear_consents(peer, offer.consents)
            else:
                consents.hear(peer, offer.consents, begun=False)
            if work and offer.ready:
                work.others.invite(peer)
            awaits = [name for name in work.others.absent if name != peer] if work else ()
            asked = [self._settings.name] if state == "asked" else work.others.asked_here if work else ()
            reply = OfferReply(job_id=offer.job_id, accepted=True, awaits=awaits, asked=asked, consents=consents.envelopes)
            reply.waits = bool(work and work.place)
            reply.draining = bool(work and work.turn and work.turn.position.drained)
            if work and not work.others.begun:
                reply.cards.extend(consents.cards_for(peer))
        except VflError as error:
            if self._refusals.setdefault(peer, Seldom()).lets((offer.job_id, error.code)):
                REFUSALS.series(code_label(error.code), "own").inc()
                say = log.info if error.for_peer.startswith(SILENT) else log.warning  # a rule of this owner is no fault
                said = {"code": error.code, "reason": error.message, "hint": error.hint}
                say("job refused", job=peer_text(offer.job_id, 63), peer=peer, **said)
            code, reason = self._tell(error)
            cards = list_newer(self._settings, peer, offer.manifest) if error.code == "E_CONSENT" else ()
            reply = OfferReply(job_id=offer.job_id, accepted=False, code=code, reason=reason, cards=cards)
        except Exception:
            log.exception("internal error", job=peer_text(offer.job_id, 63), peer=peer)  # the link must outlive it
            reply = OfferReply(job_id=offer.job_id, accepted=False, code="E_INTERNAL", reason=VflError("").for_peer)
        return Notice(offer_reply=reply)

    def _tell(self, error: VflError) -> tuple[str, str]:
        """Code and reason as a peer hears them: of a strict policy only that it does not allow the job."""
        if self._settings.rules.preset == "strict" and error.code in (PolicyError.default_code, "E_BUDGET"):
            return PolicyError.default_code, SILENT
        return error.peer_code, error.for_peer

    def link_up(self, peer: str) -> None:
        """Tell a peer whose link is up again what was cancelled meanwhile, and ask it how jobs ended that it decides.

        It ignores what it has heard before. It is told what this owner cancelled; by an active party what any owner did, since
        passive ones do not tell each other.
        """
        with _outlive_errors(peer):
            self._tell_ends(peer)

    def _tell_ends(self, peer: str) -> None:
        relays = self._settings.role == "active"
        records = [record for record in self._store.records() if not record.damaged and peer in record.parties]
        cancelled = (record for record in records if record.state == "cancelled" and record.code != REFUSED)  # who asks is told
        cancelled = (record for record in cancelled if relays or record.message == OWN_WISH)
        for record in islice(cancelled, MOST_CANCELLED):
            reason = "" if record.message == OWN_WISH else record.message
            self._works.tell(peer, Notice(cancel=Cancel(job_id=record.id, reason=reason)))
        for record in records:
            own = record.active == self._settings.name
            if (own or record.active == peer) and not record.over and self._store.has_report(record):
                if not own and self._store.job_folder(record).cancelled:
                    self._works.tell(peer, Notice(cancel=Cancel(job_id=record.id)))
                self._works.go_on_with(peer, record.id)

    def _hear_cancel(self, peer: str, cancel: Cancel) -> None:
        """A peer says that a job has ended, because its owner or that of another party cancelled it or because it failed."""
        message = f"{peer_text(cancel.reason)} ({peer} says)" if cancel.reason else f"{peer}'s owner cancelled the job"
        if cancel.failed:
            message = f"{peer} stopped: {peer_text(cancel.reason) or 'the job failed there'}"
        state: State = "failed" if cancel.failed else "cancelled"
        code = PeerError.default_code if cancel.failed else "E_CANCELLED"
        work = self._works.get(cancel.job_id)
        record = work.record if work else self._store.get(cancel.job_id)
        if record is None or peer not in record.parties or not (work or record.open):
            return
        if work and not work.ending.hear(peer, PeerError(message, code=code, for_peer=message)):
            return
        if work and work.ended:  # perhaps before it heard
            work.join()
            work, record = None, self._store.record(record.id)
        if work is None and record.open:
            decides = peer == record.active or self._settings.name == record.active or not self._store.has_report(record)
            ended = self._works.forget(record, message, state=state, code=code) if decides else record
            if ended is None:  # somebody works on it by now
                self._hear_cancel(peer, cancel)
            if ended is None or ended.state == "done":
                return
        self._pass_on(record, peer, Cancel(job_id=record.id, failed=cancel.failed, reason=message))

    def _pass_on(self, record: Record, peer: str, cancel: Cancel) -> None:
        """Tell all parties, if this is the active one, what ``peer`` has said.

        Some have no conversation with it, and one that waits for this party's word, such as ``peer``, believes no other.
        """
        with suppress(VflError):  # a job of another version, with which nobody works any more
            parties = record.job.parties
            if self._settings.name == parties.active:
                for name in parties.peers_of(parties.active):
                    self._works.tell(name, Notice(cancel=cancel))

    def _accept(self, peer: str, offer: Offer) -> Record:
        """Take part in a peer's job if this node's settings allow it, or ask its owner; or go on with one that has begun.

        Returns:
            The job. While the owner is asked nothing but that leaves this node.

        Raises:
            VflError: it does not take part.
        """
        record = self._store.get(offer.job_id)
        if record is not None:
            self._go_on(peer, offer, record)
            return record
        if state := self._store.pruned_state(offer.job_id):
            text = f"job {offer.job_id} has ended here ({state}), and was pruned"
            raise PeerError(text, code=_code_of(state), for_peer=f"the job has already ended there ({state})")
        if len(offer.job_json) > MOST_JOB_BYTES or not JOB_ID.fullmatch(offer.job_id):
            raise PolicyError(f"{peer} offers a job of unusable size or id", for_peer="the job's size or id is not usable")
        job = parse_job(offer.job_json, source=f"the job offered by {peer}")
        if peer not in job.parties.all:
            raise PolicyError(f"{peer} takes no part in the job it offers", for_peer="the submitter takes no part in the job")
        check_allowed(self._settings, job, by_peer=True)
        check_budget(self._settings, job)
        if self._settings.role != "coordinator":
            check_reuse(self._store, job)
        if job.predict:
            predictions.check(self._store, job, peer, self._settings.name)
        taken = self._consents.take(peer, offer, job)
        by_rule = self._consents.decide(job, peer, taken[0] if taken else None).by == "rule"
        if taken is None and not by_rule:
            text = "the job has no manifest, which its owner could be asked about"
            raise PolicyError(text, code="E_MANIFEST", hint=f"install this version at {peer}, too", for_peer=text)
        with self._works.beginning():
            if (record := self._store.get(offer.job_id)) is not None:  # two parties may offer it at once
                self._go_on(peer, offer, record)
                return record
            self._works.check_room(peer, serves=job.is_service, asks=not by_rule)
            predictions.supersede(self._store, job)
            manifest, documents = taken or (None, {})
            if manifest and not by_rule:
                failpoints.reach("ask")
                record = self._store.add(job, submitter=peer, job_id=offer.job_id, state="asked", documents=documents)
                log.info("job waits for this node's owner", job=record.id, peer=peer, hint=f"vfl-node show {record.id}")
                failpoints.reach("asked")
                return record
            if manifest:
                documents = {**documents, **self._consents.answer(manifest, "approve", "rule")}
            failpoints.reach("accept")
            record = self._store.add(job, submitter=peer, job_id=offer.job_id, documents=documents)
            log.info("job accepted", job=record.id, peer=peer)
            if job.train and (warning := job.train.opens(job.evaluate).warning):
                log.warning(warning, job=record.id, peer=peer)
            failpoints.reach("accepted")
            self._works.begin(record)
        return record

    def _go_on(self, peer: str, offer: Offer, record: Record) -> None:
        """Go on with a job of this node that ``peer`` offers again. Raises VflError if it cannot."""
        if record.damaged or record.code in ("E_QUARANTINED", "E_NO_PROGRESS"):
            raise StateError(record.message or "", code=record.code or "", for_peer="it waits for its owner to see to the job")
        if record.spec != offer.job_json or peer not in record.parties:
            raise PolicyError(f"{peer} offers another job under a known id", for_peer="this id belongs to another job")
        if offer.manifest or record.state == "asked":
            self._consents.check_same(offer)
        if record.state == "asked":
            return
        if record.over:
            for_peer, code = f"the job has already ended there ({record.state})", _code_of(record.state)
            if record.state == "failed" and (work := self._works.latest(record.id)):
                for_peer = work.for_peer or for_peer
            if record.state == "cancelled":
                message = record.message or "it was cancelled"  # by another party: its message says by which
                for_peer = "its owner cancelled the job" if message == OWN_WISH else message
            if (record.state, record.code) == ("cancelled", REFUSED):
                for_peer, code = record.message or for_peer, REFUSED
            raise PeerError(f"job {record.id} has already ended here ({record.state})", code=code, for_peer=for_peer)
        with self._works.beginning():
            if peer not in self._settings.connected:  # it was revoked while it asked
                raise PolicyError(f"{peer} is no peer any more", code="E_REVOKED", for_peer="it is no peer there any more")
            try:
                self._works.resume(record.id, by_owner=False)
            except PolicyError as busy:
                raise GaveWay(busy.message, for_peer=busy.for_peer) from None


@contextmanager
def _outlive_errors(peer: str) -> Iterator[None]:
    """A context whose errors the link with ``peer`` outlives: the index may not be readable at the moment."""
    try:
        yield
    except VflError as error:
        log.warning("what was cancelled cannot be looked up", peer=peer, code=error.code, reason=error.message)


def _code_of(state: State) -> str:
    """What a peer is told of a job that has ended in this state."""
    return {"done": JOB_DONE, "cancelled": Cancelled.default_code}.get(state, "E_JOB_ENDED")
