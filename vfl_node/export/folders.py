"""A party's half, from the folder in which a job has left its model and its report."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vfl_node.configuration.registry import load
from vfl_node.data.stored import rows_of
from vfl_node.errors import StateError
from vfl_node.halves.graph import export_error
from vfl_node.halves.half import About, OwnHalf, result_of
from vfl_node.job import Job, parse_job
from vfl_node.models import NONE_DECLARED, storage
from vfl_node.report.stored import read_report
from vfl_node.settings.node import role_in
from vfl_node.training.predictor import StoredModel, predictor_of

if TYPE_CHECKING:
    from torch import Tensor

MODEL = "model.safetensors"


def job_in(report: Mapping[str, Any]) -> Job:
    """The job of a report. Raises UsageError: this version cannot read it any more."""
    return parse_job(json.dumps(report["job"]["spec"]), source="the job of the report")


def read_trained(folder: Path) -> dict[str, Any]:
    """The report of a training at one party. Raises UsageError: there is none (``E_FILE``), or it is another one."""
    report = read_report(folder)
    if {"party", "role", "job", "training", "finished"} - report.keys() or not isinstance(report["job"], dict):
        raise export_error(f"report.json in {folder} is of no training", "name a folder that a job has left")
    return report


def open_folder(folder: Path, models: Mapping[str, str] = NONE_DECLARED) -> tuple[OwnHalf, dict[str, Any]]:
    """The half, and the report of its party.

    Args:
        folder: with ``model.safetensors`` and ``report.json``: of a job of a node, or of one party of ``vfl-node run``.
        models: name → ``module:Class`` of this node's settings.

    Raises:
        UsageError: there is no report, or no half that can be exported (``E_EXPORT``); this node no longer has the model
            (``E_EXTENSION``).
        StateError: the half is damaged (``E_STATE_CORRUPT``), or another version stored it (``E_STATE_VERSION``).
    """
    report = read_trained(folder)
    job, party = job_in(report), str(report["party"])
    if not (folder / MODEL).exists():
        raise export_error(
            f"{party} has no half of a model in {folder}", "name a job that has trained one, at a party with data"
        )
    weights, head = storage.load(folder / MODEL)
    if head.get("manifest_digest") != job.digest():
        hint = "restore the folder from a backup, or train again"
        raise StateError(f"{MODEL} and report.json in {folder} are of two jobs", code="E_STATE_CORRUPT", hint=hint)
    return make_half(job, str(report["job"]["id"]), party, weights, head, models), report


def make_half(
    job: Job,
    job_id: str,
    party: str,
    weights: Mapping[str, Tensor],
    head: Mapping[str, str],
    models: Mapping[str, str] = NONE_DECLARED,
) -> OwnHalf:
    """The half of ``party``.

    Args:
        job: that trained it.
        job_id: of that run.
        party: whose half it is.
        weights: of it.
        head: as :meth:`vfl_node.training.trainer.Trained.head`.
        models: name → ``module:Class`` of this node's settings.

    Raises:
        UsageError: as :func:`open_folder`.
        StateError: likewise.
    """
    place = job.train.parts.exported if job.train else ""
    if not place:
        trainer = job.train.algorithm if job.train else "none"
        raise export_error(f"halves of trainer {trainer!r} are not exported", "train by split, linear, logistic or hidden")
    model = StoredModel(job.choose(head.get("trial")), weights, head["encoder"], head.get("scoring", ""), models)
    kind: Callable[[About, StoredModel], OwnHalf] = load(place, what="the half of a model")
    assert job.train is not None
    about = replace(
        describe_half(job, job_id, party),
        reads=dict(predictor_of(job.train).column_kinds(head["encoder"])),
        classes=tuple(json.loads(head.get("classes", "[]"))),
        rows=rows_of(head["encoder"]),
    )
    return kind(about, model)


def describe_half(job: Job, job_id: str, party: str) -> About:
    """What any party knows of the half of ``party``: all but ``width``, ``reads``, ``classes`` and ``rows``."""
    role = str(role_in(job.parties, party))
    predicts = role == job.label_holder
    return About(
        party=party,
        role=role,
        job=job_id,
        manifest_digest=job.digest(),
        others=job.parties.others(party) if predicts else (),
        gives=result_of(job, predicts=predicts),
        width=0,
        reads={},
        id_form=job.align.id_form,
        task=job.task,
        classes=(),
        threshold=job.evaluate.threshold,
    )
