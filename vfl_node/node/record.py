"""One job as the index of a node holds it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any

import yaml

from vfl_node.errors import VflError
from vfl_node.job import Job, parse_job
from vfl_node.node.faults import RESUMABLE
from vfl_node.node.states import STANDING, State
from vfl_node.process.machine import utc_now

Documents = Mapping[str, bytes]
"""What is kept with a job in the index, by name."""

NO_DOCUMENTS: Documents = MappingProxyType({})

MANIFEST = "manifest"
"""Name of the job's manifest among them."""

PRIORITY = "priority"
"""Name of its priority at this node, which no other party hears of."""

SCHEDULE = "schedule"
"""Name of the schedule of this node that submitted it."""


def priority_in(documents: Documents) -> int:
    """The priority of the job with these documents; 0 where none was given."""
    return int(documents.get(PRIORITY, b"0"))


@dataclass(frozen=True)
class Record:
    """One job in the index.

    Attributes:
        id: of the job at all its parties.
        name: as its submitter called it.
        submitter: name of the party that submitted it.
        spec: the shared document, canonical JSON.
        state: how far it is.
        attempt: how often this node has begun it.
        submitted: when it came here, ISO 8601.
        finished: when it ended, if it has.
        code: of the error with which it ended, if any.
        message: of that error, for this node's owner.
        hint: what the owner can do about it.
        deaths: how often the process died while it ran this job, since its owner last resumed it.
        figures: what a list shows of its report, JSON; None while there is none.
        person: who submitted it at this node, if that was not its owner.
        damaged: whether its row in the index is damaged; the other fields then say so.
    """

    id: str
    name: str
    submitter: str
    spec: str
    state: State
    attempt: int = 0
    submitted: str = ""
    finished: str | None = None
    code: str | None = None
    message: str | None = None
    hint: str | None = None
    deaths: int = 0
    figures: str | None = None
    person: str | None = None
    damaged: bool = False

    @property
    def resumable(self) -> bool:
        """Whether it stands still only because a peer was lost or a machine refused, and can go on from what is stored."""
        return is_resumable(self.state, self.code)

    @property
    def over(self) -> bool:
        """Whether it never goes on."""
        return self.state not in STANDING and not self.resumable and not self.damaged

    @property
    def open(self) -> bool:
        """Whether it can still be ended: it is under way, or may go on."""
        return not (self.over or self.damaged)

    @cached_property
    def document(self) -> dict[str, Any]:
        """The shared document, also of a job that this version cannot read any more."""
        document: dict[str, Any] = json.loads(self.spec)
        return document

    @property
    def predict(self) -> dict[str, str] | None:
        """The job's section of that name; None where it is no job of predictions."""
        return self.document.get("predict")

    @property
    def is_service(self) -> bool:
        """As :attr:`vfl_node.job.Job.is_service`, also of a job that this version cannot read any more."""
        return (self.predict or {}).get("rows") == "known"

    @property
    def parties(self) -> list[str]:
        """Their names, also of a job that this version cannot read any more."""
        return names_in(self.document)

    @property
    def active(self) -> str:
        """The party that decides how the job ends."""
        return self.parties[0]

    def peer(self, own: str) -> str | None:
        """The peer of ``own`` that submitted the job; None if that was the owner of ``own``."""
        return None if self.submitter == own else self.submitter

    def others(self, own: str) -> list[str]:
        """The parties with which ``own`` has a conversation, in the order of the job: active, passive, coordinator."""
        return list(self.job.parties.peers_of(own))

    @property
    def job(self) -> Job:
        """The shared part of the job."""
        return parse_job(self.spec, source=f"job {self.id}")

    def fail(self, error: VflError) -> Record:
        """This job as it is once it has failed with ``error``."""
        return replace(self, state="failed", finished=utc_now(), code=error.code, message=error.message, hint=error.hint)


def is_resumable(state: str, code: str | None) -> bool:
    """As :attr:`Record.resumable`, of a job in this state that ended with an error of this code."""
    return state == "unconfirmed" or (state == "failed" and code in RESUMABLE)


def names_in(document: dict[str, Any]) -> list[str]:
    """Names of the parties of a job, which is canonical JSON: active, passive, coordinator."""
    parties = document.get("parties", {})
    return [*filter(None, [parties.get("active"), *parties.get("passive", []), parties.get("coordinator")])]


@lru_cache(maxsize=64)
def describe_spec(spec: str) -> dict[str, Any]:
    """A job as all parties have agreed on it (:attr:`Record.spec`), by today's names: as JSON, and without defaults as YAML.

    Of one that this version cannot read any more, json is None, and yaml has it as it was written.
    """
    try:
        job = parse_job(spec, source="the job")
    except VflError:
        document, shown = None, json.loads(spec)
    else:
        document, shown = job.model_dump(mode="json"), job.model_dump(mode="json", exclude_defaults=True)
        if not _says(shown, job):  # a default that depends on other keys
            shown = document
    return {"json": document, "yaml": yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, default_flow_style=None)}


def _says(document: dict[str, Any], job: Job) -> bool:
    """Whether the ``document`` is read as ``job``."""
    try:
        return Job.model_validate(document).canonical() == job.canonical()
    except ValueError:
        return False


def damaged_record(job_id: str) -> Record:
    """What is shown of a job whose row in the index is damaged."""
    return Record(
        id=job_id,
        name=job_id,
        submitter="",
        spec="{}",
        state="failed",
        code="E_STATE_CORRUPT",
        message="its row of the job index is damaged",
        hint="stop the node and restore jobs.sqlite from a backup; the job's folder is as it was",
        damaged=True,
    )
