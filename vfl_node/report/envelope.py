"""What one party keeps of a job for people and programs: ``report.json`` and ``report.html``.

The models below *are* the format: keys are stable, unknown ones are refused, and no value
is NaN or infinite. docs/report.md explains each key, docs/report.schema.json is the JSON
Schema (``python -m vfl_node.report.envelope`` prints it).
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, JsonValue, StringConstraints, create_model, model_serializer, model_validator

import vfl_node
from vfl_node.alignment.alignment import Alignment
from vfl_node.files import private_folder, write_whole
from vfl_node.job import Job, Name, Parties
from vfl_node.ledger import Disclosure
from vfl_node.registry import load
from vfl_node.report import page
from vfl_node.settings import Protection, Role, role_in
from vfl_node.trainers import TRAINERS
from vfl_node.training.section import Attacks, Count, Section, Share
from vfl_node.training.split.serving import Predicted, Served
from vfl_node.training.split.serving import learnt as learnt_by_predictions
from vfl_node.training.trainer import Trained, unaudited
from vfl_node.transport.channel import Traffic

UtcTime = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00$")]

LIBRARIES = ("cryptography", "gmpy2", "grpcio", "numpy", "protobuf", "pydantic", "pynacl", "safetensors", "torch")


class JobRun(Section):
    """Which job this was."""

    id: str = Field(description="id of this run: the job's name and a random part")
    name: Name
    manifest_digest: str = Field(description="SHA-256 of spec in canonical JSON, hexadecimal")
    spec: dict[str, JsonValue] = Field(description="the job as all parties agreed on it, defaults included")


class AlignmentSizes(Section):
    """What the alignment found, in numbers of records."""

    protocol: str = Field(description="its name in a job's align.protocol")
    group: str
    records: Count = Field(description="number of records in this party's table")
    ours: Count = Field(description="this party's records that took part; not all if align.at_most applies")
    theirs: Count = Field(description="the peer's records, as announced")
    padded: bool = Field(description="whether the peer rounds its number up, so that theirs is an upper bound")
    rows: Count = Field(description="length of the shared order, including rows that belong to no record")
    union: Count | None = Field(description="null if it is hidden by the protocol, padding or dummies")
    intersection: Count | None = Field(description="null if it is hidden from this party")
    seconds: float = Field(ge=0, description="wall time, including waiting for the peer")
    bytes_sent: Count
    bytes_received: Count


class EpochFigures(Section):
    """One epoch of the first repeat, or one iteration of a logistic regression."""

    loss: float | None = Field(
        description="mean over the epoch's rows, with synthetic labels taken as true (for a logistic regression over those "
        "rows that the active party owns); null if not known to this party"
    )
    auc: float | None = Field(
        description="of the federated model on the training rows that the active party owns, each scored when it was trained "
        "on; null if not in evaluate.metrics, not defined or not known to this party"
    )
    seconds: float = Field(ge=0)
    bytes: Count = Field(description="sent and received")
    attacks: Attacks = Field(description="on what this party sent in the epoch")
    judged: dict[str, Count] = Field(description="attack → number of rows behind its AUC")


class CommonFigures(Section):
    """How training went, whatever was trained; what one trainer alone has stands under its name."""

    algorithm: str
    epochs: tuple[EpochFigures, ...]
    steps: Count = Field(description="batches trained on, all repeats together")
    repeats: int = Field(ge=1, description="independent splits, each trained from new weights")
    device: str
    audit: Attacks = Field(
        description="moving averages over epochs, at the end of the last repeat; twins are those of all repeats together"
    )
    max_attack_auc: float | None = Field(description="the limit in this party's settings, if there is one")
    warnings: tuple[str, ...] = Field(default=(), description="whole sentences for this party's owner")

    @model_validator(mode="after")
    def _of_one_trainer(self) -> CommonFigures:
        if [name for name in TRAINERS if getattr(self, name) is not None] != [self.algorithm]:
            raise ValueError("training has one more section, that of its algorithm")
        return self

    @model_serializer(mode="wrap")
    def _without_other_trainers(self, handler: Any) -> dict[str, Any]:
        figures: dict[str, Any] = handler(self)
        return {name: value for name, value in figures.items() if name == self.algorithm or name not in TRAINERS}


_SECTIONS: dict[str, Any] = {
    name: (load(config.report_section, what=f"report of trainer {name!r}") | None, None)
    for name, config in ((name, TRAINERS[name]) for name in TRAINERS)
}
if TYPE_CHECKING:
    TrainingFigures = CommonFigures
else:
    TrainingFigures = create_model("TrainingFigures", __base__=CommonFigures, **_SECTIONS)


class Interval(Section):
    """A mean over repeats with its 95 % confidence interval."""

    mean: float
    sd: float = Field(ge=0)
    low: float
    high: float
    repeats: int = Field(ge=2)


class Metrics(Section):
    """Metrics of a model; a metric is null if it was not asked for or is not defined."""

    auc: float | None = None
    ace: float | None = None
    nll: float | None = None
    accuracy: float | None = None
    rows: Count | None = Field(description="number of rows on which it was measured (first repeat)")
    population: str | None = Field(description="which rows: 'owned' are shared rows that the active party owns")
    real_share: Share | None = Field(
        description="share of the active party's shared rows with real passive features: intersection / those rows"
    )
    held_out: bool = Field(description="false if these rows were also trained on (test_fraction: 0)")
    intervals: dict[str, Interval] | None = Field(description="by metric, over repeats; null for a single repeat")
    calibration: tuple[tuple[Share, Share, Count], ...] = Field(
        description="(mean prediction, share of positives, rows) for groups of equal size, first repeat"
    )


class Predictions(Section):
    """Predictions with the model of an earlier job. For a service the counts are over all attempts."""

    model: str = Field(description="the job that trained the model")
    to: Name = Field(description="the party that asked, and got the predictions")
    rows: Literal["known", "new"] = Field(description="known: rows of the model's alignment; new: of an alignment of this job")
    requests: Count | None = Field(
        description="known: answered requests of this party; null at the other party, and for new rows"
    )
    batches: Count | None = Field(description="known: batches exchanged; null for new rows")
    told: Count | None = Field(
        description="known: different rows of the model that the other party has learnt about from this one, in all services "
        "of the model; null for new rows"
    )
    audit: Attacks = Field(description="known: on all rows of the model that this party has sent; empty for new rows")
    max_attack_auc: float | None = Field(description="the limit in this party's settings, if there is one")
    warnings: tuple[str, ...] = Field(default=(), description="whole sentences for this party's owner")
    records: Count | None = Field(
        description="new: this party's records that were predicted; null at the other party, and for known rows"
    )


class LedgerEntry(Section):
    """One thing that a party learnt, as :class:`vfl_node.ledger.Disclosure`."""

    what: str = Field(description="a stable keyword")
    count: Count | None = Field(description="how many, or how large; null if this is hidden from the party of this report")
    text: str = Field(description="in plain words")


class PhaseTraffic(Section):
    """Traffic of one phase, as serialised frames."""

    bytes_sent: Count
    bytes_received: Count
    messages_sent: Count
    messages_received: Count


class Report(Section):
    """``report.json``."""

    format: Literal[5] = Field(default=5, description="changes when a key changes its meaning")
    job: JobRun
    manifest_digest: str = Field(description="as in job")
    party: Name = Field(description="whose report this is")
    role: Role
    parties: Parties
    started: UtcTime
    finished: UtcTime
    alignment: AlignmentSizes | None = Field(description="null at the coordinator, and for predictions of known records")
    training: TrainingFigures | None = Field(description="null for a job that only aligns, or predicts")
    metrics: Metrics | None = Field(description="of the federated model; null if not shared with this party, or not measured")
    local_metrics: Metrics | None = Field(description="of the active party's own model on the same rows; null without one")
    gains: dict[str, Interval] | None = Field(description="federated minus local, repeat by repeat; null for a single repeat")
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
    records: int | None,
    protection: Protection,
    traffic: Mapping[str, Traffic],
    training: Trained | None,
    predictions: Served | Predicted | None = None,
    started: str,
    finished: str,
    versions: Mapping[str, str],
) -> Report:
    """The report of ``party``, from what it has at the end of a job.

    Args:
        job: the job as agreed.
        job_id: of this run.
        party: this party's name.
        alignment: as this party sees it; None at the coordinator.
        align_seconds: wall time of the alignment; likewise.
        records: of its table; likewise.
        protection: what its owner does about what its tensors tell.
        traffic: phase → bytes and messages; ``align`` is among them where there is an alignment. In a job with a
            coordinator a phase with it ends in `` (coordinator)``, and its own phases in a party's name, `` (NAME)``.
        training: None for a job that only aligns, or predicts.
        predictions: of a job that makes some.
        started: ISO 8601 in UTC, ending in ``+00:00``.
        finished: the same.
        versions: of the software, see :func:`installed_versions`.

    Raises:
        pydantic.ValidationError: a value that the format does not allow, such as NaN.
    """
    digest, role = job.digest(), role_in(job.parties, party)
    if role is None:
        raise ValueError("the report of a party that the job does not name")
    return Report(
        job=JobRun(id=job_id, name=job.name, manifest_digest=digest, spec=job.model_dump(mode="json")),
        manifest_digest=digest,
        party=party,
        role=role,
        parties=job.parties,
        started=started,
        finished=finished,
        alignment=_sizes(job, alignment, align_seconds, records, traffic),
        training=_training(job, training, protection) if training else None,
        metrics=_metrics(job, training, local=False) if training else None,
        local_metrics=_metrics(job, training, local=True) if training else None,
        gains=_intervals(job, training.gains) if training else None,
        predictions=_predictions(job, role, predictions, protection) if predictions else None,
        phases={phase: PhaseTraffic(**asdict(of)) for phase, of in traffic.items()},
        learnt=_learnt(job, party, alignment, training.disclosures if training else _learnt_by(job, predictions)),
        versions=dict(versions),
    )


def write(report: Report, folder: Path) -> None:
    """Write ``report.html`` and ``report.json`` into ``folder``, each whole or not at all.

    ``report.json`` comes last: where it is, the job has its report.
    """
    private_folder(folder)
    write_whole(folder / "report.html", page.render(report.model_dump(mode="json")).encode())
    write_whole(folder / "report.json", report.to_json().encode())


def installed_versions() -> dict[str, str]:
    """Versions of this package, Python, and the libraries whose version can change a result."""
    return {
        "vfl_node": vfl_node.__version__,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in LIBRARIES},
    }


def json_schema() -> dict[str, Any]:
    """The JSON Schema of ``report.json``."""
    return Report.model_json_schema(mode="serialization")


def _sizes(
    job: Job, alignment: Alignment | None, seconds: float | None, records: int | None, traffic: Mapping[str, Traffic]
) -> AlignmentSizes | None:
    if alignment is None or seconds is None or records is None:
        return None
    return AlignmentSizes(
        protocol=job.align.protocol,
        group=alignment.group,
        records=records,
        ours=alignment.ours,
        theirs=alignment.peer.records,
        padded=alignment.peer.padded,
        rows=len(alignment),
        union=alignment.union,
        intersection=alignment.peer.intersection,
        seconds=seconds,
        bytes_sent=traffic["align"].bytes_sent,
        bytes_received=traffic["align"].bytes_received,
    )


def _training(job: Job, trained: Trained, protection: Protection) -> CommonFigures:
    assert job.train is not None
    return TrainingFigures(
        algorithm=job.train.algorithm,
        epochs=tuple(EpochFigures(**asdict(epoch)) for epoch in trained.epochs),
        steps=trained.steps,
        repeats=job.evaluate.repeats,
        device=trained.device,
        audit=dict(trained.audit),
        max_attack_auc=protection.max_attack_auc,
        warnings=trained.warnings,
        **{job.train.algorithm: trained.section},
    )


def _metrics(job: Job, result: Trained, *, local: bool) -> Metrics | None:
    values, intervals, curve = (
        (result.local_metrics, result.local_intervals, result.local_calibration_curve)
        if local
        else (result.metrics, result.intervals, result.calibration_curve)
    )
    if values is None:
        return None
    about = result.population or {}
    return Metrics(
        **values,
        rows=about.get("rows"),
        population=about.get("population"),
        real_share=about.get("real_share"),
        held_out=job.evaluate.test_fraction > 0,
        intervals=_intervals(job, intervals),
        calibration=tuple(curve),
    )


def _intervals(job: Job, intervals: Mapping[str, Mapping[str, float]]) -> dict[str, Interval] | None:
    found = {metric: Interval(repeats=job.evaluate.repeats, **of) for metric, of in intervals.items()}
    return found or None


def _predictions(job: Job, role: Role, made: Served | Predicted, protection: Protection) -> Predictions:
    assert job.predict is not None
    asks = role == job.predict.to
    requests = batches = told = records = None
    if isinstance(made, Served):
        requests, batches, told = made.requests if asks else None, made.batches, made.told
    elif asks:
        records = len(made.rows)
    return Predictions(
        model=job.predict.model,
        to=_data_parties(job)[job.predict.to],
        rows=job.predict.rows,
        requests=requests,
        batches=batches,
        told=told,
        audit=dict(made.attacks) if isinstance(made, Served) else {},
        max_attack_auc=protection.max_attack_auc,
        warnings=unaudited(protection) if isinstance(made, Served) else (),
        records=records,
    )


def _learnt_by(job: Job, made: Served | Predicted | None) -> Mapping[str, tuple[Disclosure, ...]] | None:
    return learnt_by_predictions(job.predict, **_data_parties(job), made=made) if job.predict and made else None


def _data_parties(job: Job) -> dict[str, str]:
    return {"active": job.parties.active, "passive": job.parties.passive[0]}


def _learnt(
    job: Job, party: str, alignment: Alignment | None, more: Mapping[str, tuple[Disclosure, ...]] | None
) -> dict[str, tuple[LedgerEntry, ...]]:
    """This party's entries as its protocols gave them; another's as far as this party can know them."""
    others = [name for name in job.parties.all if name != party]
    found: dict[str, tuple[Disclosure, ...]] = dict.fromkeys((party, *others), ())
    if alignment:
        found |= {party: alignment.learnt, **{name: facts.learnt for name, facts in alignment.peers.items()}}
    if more:
        found = {name: entries + more[name] for name, entries in found.items()}
    return {name: tuple(LedgerEntry(**asdict(entry)) for entry in entries) for name, entries in found.items()}


if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=2, sort_keys=True))  # noqa: T201 - `make` writes it to docs/report.schema.json
