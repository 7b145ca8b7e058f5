"""The job: the part that all parties share and must agree on, field by field.

Everything private to one party (paths, columns, addresses, keys, device) lives in
:mod:`vfl_node.settings.node` and never crosses the wire.
"""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast

from pydantic import Field, SerializerFunctionWrapHandler, ValidationError, model_serializer, model_validator

from vfl_node.configuration.models import Frozen, ReadBy, leaves, load, name_in, validate
from vfl_node.configuration.renamed import LASTING_NAMES
from vfl_node.errors import UsageError
from vfl_node.job.alignment import Align, Expected, IdForm, ObfuscatedSet, ProtocolName, coordinated_protocols
from vfl_node.job.costs import ONE_BESIDE, Beside
from vfl_node.job.evaluate import DEFAULT_METRICS, EARLY_STOPPING, Evaluate, Metric
from vfl_node.job.export import Export
from vfl_node.job.names import JobId, Name, Purpose
from vfl_node.job.parties import Parties
from vfl_node.job.prediction import Predict, Serve
from vfl_node.job.sweep import Sweep
from vfl_node.job.training import ALWAYS, DEFAULT_TRAINER, SHORT, TRAINERS, Measure, TrainerConfig, check_evidence, expand_short
from vfl_node.roles import Task


class _TrainerName(Frozen, extra="ignore"):
    """The key of a ``train`` section that says which trainer's config reads all of it."""

    algorithm: Annotated[str, name_in(TRAINERS)] = DEFAULT_TRAINER


def _config_of(section: Any) -> type[TrainerConfig]:
    return TRAINERS[_TrainerName.model_validate(section, from_attributes=True).algorithm]


Training = Annotated[TrainerConfig, ReadBy(_config_of)]
"""The ``train`` section of a job, by the config of its trainer."""


_OF_A_MODEL: Mapping[Measure, str] = {
    "validation_fraction": "chooses the best epoch of a model that is trained",
    "hold_out": "chooses the rows that a model is measured on",
    "matched": "measures a model on the rows that both parties own",
    "contributions": "measures a model without each party's columns",
}
"""Key of ``evaluate`` that not every trainer can do → what is done by it."""


class Job(Frozen):
    """One joint computation. Without ``train`` and ``predict`` it only aligns."""

    short: ClassVar[Mapping[str, tuple[str, Mapping[str, Any]]]] = {SHORT: ("train", {"algorithm": SHORT})}
    together: ClassVar[Mapping[tuple[str, ...], tuple[str, ...]]] = EARLY_STOPPING

    name: Name
    purpose: Purpose | None = Field(
        default=None, description="why it is run, in one line of at most 200 characters; it is shown to all parties"
    )
    parties: Parties
    tables: dict[Name, Name] = Field(
        default={}, description="party → name of the table that it uses, by names of its own settings"
    )
    align: Align = Align()
    train: Training | None = None
    evaluate: Evaluate = Evaluate()
    sweep: Sweep | None = Field(default=None, description="several trainings, of which validation rows choose one")
    serve: Serve | None = None
    export: Export | None = Field(default=None, description="halves of the model that leave their nodes after training")
    predict: Predict | None = None

    @model_serializer(mode="wrap")
    def _serialise(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without a key of these that is not said, so that jobs from before there was the key are the same."""
        fields: dict[str, Any] = written(self)
        for key in ("purpose", "sweep", "export"):
            if getattr(self, key) is None:
                fields.pop(key, None)
        return fields

    @model_validator(mode="before")
    @classmethod
    def _complete_sections(cls, value: object) -> object:
        """Defaults of the trainer that depend on other sections."""
        if isinstance(value, Mapping):
            value = expand_short(value)
        train = value.get("train") if isinstance(value, Mapping) else None
        if not isinstance(train, Mapping) or not isinstance(value, Mapping):
            return value
        name = train.get("algorithm", DEFAULT_TRAINER)
        if name not in TRAINERS:
            return value
        config, evaluate = TRAINERS[name], value.get("evaluate", {})
        task = train.get("task", config.model_fields["task"].default)
        if isinstance(evaluate, Mapping) and isinstance(task, str) and task in DEFAULT_METRICS:
            evaluate = {"metrics": DEFAULT_METRICS[cast("Task", task)], **evaluate}
        return {**value, "train": config.complete(train, value), "evaluate": evaluate}

    @model_validator(mode="after")
    def _check_sections(self) -> Job:
        if unknown := sorted(set(self.tables) - set(self.parties.data)):
            raise ValueError(f"tables names {unknown[0]!r}, which is no party with data ({', '.join(self.parties.data)})")
        protocol, spec = self.align.protocol, self.align.spec
        if len(self.parties.passive) > spec.several.most:
            most = spec.several.most
            raise ValueError(f"{protocol} aligns with {most} of parties.passive at most: {spec.several.why_not_more}")
        if len(self.parties.passive) > 1:
            spec.check_several(self.align)
        if self.train and len(self.parties.passive) > self.train.traits.max_passive_parties:
            most, algorithm = self.train.traits.max_passive_parties, self.train.algorithm
            raise ValueError(f"train.algorithm: {algorithm} trains with {most} of parties.passive at most")
        if self.train and self.train.traits.by_similarity != spec.by_similarity:
            raise ValueError(self._mismatch())
        coordinated = (self.train is not None and self.train.coordinated) or spec.coordinated
        if spec.coordinated and not self.parties.coordinator:
            raise ValueError(f"align.protocol: {protocol} needs a third party: name it in parties.coordinator")
        if coordinated and not self.parties.coordinator:
            raise ValueError("this training needs a third party: name it in parties.coordinator")
        if self.parties.coordinator and not coordinated and not self.predict:  # there, as its training says
            ways = ((name, config.traits.coordinated_by) for name, config in TRAINERS.usable())
            training = [f"train.algorithm: {name}{'' if way == ALWAYS else f' with {way}'}" for name, way in ways if way]
            aligning = [f"align.protocol: {name}" for name in coordinated_protocols()]
            where = " and ".join((*training, *aligning))
            raise ValueError(f"parties.coordinator takes part in {where} only; leave it out")
        if self.train:
            check_evidence(self.train, self.align)
            self.train.check(self)
            self.evaluate.check_task(self.train.task, self.train.classes)
            if "passive" in spec.intersection_hidden_from and self.evaluate.share_with_passive:
                raise ValueError(
                    f"evaluate.share_with_passive must be false with {protocol}: metrics are counted over shared records, "
                    "so their values tell the passive party how many there are"
                )
        self._check_askers()
        if self.predict and self.train:
            raise ValueError("a job either trains or predicts: leave train or predict out")
        if self.predict and self.predict.rows == "new" and not spec.every_row_is_shared:
            raise ValueError(
                "predict.rows: new needs align.protocol: psi, which tells all parties which of these records they share: "
                f"with {protocol} records that a party lacks would get synthetic rows, other ones in each job, "
                "while the model stays the same, and whoever compared two jobs would learn the same"
            )
        if self.serve and not (self.train and self.train.parts.serving):
            raise ValueError(f"serve keeps a trained model for predictions, and {self._trained_here}")
        if self.export:
            self.export.check(self)
        if self.serve:
            self.serve.check(len(self.parties.passive))
        for key, why in _OF_A_MODEL.items():
            if getattr(self.evaluate, key) and not (self.train and key in self.train.traits.measures):
                raise ValueError(f"evaluate.{key} {why}, and {self._trained_here}")
        if self.evaluate.hold_out:
            self._check_split()
        if self.sweep:
            self._check_sweep(self.sweep)
        return self

    def _check_sweep(self, sweep: Sweep) -> None:
        """Refuse a sweep that this job cannot choose by, and one of whose trials is no training."""
        sweep.check(self)
        for number, setting in enumerate(sweep.settings()):
            try:
                self.trial(number)
            except ValidationError as error:
                first = error.errors()[0]
                why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
                raise ValueError(f"sweep: trial {number + 1} ({json.dumps(setting)}) is no training: {why}") from None

    def trial(self, number: int) -> Job:
        """The job of one trial of the sweep, from 0: with its settings in ``train``."""
        assert self.sweep
        assert self.train
        train = {**self.train.model_dump(), **self.sweep.settings()[number]}
        return Job.model_validate({**self.model_dump(exclude={"sweep"}), "train": train})

    def choose(self, trial: int | str | None) -> Job:
        """The job that has trained the model: that of the trial of this number, where a sweep has chosen one."""
        return self if trial is None else self.trial(int(trial))

    @property
    def trials(self) -> tuple[Job, ...]:
        """The jobs of all trials of the sweep; without one the job alone."""
        return tuple(map(self.trial, range(len(self.sweep.settings())))) if self.sweep else (self,)

    def add_trials(self, each: Iterable[int]) -> int:
        """What all trials take together at most, where each would take so much if it trained all its epochs."""
        shares = self.sweep.shares(getattr(self.train, "epochs", 1)) if self.sweep else [1.0]
        return round(sum(map(operator.mul, sorted(each, reverse=True), shares)))

    def _check_split(self) -> None:
        """Refuse ``evaluate.hold_out`` where it would tell too much, or there is no order of all rows."""
        spec = self.align.spec
        if spec.intersection_hidden_from or not spec.every_row_is_shared:
            raise ValueError(
                "evaluate.hold_out needs an alignment whose rows all parties own and know, such as psi: with "
                f"{spec.name} the active party has no order of the rows that it lacks, and which rows are the last ones would "
                "tell which records it has"
            )

    def _mismatch(self) -> str:
        """Why trainer and alignment do not go together, and what does."""
        assert self.train is not None
        protocol, algorithm = self.align.protocol, self.train.algorithm
        suited = [name for name, config in TRAINERS.usable() if config.traits.by_similarity == self.align.spec.by_similarity]
        rows = "each row several candidates" if self.align.spec.by_similarity else "each row one record"
        way_out = f"say train.algorithm: {' or '.join(suited)}"
        return f"align.protocol: {protocol} gives {rows}, and train.algorithm: {algorithm} does not train on that: {way_out}"

    @property
    def _trained_here(self) -> str:
        """Why a job has no model that can do something besides; a clause."""
        return f"train.algorithm: {self.train.algorithm} has none for that" if self.train else "the job trains none"

    def _check_askers(self) -> None:
        """Refuse ``serve`` and ``predict`` for parties that the job does not have, and ``predict`` for several."""
        for section, to in (("serve", self.serve and self.serve.to), ("predict", self.predict and self.predict.to)):
            if to and not self.parties.members(to):
                words = "active, passive" if section == "predict" else "active, passive, both"
                raise ValueError(f"{section}.to: {to} is none of {words} and the data parties ({', '.join(self.parties.data)})")
        if self.predict and len(named := self.parties.members(self.predict.to)) > 1:
            raise ValueError(f"predict.to: one party asks; say which: {' or '.join(map(self.parties.role_or_name, named))}")

    @property
    def asker(self) -> str | None:
        """Name of the party that asks for predictions and gets them; None for a job that makes none."""
        if self.predict is None:
            return None
        (asker,) = self.parties.members(self.predict.to)
        return asker

    @property
    def receiver(self) -> str | None:
        """Name of the party that gets the halves of all; None for a job that hands none over."""
        return self.export.receiver(self.parties) if self.export else None

    def remembered_parties(self, name: str) -> tuple[str, ...]:
        """The parties of which ``name`` needs what it remembers beyond jobs, in the order of the job's parties.

        A data party needs it of the others. Where a coordinator takes part in the alignment, it and the others do so, too.
        """
        coordinator = self.parties.coordinator if self.align.spec.coordinated else None
        if name not in self.parties.data:
            return self.parties.data if name == coordinator else ()
        return (*self.parties.others(name), *([coordinator] if coordinator else []))

    @property
    def label_holder(self) -> str | None:
        """The role whose table needs labels; None for a job that only aligns."""
        return self.train.label_holder if self.train else None

    @property
    def task(self) -> Task:
        """What the labels are."""
        return self.train.task if self.train else "classification"

    @property
    def classes(self) -> int:
        """How many classes the labels have; of no meaning in a regression."""
        return self.train.classes if self.train else 2

    @property
    def beside(self) -> Beside:
        """What its alignment puts beside each row."""
        return Beside(self.align.candidates) if self.align.spec.by_similarity else ONE_BESIDE

    @property
    def is_service(self) -> bool:
        """Whether it predicts known records, as they are asked for, until its owner wants its end."""
        return self.predict is not None and self.predict.rows == "known"

    @property
    def needs_torch(self) -> bool:
        """Whether it trains, predicts or links by similarity. A job that only aligns exact identifiers does without torch."""
        return self.train is not None or self.predict is not None or self.align.spec.by_similarity

    def lasting_fields(self) -> dict[str, Any]:
        """Every field, defaults included, by the first name that it had: reports and digests have these."""
        return self.model_dump(mode="json", context=LASTING_NAMES)

    def canonical(self) -> str:
        """Canonical JSON of :meth:`lasting_fields`."""
        return json.dumps(self.lasting_fields(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)

    def digest(self) -> str:
        """SHA-256 of :meth:`canonical`, hexadecimal: the manifest digest."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()

    def field_digests(self) -> dict[str, bytes]:
        """SHA-256 per field, so that a difference between two parties names the field."""
        return {
            name: hashlib.sha256(json.dumps([name, value], sort_keys=True).encode()).digest() for name, value in leaves(self)
        }


def load_job(path: Path) -> Job:
    """Read a job file.

    Raises:
        UsageError: the file is missing or not a valid job.
    """
    return load(path, Job)


def parse_job(canonical: str, *, source: str) -> Job:
    """Read a job from its canonical JSON, as a peer offers it (never as YAML: its aliases can be made to explode).

    Raises:
        UsageError: it is not a valid job for this version.
    """
    try:
        document = json.loads(canonical)
    except (ValueError, RecursionError):
        raise UsageError(f"{source} is not JSON", code="E_CONFIG") from None
    return validate(document, Job, source=source, context=LASTING_NAMES)


def differing_fields(ours: dict[str, bytes], theirs: dict[str, bytes]) -> list[str]:
    """Names of the fields whose digests differ or that only one side knows, sorted."""
    return sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))


__all__ = [
    "Align",
    "Evaluate",
    "Expected",
    "IdForm",
    "Job",
    "JobId",
    "Metric",
    "Name",
    "ObfuscatedSet",
    "Parties",
    "Predict",
    "ProtocolName",
    "Serve",
    "UsageError",
    "differing_fields",
    "load_job",
    "parse_job",
]
