"""Predictions by a model that an earlier job trained: the model, the jobs that predict by it, and what their owner asks.

A job with ``predict`` is a job like any other: all nodes hold it, wait for each other and go on after a restart. With
``rows: known`` it is a service that runs until it is cancelled, and the owner's requests are answered one after the other in
one conversation. With ``rows: new`` it intersects a file of new records with the peers' tables, predicts once, and ends.

What predicts, and what each party learns by it, is the trainer's :class:`~vfl_node.training.serving.Predictor`; the requests
are in :mod:`vfl_node.execution.requests`.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from vfl_node.data.named import data_of, table_name
from vfl_node.data.tables import Table
from vfl_node.errors import DataError, StateError, UsageError
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.inputs import read_input, read_records, taking_part
from vfl_node.execution.requests import Records, Requests
from vfl_node.execution.serving import FileTally, Model, Predicting, reported
from vfl_node.execution.stored_serving import Serving
from vfl_node.job import Align, Expected, Job, Predict, differing_fields
from vfl_node.models import storage
from vfl_node.node.record import Record
from vfl_node.node.store import Store
from vfl_node.process.machine import now
from vfl_node.report import envelope, page
from vfl_node.session.memory import Memory, joint
from vfl_node.settings.node import Data, Settings
from vfl_node.training.serving import StoredModel, check_allowed, check_known, predictor_of


def trained_by(store: Store, job_id: str) -> tuple[Record, Serving]:
    """The job that trained a model, and what was stored with the model.

    Raises:
        StateError: no model of that job is stored (``E_NO_MODEL``).
    """
    record = store.get(job_id)
    serving = store.job_folder(record).serving if record else None
    if record is None or serving is None:
        raise StateError(
            f"no model of job {job_id} is kept here for predictions",
            code="E_NO_MODEL",
            hint="train it in a job that says serve: {to: …}; all nodes then keep what they need",
            for_peer="it keeps no model of that job for predictions",
        )
    return record, serving


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
            "as keep_days and keep_jobs say",
            for_peer="it does not remember the training of that model",
        )
    return record.job


def check(store: Store, job: Job, offered_by: str, own: str) -> None:
    """Refuse a job of predictions that is impossible or that the training job does not allow, before it begins.

    Args:
        store: of this node.
        job: that predicts.
        offered_by: the party from which this node hears of it; itself where its owner submits it.
        own: this party's name.

    Raises:
        StateError: no model of that job is kept here (``E_NO_MODEL``).
        UsageError: other parties trained it, another one submits than asks, the model predicts no known records, or the job
            is not :func:`job_for`'s (``E_PREDICT``).
        PolicyError: the training job names another party that may ask (``E_PREDICT``).
    """
    predict = _predict(job)
    trained = trained_with(store, job, own)
    assert trained is not None
    if trained.parties.data != job.parties.data:
        raise UsageError(
            f"job {predict.model} was trained by {', '.join(trained.parties.data)}, and only they can predict by it",
            code="E_PREDICT",
            for_peer="other parties trained that model",
        )
    check_allowed(job, trained.serve)
    if predict.rows == "known":
        check_known(trained)
    if own in job.parties.data and offered_by != _heard_from(job, own):
        raise UsageError(
            f"{offered_by} cannot have predictions made for {job.asker}",
            code="E_PREDICT",
            hint="whoever gets them asks for them",
            for_peer="predictions are asked for by the party that gets them",
        )
    agreed = _job(trained, predict)
    if others := differing_fields(job.field_digests(), agreed.field_digests()):
        reason = f"its {', '.join(others)} must be as the training says"
        raise UsageError(
            f"job {job.name!r} cannot predict by the model of job {predict.model}: {reason}",
            code="E_PREDICT",
            hint="`vfl-node predict` makes the job",
            for_peer=reason,
        )


def _heard_from(job: Job, own: str) -> str:
    """The party from which ``own`` hears of a job: the asker, or the active party for one with whom it does not talk."""
    asker = str(job.asker)
    return asker if asker in (own, *job.parties.met_by(own)) else job.parties.active


def job_for(store: Store, model: str, asker: str, *, new: bool) -> Job:
    """The job by which the party ``asker`` gets predictions of the model that job ``model`` trained.

    Known records keep the model's alignment. New ones are intersected, with all records of all, whatever the
    training did, since of a record that a party lacks each job would have other synthetic columns: by the protocol of the
    training if it gives each party every row, else by psi.

    Raises:
        StateError: no model of that job is kept here (``E_NO_MODEL``).
    """
    record, _ = trained_by(store, model)
    to = record.job.parties.called(asker)
    return _job(record.job, Predict(model=model, to=to, rows="new" if new else "known"))


def _job(trained: Job, predict: Predict) -> Job:
    """The only job that predicts in this way by the model of ``trained``; nothing in it is left to its submitter."""
    align = trained.align
    if align.spec.every_row_is_shared:
        intersect = align.model_copy(update={"at_most": None, "expect": Expected()})
    else:
        intersect = Align(protocol="psi", group=align.group, id_form=align.id_form, padding=align.padding)
    coordinated = trained.train is not None and trained.train.serves_coordinated
    return Job(
        name=f"{trained.name[:55].rstrip('-')}-predict",
        parties=trained.parties if coordinated else trained.parties.model_copy(update={"coordinator": None}),
        tables=trained.tables,
        align=intersect if predict.rows == "new" else align,
        predict=predict,
    )


def supersede(store: Store, job: Job) -> None:
    """Before ``job`` begins, remove the services like it that failed without an answer: at most one of them stays.

    A peer that breaks off each conversation would otherwise leave a record for each request of the owner.

    Raises:
        StateError: the index cannot be read or written.
    """
    if not job.is_service:
        return
    spec = job.canonical()
    for record in store.all():
        if record.spec == spec and record.state == "failed" and record.over and not store.has_report(record):
            store.remove(record)


def prepare(
    settings: Settings, store: Store, job: Job, folder: JobFolder, requests: Requests | None
) -> tuple[Table, Predicting]:
    """This party's table for a job of predictions, and what else it brings; known records are those of the training.

    Raises:
        StateError: the model is gone (``E_NO_MODEL``), or the records have changed since training (``E_INPUT_CHANGED``).
        DataError: the table cannot be used.
    """
    predict = _predict(job)
    model = load_model(store, predict.model, settings)
    if predict.rows == "known":
        memory = joint([store.partner(name) for name in job.parties.others(settings.name)])
        return _unchanged(settings, model, memory), Predicting(model, requests, None)
    if settings.name == job.asker:
        if (request := folder.request) is None:
            raise StateError("the file of records to predict is gone", code="E_STATE_LOST", hint="ask again")
        asked = read_request(settings, store, job, request)
        return asked.table, Predicting(model, None, asked)
    kinds = predictor_of(model.job.train).column_kinds(model.stored.encoder)
    records = read_records(settings, model.job, kinds, data_of(settings, model.job), all_columns=True)
    return records.table, Predicting(model, None, None)


def read_request(settings: Settings, store: Store, job: Job, request: bytes) -> Records:
    """Read a request of this node's owner, as :func:`read_records`; errors do not name the temporary file."""
    predict = _predict(job)
    record, serving = trained_by(store, predict.model)
    new = predict.rows == "new"
    of_training = job.asker == job.parties.active and not new  # its own columns, then, and no others
    kinds = {} if of_training else predictor_of(record.job.train).column_kinds(serving.encoder)
    with tempfile.NamedTemporaryFile(dir=store.requests) as file:
        file.write(request)
        file.flush()
        source = Data(path=Path(file.name), id=data_of(settings, record.job).id)
        try:
            records = read_records(settings, record.job, kinds, source, all_columns=new)
            return replace(records, classes=serving.classes, threshold=record.job.evaluate.threshold)
        except DataError as error:
            message = error.message.replace(file.name, "the records to predict")
            raise DataError(message, code=error.code, hint=error.hint) from None


def _unchanged(settings: Settings, model: Model, memory: Memory) -> Table:
    """The records that the model was trained on, as the training job selects them."""
    table = taking_part(read_input(settings, model.job), model.job.align, memory, settings.limits, settings.name)
    before, after = model.input_digest.hex(), table.digest().hex()
    if before != after:
        raise StateError(
            f"the table has changed since job {model.job.name} trained on it (digest {before[:12]}…, now {after[:12]}…)",
            code="E_INPUT_CHANGED",
            hint="put the original file back (and state/partners, where align.at_most took a part of it); "
            "new records are predicted with --align",
            for_peer="its table has changed since training",
        )
    return table


def _predict(job: Job) -> Predict:
    assert job.predict is not None
    return job.predict


def load_model(store: Store, model: str, settings: Settings) -> Model:
    """The half of the model of job ``model`` that this node has.

    Raises:
        StateError: there is none (``E_NO_MODEL``), or it is not whole (``E_STATE_LOST``, ``E_STATE_CORRUPT``), or
            another version stored it (``E_STATE_VERSION``).
        UsageError: this node no longer has its architecture (``E_EXTENSION``).
    """
    record, serving = trained_by(store, model)
    folder = store.job_folder(record)
    aligned = folder.load_alignment(record.job.parties.others(settings.name))
    if aligned is None:
        hint = "restore it from a backup, or train again"
        raise StateError(f"the alignment of job {model} is gone", code="E_STATE_LOST", hint=hint)
    weights, _ = storage.load(folder.artefact("model.safetensors"))
    table = table_name(settings, record.job)
    stored = StoredModel(record.job, weights, serving.encoder, serving.serving, settings.models, table)
    predictor_of(record.job.train).check(stored)
    return Model(stored, aligned[0], bytes.fromhex(serving.input), folder.shown)


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
    served = None if folder.sealed else FileTally(folder).read()
    if served is None:
        return
    predictor = predictor_of(store.record(_predict(record.job).model).job.train)
    report = envelope.build(
        job=record.job,
        job_id=record.id,
        party=settings.name,
        alignment=None,
        align_seconds=None,
        records=None,
        protection=settings.protection,
        traffic={},
        training=None,
        predictions=reported(predictor, record.job, settings.name, served, settings.protection),
        started=record.submitted,
        finished=now(),
        versions=envelope.installed_versions(),
    )
    page.write(report, folder.artefacts)
    folder.seal()
