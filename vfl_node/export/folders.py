"""A party's half, from the folder in which a job has left its model and its report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vfl_node.errors import StateError, UsageError
from vfl_node.export.graph import export_error
from vfl_node.export.halves import About, Half, result_of
from vfl_node.job import Job, parse_job
from vfl_node.models import NONE_DECLARED, storage
from vfl_node.report.stored import read_report
from vfl_node.training.glm.config import GeneralisedLinear
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.predictor import predictor_of
from vfl_node.training.split.config import Train

MODEL = "model.safetensors"


def job_in(report: Mapping[str, Any]) -> Job:
    """The job of a report. Raises UsageError: this version cannot read it any more."""
    return parse_job(json.dumps(report["job"]["spec"]), source="the job of the report")


def open_folder(folder: Path, models: Mapping[str, str] = NONE_DECLARED) -> tuple[Half, dict[str, Any]]:
    """The half, and the report of its party.

    Args:
        folder: with ``model.safetensors`` and ``report.json``: of a job of a node, or of one party of ``vfl-node run``.
        models: name → ``module:Class`` of this node's settings.

    Raises:
        UsageError: there is no report, or no half that can be exported (``E_EXPORT``); this node no longer has the model
            (``E_EXTENSION``).
        StateError: the half is damaged (``E_STATE_CORRUPT``), or another version stored it (``E_STATE_VERSION``).
    """
    report = read_report(folder)
    job, party = job_in(report), str(report["party"])
    if not (folder / MODEL).exists():
        raise export_error(
            f"{party} has no half of a model in {folder}", "name a job that has trained one, at a party with data"
        )
    weights, head = storage.load(folder / MODEL)
    if head.get("manifest_digest") != job.digest():
        hint = "restore the folder from a backup, or train again"
        raise StateError(f"{MODEL} and report.json in {folder} are of two jobs", code="E_STATE_CORRUPT", hint=hint)
    about = _about(job, report, head)
    encoder, train = head["encoder"], job.train
    if isinstance(train, GeneralisedLinear | Hidden):
        from vfl_node.export.additive_half import open_additive

        return open_additive(about, job, weights, encoder), report
    if not isinstance(train, Train):
        trainer = train.algorithm if train else "none"
        raise export_error(f"halves of trainer {trainer!r} are not exported", "train by split, linear, logistic or hidden")
    if "scoring" not in head:
        raise export_error("an earlier vfl-node stored this half, without what an export needs", "train again")
    from vfl_node.export.split_half import open_split

    return open_split(about, train, weights, encoder, head["scoring"], models), report


def _about(job: Job, report: Mapping[str, Any], head: Mapping[str, str]) -> About:
    train, party, role = job.train, str(report["party"]), str(report["role"])
    if train is None:
        raise export_error("the job has trained no model", "name a job that has")
    try:
        kinds = predictor_of(train).column_kinds(head["encoder"])
    except UsageError:
        raise export_error(f"halves of trainer {train.algorithm!r} are not exported", "train by another one") from None
    others = tuple(name for name in job.parties.data if name != party)
    predicts = role == train.label_holder
    part: Any = "embedding" if isinstance(train, Train) else "partial_scores"
    return About(
        party=party,
        role=role,
        job=str(report["job"]["id"]),
        manifest_digest=job.digest(),
        others=others if predicts else (),
        gives=result_of(job, predicts=predicts, part=part),
        width=0,
        reads=dict(kinds),
        id_form=job.align.id_form,
        task=job.task,
        classes=tuple(json.loads(head.get("classes", "[]"))),
        threshold=job.evaluate.threshold,
    )
