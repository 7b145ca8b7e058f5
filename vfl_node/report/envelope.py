"""What one party keeps of a job for people and programs: ``report.json`` and ``report.html``.

docs/report.schema.json is its JSON Schema (``python -m vfl_node.report.envelope`` prints it), docs/reference/report.md
explains each key.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib import metadata
from typing import Annotated, Any, Literal, Union

from pydantic import Field, StringConstraints, create_model, model_validator

from vfl_node.alignment.alignment import Alignment
from vfl_node.crypto.kernels import kernel
from vfl_node.data.merged import MergedRows
from vfl_node.job import Job, Name, Parties
from vfl_node.job.training import TRAINERS
from vfl_node.ledger import Disclosure
from vfl_node.report.aligned import describe_sizes
from vfl_node.report.columns import ColumnAudit, ColumnFigures
from vfl_node.report.measured import gains_of, metrics_of
from vfl_node.report.meters import Meters, meters_of
from vfl_node.report.sections import (
    AlignmentSizes,
    CommonFigures,
    EpochFigures,
    Interval,
    JobRun,
    LedgerEntry,
    Metrics,
    PhaseTraffic,
    Predictions,
    TrainingFigures,
    TrainingRows,
    TrialFigures,
    figures_of,
)
from vfl_node.report.verdict import Verdict, verdict_of
from vfl_node.roles import Role
from vfl_node.settings.node import role_in
from vfl_node.settings.protection import Protection
from vfl_node.training.predictor import ReportedPredictions, ServiceCount
from vfl_node.training.section import Section
from vfl_node.training.trainer import Trained
from vfl_node.transport.pipe import Traffic
from vfl_node.version import VERSION

UtcTime = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00$")]

LIBRARIES = ("cryptography", "gmpy2", "grpcio", "numpy", "protobuf", "pydantic", "pynacl", "safetensors", "torch")


class Report(Section):
    """``report.json``."""

    format: Literal[6] = Field(default=6, description="changes when a key changes its meaning")
    job: JobRun
    manifest_digest: str = Field(description="as in job")
    party: Name = Field(description="whose report this is")
    role: Role
    parties: Parties
    started: UtcTime
    finished: UtcTime
    seeded: bool = Field(
        default=False, description="whether all secrets of the run follow from a seed (vfl-node run --seed), for trials only"
    )
    alignment: AlignmentSizes | None = Field(description="null at the coordinator, and for predictions of known records")
    training: TrainingFigures | None = Field(description="null for a job that only aligns, or predicts")
    metrics: Metrics | None = Field(description="of the federated model; null if not shared with this party, or not measured")
    local_metrics: Metrics | None = Field(description="of the active party's own model on the same rows; null without one")
    gains: dict[str, Interval] | None = Field(
        description="federated minus local: repeat by repeat, or on the rows of a single one; null if not known to this party"
    )
    local_aligned_metrics: Metrics | None = Field(
        default=None,
        description="as local_metrics, of the same model trained on aligned rows alone; null where train.unaligned is not used",
    )
    local_aligned_gains: dict[str, Interval] | None = Field(
        default=None, description="federated minus this model, as gains; null without one"
    )
    boosted_tree_metrics: Metrics | None = Field(
        default=None, description="of a boosted tree of the active party alone, on the same rows; null without one"
    )
    boosted_tree_gains: dict[str, Interval] | None = Field(
        default=None, description="federated minus boosted tree, as gains; null without one"
    )
    boosted_tree_note: str | None = Field(
        default=None, description="why the active party has no boosted tree beside its metrics; null elsewhere"
    )
    meters: Meters | None = Field(
        default=None,
        description="what others can tell from what this party sent; null without a training, and at a coordinator",
    )
    verdict: Verdict | None = Field(
        default=None, description="the first things to read; null without a training, and at a coordinator"
    )
    predictions: Predictions | None = Field(description="null for a job without predictions")
    phases: dict[str, PhaseTraffic]
    learnt: dict[Name, tuple[LedgerEntry, ...]] = Field(description="party → what it learnt from the protocols")
    versions: dict[str, str]

    @model_validator(mode="after")
    def _whole(self) -> Report:
        if (self.alignment is None) != (self.role == "coordinator" or self._predicts_known):
            raise ValueError("alignment is null at the coordinator and in predictions of known records, and nowhere else")
        if set(self.learnt) != set(self.parties.all):
            raise ValueError("learnt has one list for each party of the job")
        return self

    @property
    def _predicts_known(self) -> bool:
        """Whether no ids were aligned: the records are those of the training job."""
        predict = self.job.spec.get("predict")
        return isinstance(predict, dict) and predict["rows"] == "known"

    def to_json(self) -> str:
        """Indented JSON with sorted keys; finite numbers only."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def build(
    *,
    job: Job,
    job_id: str,
    party: str,
    alignment: Alignment | None,
    align_seconds: float | None,
    align_warnings: tuple[str, ...] = (),
    reused: str | None = None,
    records: int | None,
    merged: MergedRows | None = None,
    classes: tuple[str, ...] = (),
    protection: Protection,
    traffic: Mapping[str, Traffic],
    training: Trained | None,
    predictions: ReportedPredictions | None = None,
    coordinated: Mapping[str, tuple[Disclosure, ...]] | None = None,
    started: str,
    finished: str,
    versions: Mapping[str, str],
    seeded: bool = False,
) -> Report:
    """The report of ``party``, from what it has at the end of a job.

    Args:
        job: the job as agreed.
        job_id: of this run.
        party: this party's name.
        alignment: as this party sees it; None at the coordinator.
        align_seconds: wall time of the alignment; likewise.
        align_warnings: whole sentences about it for this party's owner.
        reused: the job that aligned, if this one has used the alignment of an earlier one.
        records: of its table; likewise.
        merged: how its rows became these records.
        classes: their names, at the party that has the labels.
        protection: what its owner does about what its tensors tell.
        traffic: phase → bytes and messages; ``align`` is among them where there is an alignment. In a job with a
            coordinator a phase with it ends in `` (coordinator)``, and its own phases in a party's name, `` (NAME)``.
        training: None for a job that only aligns, or predicts.
        predictions: of a job that makes some.
        coordinated: party → what it learnt in the alignment, at a coordinator that took part in it.
        started: ISO 8601 in UTC, ending in ``+00:00``.
        finished: the same.
        versions: of the software, see :func:`installed_versions`.
        seeded: whether the secrets of the run follow from a seed.

    Raises:
        pydantic.ValidationError: a value that the format does not allow, such as NaN.
    """
    digest, role, last = job.digest(), role_in(job.parties, party), training or predictions
    if role is None:
        raise ValueError("the report of a party that the job does not name")
    results = training.results if training else None
    alone, aligned, tree = (results.alone, results.aligned, results.rival) if results else (None, None, None)
    metrics, own, gains = metrics_of(job, results, results), metrics_of(job, results, alone), gains_of(job, alone)
    meters = meters_of(job, role, alignment, protection, training) if training and alignment else None
    verdict = None
    if training and meters:
        rivals = gains_of(job, tree)
        instead = training.section.verdict
        verdict = verdict_of(job, party, metrics=metrics, alone=own, gains=gains, tree=rivals, meters=meters, instead=instead)
    return Report(
        job=JobRun(id=job_id, name=job.name, manifest_digest=digest, spec=job.lasting_fields()),
        manifest_digest=digest,
        party=party,
        role=role,
        parties=job.parties,
        started=started,
        finished=finished,
        seeded=seeded,
        alignment=describe_sizes(job, alignment, align_seconds, align_warnings, reused, records, merged, traffic),
        training=_training(job, training, protection, classes) if training else None,
        metrics=metrics,
        local_metrics=own,
        gains=gains,
        local_aligned_metrics=metrics_of(job, results, aligned),
        local_aligned_gains=gains_of(job, aligned),
        boosted_tree_metrics=metrics_of(job, results, tree),
        boosted_tree_gains=gains_of(job, tree),
        boosted_tree_note=(results.rival_note or None) if results else None,
        meters=meters,
        verdict=verdict,
        predictions=_predictions(job, party, predictions, protection) if predictions else None,
        phases={phase: PhaseTraffic(**asdict(sent)) for phase, sent in traffic.items()},
        learnt=_collect_entries(job, party, alignment, coordinated, last.disclosures if last else None),
        versions=dict(versions),
    )


def installed_versions() -> dict[str, str]:
    """Versions of this package, Python, and the libraries whose version can change a result; and the kernel of this process."""
    return {
        "vfl_node": VERSION,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in LIBRARIES},
        "kernel": kernel().name,
    }


def json_schema() -> dict[str, Any]:
    """The JSON Schema of ``report.json``, with the sections of this package's own trainers."""
    figures: Any = Union[tuple(figures_of(name) for name in TRAINERS.own)]  # noqa: UP007 - of as many as there are
    about = Field(description=Report.model_fields["training"].description)
    training: Any = (Annotated[figures, Field(discriminator="algorithm")] | None, about)
    published = create_model("Report", __base__=Report, __doc__=Report.__doc__, training=training)
    return published.model_json_schema(mode="serialization")


def _training(job: Job, trained: Trained, protection: Protection, classes: tuple[str, ...]) -> CommonFigures:
    assert job.train is not None
    name = TRAINERS.lasting(job.train.algorithm)
    return figures_of(name)(
        algorithm=name,
        epochs=tuple(EpochFigures(**asdict(epoch)) for epoch in trained.epochs),
        rows=TrainingRows(training=trained.rows[0], validation=len(trained.validated), test=trained.rows[1])
        if any(trained.rows)
        else None,
        steps=trained.steps,
        repeats=job.evaluate.repeats,
        split_digest=hashlib.sha256(b"vfl-node split" + trained.split).hexdigest() if trained.split else None,
        classes=classes or None,
        device=trained.device,
        audit=dict(trained.audits.membership),
        max_attack_auc=protection.max_attack_auc,
        joint=trained.audits.joint,
        feature_audit=None
        if trained.audits.features is None
        else {name: ColumnAudit(**found) for name, found in trained.audits.features.items()},
        max_feature_gain=protection.max_feature_gain,
        label_audit=dict(trained.audits.labels),
        max_label_auc=protection.max_label_auc,
        columns=tuple(ColumnFigures(**asdict(column)) for column in trained.columns),
        warnings=trained.warnings,
        trials=tuple(
            TrialFigures(setting=dict(trial.setting), chosen=trial.chosen, **asdict(trial.tried)) for trial in trained.trials
        ),
        **{name: trained.section},
    )


def _predictions(job: Job, party: str, predictions: ReportedPredictions, protection: Protection) -> Predictions:
    assert job.predict is not None
    asks, exchanged = party == job.asker, predictions.exchanged
    requests = batches = told = records = None
    if isinstance(exchanged, ServiceCount):
        requests, batches, told = exchanged.requests if asks else None, exchanged.batches, exchanged.told
    elif asks:
        records = len(exchanged.rows)
    return Predictions(
        model=job.predict.model,
        to=str(job.asker),
        rows=job.predict.rows,
        requests=requests,
        batches=batches,
        told=told,
        audit=dict(exchanged.attacks) if isinstance(exchanged, ServiceCount) else {},
        max_attack_auc=protection.max_attack_auc,
        label_audit=dict(exchanged.labels) if isinstance(exchanged, ServiceCount) else {},
        max_label_auc=protection.max_label_auc,
        warnings=predictions.warnings,
        records=records,
    )


def _collect_entries(
    job: Job, party: str, alignment: Alignment | None, *further: Mapping[str, tuple[Disclosure, ...]] | None
) -> dict[str, tuple[LedgerEntry, ...]]:
    """This party's entries as its protocols gave them; another's as far as this party can know them."""
    others = [name for name in job.parties.all if name != party]
    disclosures: dict[str, tuple[Disclosure, ...]] = dict.fromkeys((party, *others), ())
    if alignment:
        disclosures |= {party: alignment.learnt, **{name: facts.learnt for name, facts in alignment.peers.items()}}
    if alignment and alignment.linkage:
        disclosures |= {str(job.parties.coordinator): alignment.linkage.coordinator_learnt}
    for more in filter(None, further):
        disclosures = {name: entries + more[name] for name, entries in disclosures.items()}
    return {name: tuple(LedgerEntry(**asdict(entry)) for entry in entries) for name, entries in disclosures.items()}


if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=2, sort_keys=True))  # noqa: T201 - `make` writes it to docs/report.schema.json
