"""What a node stores: an index of jobs in SQLite, and one private folder for each job and each partner.

SQLite (WAL, synchronous=FULL) holds the index. Everything large lies in files of the job's folder
(:mod:`vfl_node.execution.folder`), which are written to a temporary name, fsynced and renamed.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import structlog

from vfl_node.errors import Paused, StateError, UsageError
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.outcome import JobOutcome
from vfl_node.execution.trial import Trial
from vfl_node.job import Job
from vfl_node.node.faults import cannot_use, explaining
from vfl_node.node.index import COLUMNS, Index
from vfl_node.node.lineages import Lineages
from vfl_node.node.listing import JobLine
from vfl_node.node.partners import Partners
from vfl_node.node.pruning import choose
from vfl_node.node.record import NO_DOCUMENTS, Documents, Record, damaged_record
from vfl_node.node.state_lock import LOCK, check_held, hold
from vfl_node.node.states import UNFINISHED, State
from vfl_node.process import failpoints
from vfl_node.process.files import fault, private_file
from vfl_node.process.machine import utc_now
from vfl_node.settings.retention import Retention
from vfl_node.trust.lanes import Signing

log = structlog.get_logger()


class Store:
    """The index of jobs of one node, and its memory of partners; safe to use from several threads.

    Attributes:
        folder: of its state.
        partner: what this node remembers of a peer beyond any job; the same object for every job.
        lineages: which of its tables are about the same records.
        changes: how many there were to the jobs since this was opened; as long as it stays, so does each job.
        on_written: called when a job is written, with it as it was (None: it is new) and as it is; quick, and raises nothing.
    """

    def __init__(self, folder: Path, trial: Trial | None = None, signing: Signing | None = None) -> None:
        """Open or create the store in ``folder``, which becomes private to this user (0700).

        ``trial``: what it belongs to. ``signing``: with which key the node signs its ledgers; None: with none.

        Raises:
            StateError: the folder cannot be written (``E_STATE``), another node uses it
                (``E_STATE_LOCKED``), or the index is damaged or of a newer release (``E_STATE_CORRUPT``,
                ``E_STATE_VERSION``).
        """
        self.folder, self._trial = folder, trial or Trial()
        self._lock = threading.RLock()
        self.partner = Partners(folder / "partners", self._trial, signing).find
        self.lineages = Lineages(folder)
        self._unwritten: dict[str, Record] = {}
        self.on_written: Callable[[Record | None, Record], None] = lambda before, now: None
        self._reported: set[str] = set()
        self.changes = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
            (folder / "jobs").mkdir(exist_ok=True)
            self._holder = hold(folder / LOCK)
            shutil.rmtree(self.requests, ignore_errors=True)
            self.requests.mkdir(mode=0o700)
            for path in (folder / "jobs.sqlite", *folder.glob("jobs.sqlite-*")):  # SQLite makes the others as the first one is
                private_file(path)
            self._index = Index(folder / "jobs.sqlite")
        except (OSError, sqlite3.Error) as error:
            raise cannot_use(folder, error) from None

    def check_there(self) -> None:
        """Check that the state folder is still the one that this node opened. Raises StateError (``E_STATE_LOST``)."""
        if self._holder >= 0:
            check_held(self._holder, self.folder / LOCK)

    def loss(self) -> Paused | None:
        """For what jobs pause, if the state folder is gone: what they did would be lost."""
        try:
            self.check_there()
        except StateError as error:
            return Paused(error.message, code=error.code, hint=error.hint, for_peer=error.for_peer)
        except OSError:
            pass  # it may be there
        return None

    @property
    def requests(self) -> Path:
        """The folder of what lies on the disk for a moment; it is emptied when the node starts."""
        return self.folder / "requests"

    def close(self) -> None:
        """Close the index and let another node have the folder."""
        with self._lock:
            self._index.close()
            os.close(self._holder)
            self._holder = -1

    def draw_id(self, job: Job) -> str:
        """An id for a job that the owner submits."""
        return self._trial.job_id(job.name) or f"{job.name[:48]}-{secrets.token_hex(4)}"

    def add(
        self,
        job: Job,
        *,
        submitter: str,
        job_id: str | None = None,
        request: bytes | None = None,
        person: str | None = None,
        state: State = "waiting",
        documents: Documents = NO_DOCUMENTS,
    ) -> Record:
        """Register a job.

        Args:
            job: the job.
            submitter: the party that submits it.
            job_id: its id; made from its name where there is none yet.
            request: CSV of the new records that it predicts, if it does.
            person: who submits it here, if that is not the owner.
            state: that it is in.
            documents: kept with it, by name.

        Raises:
            StateError: it cannot be written (``E_DISK_FULL``, ``E_STATE``, …); then no trace of the job is left.
            UsageError: a seeded trial has run it already (``E_JOB_ENDED``): its secrets would be those of that run.
        """
        job_id = job_id or self.draw_id(job)
        if self._trial.seeded and self.get(job_id):
            raise UsageError(f"this seeded trial has run job {job_id}", code="E_JOB_ENDED", hint="start another trial")
        record = Record(job_id, job.name, submitter, job.canonical(), state, submitted=utc_now(), person=person)
        self.check_there()
        try:
            folder = self.job_folder(record)
            if request is not None:
                folder.keep_request(request)
            self._write(record, "INSERT", documents)
        except (OSError, StateError) as error:
            shutil.rmtree(self.folder / "jobs" / record.id, ignore_errors=True)
            raise error if isinstance(error, StateError) else fault(error) from None
        return record

    def update(self, record: Record, documents: Documents = NO_DOCUMENTS, **changes: Any) -> Record:
        """Store ``record`` with ``changes`` and more ``documents``, all or nothing, and return it. Raises StateError."""
        changed = replace(record, **changes)
        self._write(changed, "REPLACE", documents)
        return changed

    def keep(self, job_id: str, documents: Documents) -> None:
        """Keep more documents with a job; one of a name that there is stays as it is. Raises StateError."""
        with self._lock, explaining(), self._index.transaction():
            self._index.keep(job_id, documents)

    def documents(self, job_id: str) -> dict[str, bytes]:
        """What is kept with a job, by name. Raises StateError where that is damaged (``E_STATE_CORRUPT``), or as others do."""
        with self._lock, explaining():
            found = dict(self._index.documents(job_id))
        if None in found.values():
            hint = "stop the node and restore jobs.sqlite from a backup"
            raise StateError(f"what is kept with job {job_id} is damaged", code="E_STATE_CORRUPT", hint=hint)
        return cast(dict[str, bytes], found)

    def kept_with(self, name: str, body: bytes) -> list[str]:
        """The ids of the jobs that have a document of this name and body, the last kept first. Raises StateError."""
        with self._lock, explaining():
            return self._index.jobs_with(name, body)

    def standing(self, *states: State, submitter: str | None = None) -> list[Record]:
        """The jobs in one of these states, oldest first; those of one submitter, if it is given. Raises StateError."""
        with self._lock, explaining():
            found = self._read(self._index.standing(*states, submitter=submitter))
        return [record for record in reversed(found) if record.state in states]

    def pause(self, job_id: str) -> None:
        """Store that an unfinished job is to go on when the node starts again; a job that has ended is left as it is.

        Raises:
            StateError: it cannot be written.
        """
        with self._lock:
            record = self.get(job_id)
            if record is not None and record.state in UNFINISHED:
                self.update(record, state="paused")

    def end(self, record: Record) -> None:
        """Store how a job ended: in memory at once, and on the disk as soon as it can be written. Never raises."""
        with self._lock:
            self._unwritten[record.id] = record
            self.changes += 1
        self.settle()

    def settle(self) -> None:
        """Write ends of jobs that could not be written before, and destroy the secrets of jobs that are over. Never raises."""
        with self._lock:
            for record in list(self._unwritten.values()):
                try:
                    self._write(record, "REPLACE")
                except StateError as error:
                    if record.id not in self._reported:
                        self._reported.add(record.id)
                        log.warning("a job's end cannot be stored yet", job=record.id, code=error.code, reason=error.message)
                    if record.over and error.code == "E_DISK_FULL":  # which may be all the room that is needed
                        self.job_folder(record).remove_bulk()
                    continue
                self._reported.discard(record.id)
                if record.over:
                    self.destroy_secrets(record)

    def get(self, job_id: str) -> Record | None:
        """One job, or None. Raises StateError where the index cannot be read."""
        with self._lock, explaining():
            return next(iter(self._read(self._index.rows(job_id))), None)

    def record(self, job_id: str) -> Record:
        """One job.

        Raises:
            UsageError: there is none of this id (``E_UNKNOWN_JOB``).
            StateError: the index cannot be read.
        """
        record = self.get(job_id)
        if record is None:
            raise UsageError(f"no job {job_id!r} here", code="E_UNKNOWN_JOB", hint="`vfl-node jobs` lists them")
        return record

    def records(self) -> list[Record]:
        """Every job, newest first. Raises StateError where the index cannot be read."""
        with self._lock, explaining():
            return self._read(self._index.rows())

    def lines(self, needed: Collection[str]) -> list[JobLine]:
        """What a list of every job is made of, newest first, as far as it is ``needed``. Raises StateError."""
        with self._lock, explaining():
            lines = [JobLine(number, *cast(Any, cells)) for number, cells in self._index.lines(needed)]
            return [line.ended_as(self._unwritten[line.id]) if line.id in self._unwritten else line for line in lines]

    def numbered(self, numbers: Sequence[int]) -> list[Record]:
        """The jobs of these lines, in their order. Raises StateError where the index cannot be read."""
        with self._lock, explaining():
            return self._read(self._index.numbered(numbers))

    def keep_figures(self, found: Mapping[Record, str]) -> None:
        """Store figures of jobs, all at once; of one that has changed meanwhile they are left out. Raises StateError."""
        with self._lock, explaining(), self._index.transaction():
            for record, figures in found.items():
                if record.id not in self._unwritten and self.get(record.id) == record:
                    self._write(replace(record, figures=figures), "REPLACE")

    def count(self, submitter: str) -> int:
        """How many jobs of ``submitter`` are in the index. Raises StateError where the index cannot be read."""
        with self._lock, explaining():
            return self._index.count(submitter)

    def prune(self, limits: Retention, *, models: bool = False, dry: bool = False) -> list[str]:
        """Remove jobs that have ended for good, with their folders: reports, models and predictions.

        Unfinished jobs and those that may be resumed stay, but for unconfirmed ones that are too old; so does a model by which
        such a job predicts. A pruned job's id stays known, so that no peer can have the job begun anew.

        Args:
            limits: those beyond them are removed.
            models: whether a job whose model is kept for predictions is one like the others.
            dry: only tell which.

        Returns:
            Their ids.

        Raises:
            StateError: the index cannot be read or written; jobs before that one are gone.
        """
        chosen = choose(self.records(), self.folder / "jobs", limits, models=models)
        for record in chosen:
            if not dry:
                self.remove(record)
        return [record.id for record in chosen]

    def remove(self, record: Record) -> None:
        """Remove a job that has ended for good, with its folder; its id stays known. Raises StateError."""
        with self._lock, explaining():
            self.check_there()
            self._index.prune(record.id, record.state)
            self._unwritten.pop(record.id, None)
            self.changes += 1
        shutil.rmtree(self.folder / "jobs" / record.id, ignore_errors=True)

    def pruned_state(self, job_id: str) -> State | None:
        """In which state a job of this id was pruned; None if none was."""
        with self._lock, explaining():
            return cast(State | None, self._index.pruned_state(job_id))

    def job_folder(self, record: Record) -> JobFolder:
        """The private folder of a job. Raises OSError."""
        path = self.folder / "jobs" / record.id
        path.mkdir(mode=0o700, exist_ok=True)  # not the state folder, should that be gone
        return JobFolder(path, self._trial)

    def outcome(self, record: Record) -> JobOutcome:
        """How the end of a job stands here; unlike :meth:`job_folder` this makes no folder."""
        return JobOutcome(self.folder / "jobs" / record.id)

    def has_report(self, record: Record) -> bool:
        """Whether a job has left its report."""
        return self.outcome(record).sealed

    def destroy_secrets(self, record: Record) -> None:
        """Remove everything of a job except its artefacts and, if it ended well, what predictions need.

        Never raises: what cannot be removed now is removed when the node starts again.
        """
        try:
            folder = self.job_folder(record)
            if record.state != "done":
                folder.forget_predictor()
            folder.destroy_secrets()
        except OSError as error:
            log.warning("what a job kept cannot be removed yet", job=record.id, reason=str(error))

    def _write(self, record: Record, verb: Literal["INSERT", "REPLACE"], documents: Documents = NO_DOCUMENTS) -> None:
        with self._lock, explaining():
            self.check_there()
            failpoints.reach("index")
            before = [Record(**cast(Any, values)) for _, values in self._index.rows(record.id) if values]
            with self._index.transaction() if documents else nullcontext():
                self._index.put({name: getattr(record, name) for name in COLUMNS}, anew=verb == "INSERT")
                self._index.keep(record.id, documents)
            self._unwritten.pop(record.id, None)
            self.changes += 1
            self.on_written(before[0] if before else None, record)

    def _read(self, rows: list[tuple[str, dict[str, Any] | None]]) -> list[Record]:
        return [
            self._unwritten.get(row_id) or (Record(**values) if values else damaged_record(row_id)) for row_id, values in rows
        ]
