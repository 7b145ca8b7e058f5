"""A node's jobs of predictions: for each of them the job that trained its model, and what that has left, from the node's store.

The prediction service itself is :mod:`vfl_node.prediction`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vfl_node.data.named import data_of
from vfl_node.data.stored import rows_of
from vfl_node.data.tables import Table
from vfl_node.errors import PeerError, StateError
from vfl_node.execution.folder import JobFolder
from vfl_node.job import Job
from vfl_node.node.peers import Peers
from vfl_node.node.record import Record
from vfl_node.node.store import Store
from vfl_node.prediction import jobs, models
from vfl_node.prediction import records as given
from vfl_node.prediction.jobs import predict_of
from vfl_node.prediction.models import Model
from vfl_node.prediction.play import Coordinating, Predicting, report_predictions
from vfl_node.prediction.records import Records, numbers_read, read_records
from vfl_node.prediction.requests import Requests
from vfl_node.process.machine import utc_now
from vfl_node.report import envelope, page
from vfl_node.session.memory import join_memories
from vfl_node.settings.declared import Declared
from vfl_node.settings.node import Settings
from vfl_node.training.prediction.stored import FileTally, StoredPredictor
from vfl_node.training.predictor import predictor_of

MOST_ASKED = 32
"""Models that are remembered between requests."""


def trained_by(store: Store, job_id: str) -> tuple[Record, StoredPredictor]:
    """The job that trained a model, and what was stored with the model.

    Raises:
        StateError: no model of that job is stored (``E_NO_MODEL``).
    """
    record = store.get(job_id)
    stored = store.job_folder(record).predictor if record else None
    if record is None or stored is None:
        raise StateError(
            f"no model of job {job_id} is kept here for predictions",
            code="E_NO_MODEL",
            hint="train it in a job that says serve: {to: …}; all nodes then keep what they need",
            for_peer="it keeps no model of that job for predictions",
        )
    return record, stored


def trained_with(store: Store, job: Job, own: str) -> Job | None:
    """The job that trained the model by which ``job`` predicts, as ``own`` has it; None if it makes no predictions.

    A coordinator has no part of the model, but remembers the job.

    Raises:
        StateError: this party knows no such job, or has kept nothing of it (``E_NO_MODEL``).
    """
    if job.predict is None:
        return None
    model = job.predict.model
    if own in job.parties.data:
        return trained_by(store, model)[0].job
    record = store.get(model)
    if record is None or record.state != "done":
        raise StateError(
            f"this node has coordinated no job {model} to its end, or has pruned it",
            code="E_NO_MODEL",
            hint="ask by a model that was trained with this coordinator, or train again; a coordinator keeps its jobs as long "
            "as retention says",
            for_peer="it does not remember the training of that model",
        )
    return record.job


def check(store: Store, job: Job, offered_by: str, own: str) -> None:
    """As :func:`vfl_node.prediction.jobs.check`, of a job that predicts by a model of this node."""
    trained = trained_with(store, job, own)
    assert trained is not None
    jobs.check(job, trained, offered_by, own)


def job_for(store: Store, model: str, asker: str, *, new: bool) -> Job:
    """As :func:`vfl_node.prediction.jobs.job_for`, by the model that job ``model`` of this node has trained.

    Raises:
        StateError: no model of that job is kept here (``E_NO_MODEL``).
    """
    return jobs.job_for(trained_by(store, model)[0].job, model, asker, new=new)


def supersede(store: Store, job: Job) -> None:
    """Before ``job`` begins, remove the services like it that failed without an answer: at most one of them stays.

    A peer that breaks off each conversation would otherwise leave a record for each request of the owner.

    Raises:
        StateError: the index cannot be read or written.
    """
    if not job.is_service:
        return
    spec = job.canonical()
    for record in store.records():
        if record.spec == spec and record.state == "failed" and record.over and not store.has_report(record):
            store.remove(record)


def prepare(
    settings: Settings, store: Store, job: Job, folder: JobFolder, requests: Requests | None
) -> tuple[Table | None, Predicting | Coordinating]:
    """This party's table for a job of predictions, and what else it brings; known records are those of the training.

    Raises:
        StateError: the model is gone (``E_NO_MODEL``), or the records have changed since training (``E_INPUT_CHANGED``).
        DataError: the table cannot be used.
    """
    predict = predict_of(job)
    if settings.role == "coordinator":
        trained = trained_with(store, job, settings.name)
        assert trained is not None
        return None, Coordinating(trained)
    model = load_model(store, predict.model, settings)
    if predict.rows == "known":
        memory = join_memories([store.partner(name) for name in job.parties.others(settings.name)])
        return models.records_of(model, settings, memory), Predicting(model, requests, None)
    if settings.name == job.asker:
        if (request := folder.request) is None:
            raise StateError("the file of records to predict is gone", code="E_STATE_LOST", hint="ask again")
        asked = read_request(settings, store, job, request)
        return asked.table, Predicting(model, None, asked)
    kinds = predictor_of(model.job.train).column_kinds(model.stored.encoder)
    numbers, rows = numbers_read(model.job, trained_by(store, predict.model)[1], job), rows_of(model.stored.encoder)
    source = data_of(settings, model.job)
    records = read_records(settings, model.job, kinds, source, all_columns=True, rows=rows, numbers=numbers)
    return records.table, Predicting(model, None, None)


def read_request(settings: Settings, store: Store, job: Job, request: bytes) -> Records:
    """As :func:`vfl_node.prediction.records.read_request`."""
    record, stored = trained_by(store, predict_of(job).model)
    kinds = given.kinds_read(record.job, stored, job)
    return given.read_request(settings, record.job, stored, job, request, kinds)


@dataclass(frozen=True)
class AskedModel:
    """What requests of this node's owner for predictions by one model have in common.

    Attributes:
        changes: of the store, before it was looked up.
        folder: of the job that trained it.
        stamp: of what that has kept.
        job: that answers them.
        trained: the job that trained it.
        stored: what it has kept.
        kinds: column → what is declared of it, of those that are read.
    """

    changes: int
    folder: JobFolder
    stamp: tuple[int, ...] | None
    job: Job
    trained: Job
    stored: StoredPredictor
    kinds: Mapping[str, Declared]


class AskedModels:
    """The models that this node's owner asks, each looked up again when it was trained or kept anew, or is gone."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings, self._store = settings, store
        self._found: dict[tuple[str, bool], AskedModel] = {}

    def find(self, model: str, *, new: bool) -> AskedModel:
        """The model of the job of this id, and the job that answers for known records, or for ``new`` ones.

        Raises:
            VflError: as :func:`job_for` and :func:`check`; or there is no such job (``E_UNKNOWN_JOB``).
        """
        changes, found = self._store.changes, self._found.get((model, new))
        if found is None or found.changes != changes or found.folder.predictor_stamp != found.stamp:
            record, own = self._store.record(model), self._settings.name
            folder = self._store.job_folder(record)
            stamp = folder.predictor_stamp
            job = job_for(self._store, model, own, new=new)
            check(self._store, job, own, own)
            _, stored = trained_by(self._store, model)
            kinds = given.kinds_read(record.job, stored, job)
            self._found = dict(list(self._found.items())[1 - MOST_ASKED :])
            found = self._found[model, new] = AskedModel(changes, folder, stamp, job, record.job, stored, kinds)
        return found

    def read(self, asked: AskedModel, request: bytes) -> Records:
        """The records that a request names. Raises DataError."""
        return given.read_request(self._settings, asked.trained, asked.stored, asked.job, request, asked.kinds)


def load_model(store: Store, model: str, settings: Settings) -> Model:
    """As :func:`vfl_node.prediction.models.load_model`, of job ``model``; also if none is kept here (``E_NO_MODEL``)."""
    record, stored = trained_by(store, model)
    return models.load_model(settings, record.job, store.job_folder(record), stored)


def account(settings: Settings, store: Store, record: Record) -> None:
    """Report what a service exchanged if it ended without a report; nothing happens for other jobs.

    Args:
        settings: of this party.
        store: of its jobs.
        record: a job that is over.

    Raises:
        StateError: the count is damaged (``E_STATE_CORRUPT``).
        UsageError: the job that trained the model is gone (``E_UNKNOWN_JOB``), or what predicts by it is (``E_EXTENSION``).
    """
    folder = store.job_folder(record)
    count = None if folder.sealed else FileTally(folder.path).read()
    if count is None:
        return
    protection = settings.protection_under(settings.limits_for(record.job))
    predictor = predictor_of(store.record(predict_of(record.job).model).job.train)
    report = envelope.build(
        job=record.job,
        job_id=record.id,
        party=settings.name,
        alignment=None,
        align_seconds=None,
        records=None,
        protection=protection,
        traffic={},
        training=None,
        predictions=report_predictions(predictor, record.job, settings.name, count, protection),
        started=record.submitted,
        finished=utc_now(),
        versions=envelope.installed_versions(),
    )
    page.write(report, folder.artefacts)
    folder.seal()


def check_coordinator(job: Job, peers: Peers) -> None:
    """Raise PeerError (``E_COORDINATOR``) if predictions need a coordinator that is away."""
    name = job.parties.coordinator
    if name and not peers.online(name):
        raise PeerError(
            f"the coordinator is away, which deals the randomness of these predictions: {peers.describe(name)}",
            code="E_COORDINATOR",
            hint=f"ask again when {name} is up",
        )
