"""What a node keeps: an index of jobs in SQLite, and one private folder per job and per partner.

SQLite (WAL, synchronous=FULL) holds the index; bulk lies in files that are written to a
temporary name, fsynced and renamed: those of a job in its folder (:mod:`vfl_node.run.folder`).
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, cast

import structlog

from vfl_node import failpoints
from vfl_node.errors import StateError, UsageError
from vfl_node.files import fault, private_file
from vfl_node.job import Job, parse_job
from vfl_node.machine import now
from vfl_node.node.faults import RESUMABLE, explain
from vfl_node.node.index import COLUMNS, Index
from vfl_node.node.partners import Partner
from vfl_node.node.states import UNFINISHED, State
from vfl_node.run.folder import SUMS, JobFolder

log = structlog.get_logger()


@dataclass(frozen=True)
class Record:
    """One job in the index.

    Attributes:
        deaths: of the process while it ran this job, since its owner last had it go on.
        damaged: whether its row is not what was written; the rest stands for that then.
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
    damaged: bool = False

    @property
    def resumable(self) -> bool:
        """Whether it ended only because a peer was lost or a machine refused; what it needs to go on is kept."""
        return self.state == "failed" and self.code in RESUMABLE

    @property
    def over(self) -> bool:
        """Whether it never goes on."""
        return self.state not in UNFINISHED and not self.resumable and not self.damaged

    @property
    def predict(self) -> dict[str, str] | None:
        """The job's section of that name; None where it is no job of predictions."""
        found: dict[str, str] | None = json.loads(self.spec).get("predict")
        return found

    @property
    def is_service(self) -> bool:
        """As :attr:`vfl_node.job.Job.is_service`, also of a job that this version cannot read any more."""
        return (self.predict or {}).get("rows") == "known"

    @property
    def parties(self) -> list[str]:
        """Their names, also of a job that this version cannot read any more."""
        parties = json.loads(self.spec).get("parties", {})
        coordinator = parties.get("coordinator")
        return [*filter(None, [parties.get("active")]), *parties.get("passive", []), *([coordinator] if coordinator else [])]

    @property
    def job(self) -> Job:
        """The shared part of the job."""
        return parse_job(self.spec, source=f"job {self.id}")


class Store:
    """The index of jobs of one node; safe to use from several threads."""

    def __init__(self, folder: Path) -> None:
        """Open or create the store in ``folder``, which becomes private to this user (0700).

        Raises:
            StateError: the folder cannot be written (``E_STATE``), another node uses it
                (``E_STATE_LOCKED``), or the index is damaged or of a newer release (``E_STATE_CORRUPT``,
                ``E_STATE_VERSION``).
        """
        self.folder = folder
        self._lock = threading.RLock()
        self._partners: dict[str, Partner] = {}
        self._unwritten: dict[str, Record] = {}
        self._told: set[str] = set()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
            (folder / "jobs").mkdir(exist_ok=True)
            self._holder = _hold(folder / "lock")
            shutil.rmtree(self.requests, ignore_errors=True)
            self.requests.mkdir(mode=0o700)
            for path in (folder / "jobs.sqlite", *folder.glob("jobs.sqlite-*")):  # SQLite makes the others as the first one is
                private_file(path)
            self._index = Index(folder / "jobs.sqlite")
        except OSError as error:
            raise StateError(
                f"cannot use the state folder {folder}: {error.strerror}",
                code=fault(error).code,
                hint="set state_dir to a folder this user can write, on a disk with room",
            ) from None
        except sqlite3.Error as error:
            raise explain(error) from None

    def check_there(self) -> None:
        """Raises StateError (``E_STATE_LOST``) where the state folder is no longer the one that this node began with."""
        if self._holder < 0:
            return
        try:
            there = os.path.samestat(os.fstat(self._holder), (self.folder / "lock").stat())
        except (FileNotFoundError, NotADirectoryError):
            there = False
        if not there:
            raise StateError(
                f"the state folder {self.folder} is gone",
                code="E_STATE_LOST",
                hint="stop the node, put the folder back, and start it again: its jobs go on",
                for_peer="it cannot reach what it stored",
            )

    @property
    def requests(self) -> Path:
        """Where files lie while they are read; empty whenever the node starts."""
        return self.folder / "requests"

    def close(self) -> None:
        """Close the index and let another node have the folder."""
        with self._lock:
            self._index.close()
            os.close(self._holder)
            self._holder = -1

    def add(self, job: Job, *, submitter: str, job_id: str | None = None, request: bytes | None = None) -> Record:
        """Register a job as waiting.

        Args:
            job: the job.
            submitter: the party that submits it.
            job_id: its id; made from its name where there is none yet.
            request: CSV of the new records that it predicts, if it does.

        Raises:
            StateError: the disk does not take it (``E_DISK_FULL``, ``E_STATE``, …); nothing is left of it then.
        """
        record = Record(
            id=job_id or f"{job.name[:48]}-{secrets.token_hex(4)}",
            name=job.name,
            submitter=submitter,
            spec=job.canonical(),
            state="waiting",
            submitted=now(),
        )
        self.check_there()
        try:
            folder = self.job_folder(record)
            if request is not None:
                folder.keep_request(request)
            self._write(record, "INSERT")
        except (OSError, StateError) as error:
            shutil.rmtree(self.folder / "jobs" / record.id, ignore_errors=True)
            raise error if isinstance(error, StateError) else fault(error) from None
        return record

    def update(self, record: Record, **changes: Any) -> Record:
        """Store ``record`` with ``changes`` and return it.

        Raises:
            StateError: the disk does not take it; it is as it was then.
        """
        changed = replace(record, **changes)
        self._write(changed, "REPLACE")
        return changed

    def pause(self, job_id: str) -> None:
        """Keep that an unfinished job goes on when the node starts again; what has ended meanwhile is left.

        Raises:
            StateError: the disk does not take it.
        """
        with self._lock:
            record = self.get(job_id)
            if record is not None and record.state in UNFINISHED:
                self.update(record, state="paused")

    def end(self, record: Record) -> None:
        """Keep how a job ended: from now on in memory, and on the disk as soon as that takes it. Never raises."""
        with self._lock:
            self._unwritten[record.id] = record
        self.settle()

    def settle(self) -> None:
        """Write what ended while the disk took nothing; what never goes on forgets its secrets then. Never raises."""
        with self._lock:
            for record in list(self._unwritten.values()):
                try:
                    self._write(record, "REPLACE")
                except StateError as error:
                    if record.id not in self._told:
                        self._told.add(record.id)
                        log.warning("a job's end cannot be stored yet", job=record.id, code=error.code, reason=error.message)
                    if record.over and error.code == "E_DISK_FULL":  # which may be all the room that is needed
                        self.job_folder(record).remove_bulk()
                    continue
                self._told.discard(record.id)
                if record.over:
                    self.destroy_secrets(record)

    def get(self, job_id: str) -> Record | None:
        """One job, or None. Raises StateError where the index cannot be read."""
        return next(iter(self._records(job_id)), None)

    def all(self) -> list[Record]:
        """Every job, newest first. Raises StateError where the index cannot be read."""
        return self._records()

    def count(self, submitter: str) -> int:
        """How many jobs that ``submitter`` submitted are kept. Raises StateError where the index cannot be read."""
        with self._lock, self._explained():
            return self._index.count(submitter)

    def unfinished(self) -> list[Record]:
        """Jobs that go on after a restart, oldest first."""
        return [record for record in reversed(self.all()) if record.state in UNFINISHED]

    def prune(self, *, days: float | None, keep: int | None, models: bool = False, dry: bool = False) -> list[str]:
        """Remove jobs that have ended for good, with their folders: reports, models and predictions.

        Unfinished jobs and those that may be resumed stay whatever is asked, and so does a model by which such a job predicts.
        A pruned job's id stays known, so that no peer can have the job begun anew.

        Args:
            days: remove those that ended longer ago; None: none for their age.
            keep: remove all but so many, the newest; None: none for their number.
            models: whether also those whose model is kept for predictions.
            dry: only tell which.

        Returns:
            Their ids.

        Raises:
            StateError: the index cannot be read or written; jobs before that one are gone.
        """
        records = self.all()
        needed = {record.predict["model"] for record in records if record.predict and not record.over}
        over = [record for record in records if record.over and record.id not in needed]
        over = [record for record in over if models or not JobFolder.serves(self.folder / "jobs" / record.id)]
        removed = []
        for place, record in enumerate(over):
            if (keep is not None and place >= keep) or (days is not None and _age_days(record) > days):
                removed.append(record.id)
                if not dry:
                    with self._lock, self._explained():
                        self.check_there()
                        self._index.prune(record.id)
                        self._unwritten.pop(record.id, None)
                    shutil.rmtree(self.folder / "jobs" / record.id, ignore_errors=True)
        return removed

    def pruned(self, job_id: str) -> bool:
        """Whether a job of this id was here and has been pruned."""
        with self._lock, self._explained():
            return self._index.pruned(job_id)

    def job_folder(self, record: Record) -> JobFolder:
        """The private folder of a job."""
        return JobFolder(self.folder / "jobs" / record.id)

    def has_report(self, record: Record) -> bool:
        """Whether a job has left its report."""
        return (self.folder / "jobs" / record.id / "artefacts" / SUMS).exists()

    def destroy_secrets(self, record: Record) -> None:
        """Remove all that a job has left but its artefacts and, where it ended well, what predictions need.

        Never raises: what the disk does not let go of is removed when the node starts again.
        """
        try:
            folder = self.job_folder(record)
            if record.state != "done":
                folder.serve_no_more()
            folder.destroy_secrets()
        except OSError as error:
            log.warning("what a job kept cannot be removed yet", job=record.id, reason=str(error))

    def partner(self, peer: str) -> Partner:
        """What this node remembers of ``peer`` beyond any job; the same object for every job."""
        with self._lock:
            if peer not in self._partners:
                self._partners[peer] = Partner(self.folder / "partners", peer)
            return self._partners[peer]

    def _write(self, record: Record, verb: Literal["INSERT", "REPLACE"]) -> None:
        with self._lock, self._explained():
            self.check_there()
            failpoints.reach("index")
            self._index.put({name: getattr(record, name) for name in COLUMNS}, anew=verb == "INSERT")
            self._unwritten.pop(record.id, None)

    def _records(self, job_id: str | None = None) -> list[Record]:
        with self._lock, self._explained():
            rows = self._index.rows(job_id)
            return [
                self._unwritten.get(found) or (Record(**cast(dict[str, Any], values)) if values else _damaged(found))
                for found, values in rows
            ]

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Says what it means that the index cannot be read or written. Raises StateError."""
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            raise explain(error) from None


def _age_days(record: Record) -> float:
    """How long ago a job ended, in days."""
    ended = datetime.fromisoformat(record.finished or record.submitted)
    return (datetime.now(timezone.utc) - ended).total_seconds() / 86400


def _damaged(job_id: str) -> Record:
    """What is shown of a row that is not what was written."""
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


def _hold(path: Path) -> int:
    """Lock the state folder for this process; the descriptor keeps the lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise UsageError(
            f"the state folder {path.parent} is in use by another node (process {holder})",
            code="E_STATE_LOCKED",
            hint="stop that node, or give this one its own state_dir",
        ) from None
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
    return descriptor
