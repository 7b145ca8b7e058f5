"""A node's policy as its owner looks at it and changes it: what holds, what another one would change or have refused."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog

from vfl_node.configuration.models import text_of
from vfl_node.errors import UsageError, VflError
from vfl_node.execution.allowed import check_allowed
from vfl_node.job import Job
from vfl_node.node.consents import Consents
from vfl_node.node.record import Record
from vfl_node.node.store import Store
from vfl_node.process.files import fault, write_whole
from vfl_node.settings.node import Settings
from vfl_node.settings.policy import Asked, Decision, Policy
from vfl_node.settings.policy_view import describe, digest_of, list_differences, read_policy
from vfl_node.trust.people import People

log = structlog.get_logger()


PROPOSED_S = 3600.0
"""How long the first person's wish to change a strict policy waits for a second one."""


@dataclass(frozen=True)
class _Proposal:
    """What the first of two persons wants.

    Attributes:
        digest: SHA-256 of the policy's text.
        person: who.
        mark: of this person's token.
        at: when, monotonic seconds.
    """

    digest: str
    person: str
    mark: str
    at: float


class Policies:
    """The policy of a node that runs: what holds, and how its owner puts another one in its place.

    Args:
        settings: of this node.
        store: its jobs.
        people: who may change a strict policy, two of them together.

    Attributes:
        fault: why the policy's file could not be read again, so that an earlier policy holds; None: it does not.
    """

    def __init__(self, settings: Settings, store: Store, people: People) -> None:
        self._settings, self._store, self._people = settings, store, people
        self._lock = threading.Lock()
        self.fault: VflError | None = None
        self._proposed: _Proposal | None = None

    def show(self) -> dict[str, Any]:
        """As :func:`describe`, of the policy that holds; ``proposed_by``: who wants another one, if two must."""
        proposed = self._find_proposal()
        return describe(self._settings, self._settings.rules) | {"proposed_by": proposed and proposed.person}

    def check(self, text: str) -> dict[str, Any]:
        """What another policy would change (``differences``), and what it says of every stored job (``jobs``).

        Raises:
            UsageError: it is none (``E_CONFIG``, ``E_YAML``).
        """
        policy = read_policy(self._settings, text)
        return {
            "differences": list(list_differences(self._settings, self._settings.rules, policy)),
            "jobs": list(judge_past(self._settings, self._store, policy)),
        }

    def apply(self, text: str, person: str | None = None) -> dict[str, Any]:
        """Put another policy in force, for jobs that begin from now on, and write it into the policy's file.

        Where the policy so far is strict, two persons must send the same one.

        Args:
            text: the policy.
            person: who wants it; None: the owner, over the socket or with the node's token.

        Returns:
            As :meth:`show`, and ``applied``: whether it holds now; False while a second person must send it.

        Raises:
            UsageError: it is no policy (``E_CONFIG``, ``E_YAML``); it does not stand in a file of its own; or two persons must
                say so, and nobody is named (``E_PERSON``).
            StateError: its file cannot be written.
        """
        policy, file = read_policy(self._settings, text), self._settings.in_force.file
        if file is None:
            hint = "move it into a file of its own: policy: policy.yaml"
            raise UsageError("the policy stands in the node's settings, which are not rewritten", code="E_CONFIG", hint=hint)
        with self._lock:
            if self._settings.rules.preset == "strict" and not self._is_second(text, person):
                return self.show() | {"applied": False}
            try:
                write_whole(file, text.encode())
            except OSError as error:
                raise fault(error) from None
            self._enforce(policy)
        return self.show() | {"applied": True}

    def reload(self) -> None:
        """Read the policy's file again; one that is invalid, or gone, changes nothing. Raises no error: it is logged."""
        file = self._settings.in_force.file
        if file is None:
            log.warning("the policy stands in the settings, which are read when the node starts")
            return
        try:
            with self._lock:
                self._enforce(read_policy(self._settings, text_of(file), file.name))
        except VflError as error:
            self.fault = error
            log.error("the policy is not changed", reason=error.message)

    def _enforce(self, policy: Policy) -> None:
        self._settings.in_force.policy = policy
        self._proposed = self.fault = None
        log.info("policy in force", preset=policy.preset, digest=digest_of(policy)[:8])

    def _is_second(self, text: str, person: str | None) -> bool:
        """Whether another person has sent the same policy before; else this one is remembered."""
        if person is None:
            hint = "each with a token of their own: vfl-node policy apply FILE --node HOST:PORT --token-file FILE"
            raise UsageError("two persons must change a strict policy, and nobody is named", code="E_PERSON", hint=hint)
        known = self._people.get(person)
        digest, before = hashlib.sha256(text.encode()).hexdigest(), self._find_proposal()
        if before and before.digest == digest and before.person != person:
            return True
        self._proposed = _Proposal(digest, person, known.mark if known else "", time.monotonic())
        return False

    def _find_proposal(self) -> _Proposal | None:
        """What the first person wants, if that still counts: this person may still, by the same token."""
        wish = self._proposed
        known = self._people.get(wish.person) if wish else None
        counts = (
            wish and known and known.mark == wish.mark and "admin" in known.roles and time.monotonic() < wish.at + PROPOSED_S
        )
        return wish if counts else None


def judge_past(settings: Settings, store: Store, policy: Policy) -> Iterator[dict[str, Any]]:
    """What a policy says of every stored job of a peer, oldest first: {id, name, submitter, ran, by, why, note}.

    Budgets are not counted anew: what is spent is spent. ``by`` is nobody for a job that would be refused; ``note`` says of one
    that came outside the policy's hours that it did.
    """
    under = settings.try_policy(policy)
    for record in reversed(store.records()):
        if record.damaged or record.submitter == settings.name:
            continue
        try:
            job = record.job
        except VflError:  # of a version that cannot be read any more
            continue
        decision = _judge(under, Consents(under, store), job, record)
        about = {"id": record.id, "name": record.name, "submitter": record.submitter, "ran": bool(record.attempt)}
        came = datetime.fromisoformat(record.submitted)
        yield about | {"by": decision.by, "why": decision.line, "note": note_hours(under, job, came)}


def _judge(settings: Settings, consents: Consents, job: Job, stored: Record) -> Decision:
    try:
        check_allowed(settings, job, by_peer=True, loading=False)
        return consents.decide(job, stored.submitter, consents.manifest(stored.id), stored)
    except VflError as error:
        return Decision("nobody", error.message)


def note_hours(settings: Settings, job: Job, now: datetime | None = None) -> str:
    """``outside hours`` where the policy would have a job wait that comes ``now`` (UTC); else nothing."""
    return "" if settings.rules.is_open(job.parties.others(settings.name), now) else "outside hours"


def judge_new(settings: Settings, job: Job, submitter: str) -> Decision:
    """What the policy of ``settings`` says of a job like which none was approved before; nobody is asked about own jobs."""
    own = submitter == settings.name
    try:
        check_allowed(settings, job, by_peer=not own, loading=False)
    except VflError as error:
        return Decision("nobody", error.message)
    return Decision("rule", "this node's own job") if own else settings.rules.decide(Asked(job, settings.name, (submitter,)))
