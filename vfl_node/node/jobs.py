"""What a node's owner does with its jobs: submit them, ask for predictions, cancel them and look at them."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import structlog

from vfl_node.data.named import data_of
from vfl_node.errors import UsageError, VflError
from vfl_node.execution.allowed import check_allowed
from vfl_node.execution.live import AT_REST
from vfl_node.job import Job
from vfl_node.node import predictions
from vfl_node.node.consents import Consents
from vfl_node.node.endings import OWN_WISH
from vfl_node.node.faults import explain
from vfl_node.node.figures import fill_in
from vfl_node.node.listing import needed, select, took_s
from vfl_node.node.reasons import asked_here
from vfl_node.node.record import PRIORITY, SCHEDULE, Record, describe_spec
from vfl_node.node.reuse import check_reuse
from vfl_node.node.safer import MOST_COMPARED, find_safer
from vfl_node.node.spending import check_budget
from vfl_node.node.store import Store
from vfl_node.node.works import Works
from vfl_node.prediction.jobs import predict_of
from vfl_node.prediction.requests import PredictionRequest, Requests
from vfl_node.process import failpoints
from vfl_node.process.files import fault
from vfl_node.report.summary import listed_figures
from vfl_node.settings.node import Settings
from vfl_node.transport.generated.vfl.v1.session_pb2 import Cancel, Notice
from vfl_node.web.wanted import Wanted

log = structlog.get_logger()

NO_FIGURES = listed_figures({})
"""The figures that a list shows for a job without a report."""


class Jobs:
    """All jobs of this node: those that run, those that wait and those that have ended.

    Args:
        settings: the settings of this node.
        store: where its jobs are stored.
        works: the work on jobs that are under way.
    """

    def __init__(self, settings: Settings, store: Store, works: Works) -> None:
        self._settings, self._store, self._works = settings, store, works
        self._consents = Consents(settings, store)
        self._asked = predictions.AskedModels(settings, store)
        self._serving: dict[str, str] = {}  # model → the job that answers for it

    def submit(
        self,
        job: Job,
        *,
        request: bytes | None = None,
        person: str | None = None,
        priority: int = 0,
        job_id: str = "",
        schedule: str = "",
    ) -> Record:
        """Register a job of this node's owner and offer it to the peers.

        Args:
            job: the job.
            request: CSV of the records to predict, for a job that predicts new records; else None.
            person: who submits it here; None: the owner.
            priority: of the job in this node's queue, of which no other party hears.
            job_id: its id; empty: a new one is drawn.
            schedule: that submits it; empty: none does.

        Raises:
            UsageError: the job does not name this node in its role, or names an unknown peer; or this node is a coordinator.
            DataError: this node has no table for the job.
            PeerError: a party has a different version of the protocol (``E_VERSION``).
            VflError: it is a job of predictions that cannot run (:func:`vfl_node.node.predictions.check`); or there was a job
                of this id (``E_JOB_ID``).
        """
        check_allowed(self._settings, job)
        if self._settings.role == "coordinator":
            raise UsageError(
                "this node is a coordinator, which has no data and submits no jobs",
                code="E_ROLE",
                hint=f"have it submitted at {' or '.join((job.parties.active, *job.parties.passive))}",
            )
        data_of(self._settings, job)
        check_budget(self._settings, job)
        check_reuse(self._store, job)
        if job.predict:
            predictions.check(self._store, job, self._settings.name, self._settings.name)
            if job.predict.rows == "new" and request is None:
                raise UsageError(
                    "this job predicts new records, and there are none", hint="vfl-node predict JOB --align --data FILE"
                )
        self._works.check_versions(job)
        self._works.check_coordinator(job)
        with self._works.beginning():
            self._works.check_room(self._settings.name, serves=job.is_service)
            predictions.supersede(self._store, job)
            failpoints.reach("submit")
            if job_id and (self._store.get(job_id) or self._store.pruned_state(job_id)):
                hint = "give the schedule a name that no other party's has; by hand it can run once a minute"
                raise UsageError(f"there was a job {job_id} already", code="E_JOB_ID", hint=hint)
            job_id = job_id or self._store.draw_id(job)
            documents = {**self._consents.submit(job, job_id), PRIORITY: b"%d" % priority}
            documents |= {SCHEDULE: schedule.encode()} if schedule else {}
            record = self._store.add(
                job, submitter=self._settings.name, job_id=job_id, request=request, person=person, documents=documents
            )
            log.info("job submitted", job=record.id)
            self._works.begin(record)
        return record

    def predict(self, model: str, request: bytes) -> PredictionRequest:
        """Ask the service of a model for predictions of known records. A service begins if none runs.

        Args:
            model: id of the job that trained the model.
            request: CSV with the ids of the records.

        Raises:
            UsageError: there is no such job.
            DataError: the request cannot be read.
            VflError: as :meth:`submit`; or too many requests wait (``E_BUSY``).
        """
        asked = self._asked.find(model, new=False)
        records = self._asked.read(asked, request)
        self._works.check_coordinator(asked.job)
        with self._works.beginning():
            return self._service(asked.job).ask(records)

    def predict_new(self, model: str, request: bytes, person: str | None = None) -> Record:
        """Submit a job that aligns the new records of ``request`` and predicts them. Args and errors as :meth:`predict`."""
        asked = self._asked.find(model, new=True)
        self._asked.read(asked, request)
        return self.submit(asked.job, request=request, person=person)

    def cancel(self, job_id: str) -> Record:
        """End a job here and at its peers. If this party has stored its part, ask the active party to end it.

        Raises:
            UsageError: there is no such job, or it has ended.
            StateError: the active party cannot be asked now, and the cancel cannot be stored for later.
        """
        record, work, notice = self._store.record(job_id), self._works.get(job_id), Notice(cancel=Cancel(job_id=job_id))
        if work is not None:
            for peer in work.cancel():
                self._works.tell(peer, notice)
            if work.ended:  # perhaps before the cancel reached it
                work.join()
                ended = self._store.record(job_id)
                return ended if ended.state == "cancelled" else self.cancel(job_id)
            return record
        if not record.open:
            raise UsageError(f"job {job_id} has already ended ({record.state})", code="E_JOB_ENDED")
        if record.active != self._settings.name and self._store.has_report(record):
            self._ask_to_cancel(record, notice)
            return record
        forgotten = self._works.forget(record, OWN_WISH)
        if forgotten is None:  # work on it has begun meanwhile
            return self.cancel(job_id)
        if forgotten.state != "cancelled":
            raise UsageError(f"job {job_id} is done: all parties have stored their parts", code="E_JOB_ENDED")
        for peer in record.others(self._settings.name):
            self._works.tell(peer, notice)
        return forgotten

    def _ask_to_cancel(self, record: Record, notice: Notice) -> None:
        """Ask the active party to end a job of which this party has stored its part. If it is away, ask when it is back.

        Raises:
            VflError: the active party is away, and the cancel cannot be stored.
        """
        told = self._works.tell(record.active, notice)
        try:
            self._store.job_folder(record).cancel()
        except OSError as error:
            if not told:
                raise fault(error) from None
        with suppress(VflError):  # if this fails, for example because the disk is full, the job is resumed later
            # a resumed job asks the active party whether to end; if all parties have stored their parts, it is done instead
            self._works.resume(record.id)

    def views(self) -> list[dict[str, Any]]:
        """All jobs, newest first, in the form that the board and the command line show."""
        return self._view_all(self._store.records())

    def running(self) -> list[dict[str, Any]]:
        """Those that run, in the same form."""
        return self._view_all(self._store.standing("running"))

    def states(self) -> list[str]:
        """The state of every job, newest first."""
        return [line.state for line in self._store.lines({"id", "state"})]

    def find(self, *asked: Wanted) -> list[dict[str, Any]]:
        """For each of ``asked`` one page of the jobs that it asks for.

        Each answer has the ``jobs`` of that page, the ``total`` number of jobs on all pages, and ``counts``: for each kind of
        jobs their number.

        ``safer`` names, for some jobs, comparable earlier jobs in which others could find out less
        (:func:`vfl_node.node.safer.find_safer`).
        """
        lines = self._store.lines(set().union(*map(needed, asked)))
        done = [line.number for line in lines if line.state == "done"]
        safer, found = find_safer(self._store.numbered(done[:MOST_COMPARED])), []
        for wanted in asked:
            chosen = select(lines, wanted)
            records = self._store.numbered([line.number for line in chosen.lines])
            better = {record.id: safer[record.id] for record in records if record.id in safer}
            found.append({"jobs": self._view_all(records), "total": chosen.total, "counts": chosen.counts, "safer": better})
        return found

    def view(self, job_id: str) -> dict[str, Any] | None:
        """One job, with what its parties agreed on and what has happened so far; None if there is no such job."""
        record = self._store.get(job_id)
        if record is None:
            return None
        (view,) = self._view_all([record])
        return view | {"spec": describe_spec(record.spec), "live": self._live(record)}

    def _view_all(self, records: Sequence[Record]) -> list[dict[str, Any]]:
        return [self._view(record) for record in fill_in(self._store, records)]

    def _live(self, record: Record) -> dict[str, Any] | None:
        """What has happened in a job since the node last began it, and the owner's limits; None if it is not in memory."""
        work = self._works.latest(record.id)
        if work is None:
            return None
        attacks = self._settings.limits_for(record.job).attacks
        known = {"labels": attacks.labels, "membership": attacks.rows, "columns": attacks.columns}
        return work.progress.details() | {"limits": known}

    def _service(self, job: Job) -> Requests:
        """The request queue of the service for ``job``.

        It is the service that runs, or else one that can be resumed, or else a new one. If the service ends before a request
        is added, adding it raises the reason.
        """
        model = predict_of(job).model
        work = self._works.get(self._serving.get(model, ""))
        if work and work.requests and not work.ended and not work.requests.closed:
            return work.requests
        spec = job.canonical()
        for record in self._store.records():
            if record.spec == spec and not record.over:
                self._works.resume(record.id)
                work = self._works.get(record.id)
                if work and work.requests and not work.requests.closed:
                    return self._serve(job, record.id, work.requests)
        record = self.submit(job)
        work = self._works.latest(record.id)
        assert work is not None
        assert work.requests is not None
        return self._serve(job, record.id, work.requests)

    def _serve(self, job: Job, job_id: str, requests: Requests) -> Requests:
        """The job of this id answers from now on. What it leaves unanswered another one does."""
        self._serving[predict_of(job).model] = job_id
        requests.ask_again = partial(self._ask_later, job)
        return requests

    def _ask_later(self, job: Job, left: list[PredictionRequest]) -> None:
        """As :meth:`_ask_again`, on a thread of its own: the one of a job that ends may be waited for by who begins one."""
        try:
            threading.Thread(target=self._ask_again, args=(job, left), name="asking again", daemon=True).start()
        except RuntimeError as cause:
            for request in left:
                request.fail(explain(cause))

    def _ask_again(self, job: Job, left: list[PredictionRequest]) -> None:
        """Have the next service for ``job`` answer these requests, or tell whoever waits why none can."""
        try:
            self._works.check_coordinator(job)
            with self._works.beginning():
                self._service(job).add_first(left)
        except Exception as cause:  # noqa: BLE001 - whatever it is, nobody waits for ever
            for request in left:
                request.fail(explain(cause))

    def _view(self, record: Record) -> dict[str, Any]:
        work, document = self._works.get(record.id), record.document
        error = {"code": record.code, "message": record.message, "hint": record.hint} if record.code else None
        live = work.progress.snapshot() if work else AT_REST
        figures = NO_FIGURES | json.loads(record.figures or "{}")
        queue = work.queue if work else asked_here(self._settings.name) if record.state == "asked" else None
        return {
            "id": record.id,
            "name": record.name,
            "purpose": document.get("purpose"),
            "state": record.state,
            "parties": record.parties,
            "submitter": record.submitter,
            "by": record.person,
            "algorithm": (document.get("train") or {}).get("algorithm"),
            "protocol": document.get("align", {}).get("protocol"),
            "attempt": record.attempt,
            "submitted": record.submitted,
            "finished": record.finished,
            "took_s": took_s(record.submitted, record.finished),
            "error": error,
            "resumable": record.resumable,
            "place": work.place if work else 0,
            "queue": queue,
            "time_left_s": work.meter.left_s if work else None,
            "predict": record.predict,
            "report": self._store.has_report(record),
            **figures,
            "leaks": figures["leaks"] or {secret: meter["level"] for secret, meter in live["meters"].items()},
            **live,
        }
