"""What this node's owner is asked about jobs of peers, and what it answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import structlog

from vfl_node.errors import PolicyError, UsageError, VflError, peer_text
from vfl_node.execution.allowed import check_allowed
from vfl_node.node.asked_words import describe
from vfl_node.node.consents import Consents
from vfl_node.node.endings import REFUSED, conclude, owner_refusal
from vfl_node.node.persons import NEEDED, Yes, count_yes, hear_yes
from vfl_node.node.record import Record
from vfl_node.node.spending import check_budget
from vfl_node.node.store import Store
from vfl_node.node.works import Works
from vfl_node.process import failpoints
from vfl_node.process.machine import utc_now
from vfl_node.settings.node import Settings
from vfl_node.settings.policy import By
from vfl_node.trust.manifest import DIGITS, Manifest
from vfl_node.trust.people import OWNER, People
from vfl_node.trust.refusal import RefusalReason

log = structlog.get_logger()

_DIGITS = re.compile(rf"[0-9a-f]{{{DIGITS},64}}")


class Approvals:
    """The owner's side of jobs in state ``asked``.

    Args:
        settings: of this node.
        store: its jobs.
        works: those under way.
        people: who may say yes, besides the owner.
    """

    def __init__(self, settings: Settings, store: Store, works: Works, people: People) -> None:
        self._settings, self._store, self._works, self._people = settings, store, works, people
        self._consents = Consents(settings, store)

    def asks(self) -> list[dict[str, Any]]:
        """The jobs that wait for the owner, oldest first.

        Each has id, name, submitter, submitted, purpose, digest, expires; ``by``: who must say yes (one, two, or nobody by
        now); ``yes``: persons who have; ``error``: why its manifest cannot be read, then it has no purpose, digest or end.
        """
        return [self._describe_ask(record) for record in self._store.standing("asked")]

    def show(self, job_id: str) -> dict[str, Any]:
        """What a job asks for, in plain words (:func:`vfl_node.node.asked_words.describe`).

        Raises:
            UsageError: there is no such job (``E_UNKNOWN_JOB``), or it has no manifest (``E_NO_MANIFEST``).
            StateError: what is stored is damaged (``E_STATE_CORRUPT``).
        """
        record = self._store.record(job_id)
        manifest = self._manifest(record)
        shown = describe(self._settings, self._store, record, manifest, self._consents.decision(job_id))
        if shown["decision"]:
            shown["decision"]["persons"] = self._consents.deciders(job_id)
        waits = self._wait_for(record, manifest) if record.state == "asked" else {"by": None, "yes": []}
        return shown | waits

    def approve(self, job_id: str, digits: str, note: str = "", person: str | None = None) -> Record:
        """Let a job run, now; or, where the policy wants two persons, keep that one of them says yes.

        Args:
            job_id: of the job.
            digits: the first digits of its manifest's digest, eight at least, as the owner has seen them.
            note: for this node's owner alone.
            person: who says so; None: the owner, over the socket or with the node's token.

        Returns:
            The job: still asked about while another person must say yes.

        Raises:
            UsageError: two persons must say yes, and this is none, or has said so already (``E_PERSON``); the job
                does not wait for the owner (``E_NOT_ASKED``), or its digest is another one (``E_STALE``); it is too late
                (``E_CONSENT``).
            PolicyError: the settings do not allow the job by now, or there is no room for it.
            VflError: it cannot begin.
        """
        with self._works.beginning():
            record = self._asked(job_id)
            manifest = self._manifest(record)
            if not (_DIGITS.fullmatch(digits) and manifest.digest.startswith(digits)):
                hint = f"look at it, then say its digest: vfl-node show {job_id}"
                raise UsageError(f"{digits[:64]!r} is not the digest of what job {job_id} asks for", code="E_STALE", hint=hint)
            if manifest.has_expired():
                self._end(record, manifest, "time", f"nobody has answered until {manifest.expires:%Y-%m-%d %H:%M} UTC")
                raise UsageError(f"it is too late to approve job {job_id}", code="E_CONSENT", hint="it must be submitted again")
            check_allowed(self._settings, record.job, by_peer=True)
            check_budget(self._settings, record.job)
            by = self._consents.decide(record.job, record.submitter, manifest).by
            said = self._hear_yes(job_id, person, note) if by == "two" else [Yes(person or OWNER, "", utc_now(), note)]
            if by == "two" and len(said) < NEEDED:
                log.info("one person has approved the job, a second one must", job=job_id, peer=record.submitter)
                return record
            self._works.check_room(record.submitter, serves=record.is_service, stored=True)
            failpoints.reach("decide")
            notes = "; ".join(f"{each.person}: {each.note}" if len(said) > 1 else each.note for each in said if each.note)
            answer = self._consents.answer(manifest, "approve", "persons", notes, [each.person for each in said])
            record = self._store.update(record, answer, state="waiting")
            log.info("job approved", job=job_id, peer=record.submitter, digest=manifest.digest)
            failpoints.reach("decided")
            self._works.begin(record)
        return record

    def _hear_yes(self, job_id: str, person: str | None, note: str) -> list[Yes]:
        """Keep that ``person`` says yes; returns that of all who have. Raises UsageError (``E_PERSON``)."""
        earlier, command = self._consents.said_yes(job_id), "vfl-node approve JOB DIGEST"
        said = hear_yes(self._people, earlier, person, note, to=f"job {job_id}", command=command)
        if len(said) < NEEDED:
            self._consents.keep_yes(job_id, said[-1])
        return said

    def _wait_for(self, record: Record, manifest: Manifest) -> dict[str, Any]:
        """Who must say yes to a job, and who has."""
        try:
            by: By = self._consents.decide(record.job, record.submitter, manifest).by
        except PolicyError:
            by = "nobody"
        return {"by": by, "yes": [each.person for each in count_yes(self._people, self._consents.said_yes(record.id))]}

    def refuse(self, job_id: str, reason: str, note: str = "", person: str | None = None) -> Record:
        """Refuse a job. Its other parties are told the reason, and not the note. ``person``: as in :meth:`approve`.

        Raises:
            UsageError: the job does not wait for the owner (``E_NOT_ASKED``), or this is no reason (``E_REQUEST``).
            StateError: the answer cannot be stored.
        """
        if reason not in (reasons := [each.value for each in RefusalReason]):
            raise UsageError(f"a reason is one of {', '.join(reasons)}", code="E_REQUEST")
        with self._works.beginning():
            record = self._asked(job_id)
            return self._end(record, self._manifest(record), reason, note, [person or OWNER])

    def expire(self) -> None:
        """Refuse the jobs whose owner has not answered in time. Those with a damaged manifest stay. Raises StateError."""
        with self._works.beginning():
            for record in self._store.standing("asked"):
                try:
                    manifest = self._manifest(record)
                except VflError as error:  # the owner sees it among those asked about, and can cancel it
                    log.warning("a job that waits for the owner cannot be read", job=record.id, code=error.code)
                    continue
                if manifest.has_expired():
                    self._end(record, manifest, "time", "nobody has answered in time")

    def _end(self, record: Record, manifest: Manifest, reason: str, note: str, persons: Sequence[str] = ()) -> Record:
        failpoints.reach("decide")
        refused = {"state": "cancelled", "finished": utc_now(), "code": REFUSED, "message": owner_refusal(reason)}
        record = self._store.update(record, self._consents.answer(manifest, "refuse", "persons", note, persons), **refused)
        log.info("job refused by the owner", job=record.id, peer=record.submitter, reason=reason)
        failpoints.reach("decided")
        return conclude(self._settings, self._store, record)

    def _asked(self, job_id: str) -> Record:
        record = self._store.record(job_id)
        if record.state != "asked":
            hint = "vfl-node asks lists the jobs that do"
            raise UsageError(f"job {job_id} does not wait for you ({record.state})", code="E_NOT_ASKED", hint=hint)
        return record

    def _manifest(self, record: Record) -> Manifest:
        manifest = self._consents.manifest(record.id)
        if manifest is None:
            raise UsageError(f"job {record.id} has no manifest: it is of an earlier version", code="E_NO_MANIFEST")
        return manifest

    def _describe_ask(self, record: Record) -> dict[str, Any]:
        ask = {"id": record.id, "name": record.name, "submitter": record.submitter, "submitted": record.submitted}
        try:
            manifest = self._manifest(record)
        except VflError as error:
            return ask | {"purpose": None, "digest": None, "expires": None, "by": None, "yes": [], "error": error.message}
        purpose = manifest.purpose and peer_text(manifest.purpose, 200)
        said = {"purpose": purpose, "digest": manifest.digest, "expires": manifest.expires.isoformat(), "error": None}
        return ask | said | self._wait_for(record, manifest)
