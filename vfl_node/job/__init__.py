"""The job: the part that all parties share and must agree on, field by field.

Everything private to one party (paths, columns, addresses, keys, device) lives in
:mod:`vfl_node.settings` and never crosses the wire.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints, field_validator, model_validator

from vfl_node.configuration import Frozen, leaves, load, validate
from vfl_node.errors import UsageError
from vfl_node.job.alignment import Align, IdForm, ObfuscatedSet, ProtocolName
from vfl_node.job.prediction import SERVED_FEATURES, JobId, Predict, Serve
from vfl_node.job.training import (
    Evaluate,
    FeatureStrategy,
    Flow,
    LabelStrategy,
    Logistic,
    Missing,
    OwnedShares,
    Scaling,
    Train,
    Training,
)

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$")]
"""Names of jobs and parties: lower-case letters, digits and inner hyphens, at most 63 (safe as a path and in DNS)."""


class Parties(Frozen):
    """Who takes part, by the names in their certificates."""

    active: Name
    passive: tuple[Name, ...] = Field(min_length=1)
    coordinator: Name | None = None

    @field_validator("passive", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _distinct(self) -> Parties:
        if len(set(self.all)) != len(self.all):
            raise ValueError("a party may appear once only")
        return self

    @property
    def all(self) -> tuple[str, ...]:
        """All names: active, then passive, then coordinator."""
        return (self.active, *self.passive, *([self.coordinator] if self.coordinator else []))


class Job(Frozen):
    """One joint computation. Without ``train`` and ``predict`` it only aligns."""

    name: Name
    parties: Parties
    align: Align = Align()
    train: Training | None = None
    evaluate: Evaluate = Evaluate()
    serve: Serve | None = None
    predict: Predict | None = None

    @model_validator(mode="before")
    @classmethod
    def _rows_for_predictions(cls, value: object) -> object:
        """A job that serves has rows of :data:`SERVED_FEATURES` unless it says otherwise."""
        if not isinstance(value, Mapping) or not value.get("serve") or not isinstance(value.get("train"), Mapping):
            return value
        missing = value["train"].get("missing", {})
        if not isinstance(missing, Mapping) or "features" in missing or value["train"].get("algorithm", "split") != "split":
            return value
        return {**value, "train": {**value["train"], "missing": {**missing, "features": SERVED_FEATURES}}}

    @model_validator(mode="after")
    def _built(self) -> Job:
        protocol, spec = self.align.protocol, self.align.spec
        if len(self.parties.passive) > spec.max_passive_parties:
            raise ValueError(f"several passive parties with {protocol} are not built yet: {spec.why_not_more}")
        needs_coordinator = isinstance(self.train, Logistic) and self.train.flow != "two-party"
        if needs_coordinator and not self.parties.coordinator:
            raise ValueError("this train.flow needs a third party that holds the key: name it in parties.coordinator")
        if self.parties.coordinator and not needs_coordinator:
            raise ValueError(
                "parties.coordinator takes part in train.algorithm: logistic with flow: coordinator or coordinator-clear only; "
                "leave it out"
            )
        if self.train:
            if isinstance(self.train, Logistic):
                self._can_regress(self.train)
            else:
                self._can_train(self.train)
            if "passive" in spec.intersection_hidden_from and self.evaluate.share_with_passive:
                raise ValueError(
                    f"evaluate.share_with_passive must be false with {protocol}: metrics are counted over shared records, "
                    "so their values tell the passive party how many there are"
                )
        if self.predict and self.train:
            raise ValueError("a job either trains or predicts: leave train or predict out")
        if self.predict and self.predict.rows == "new" and not spec.every_row_is_shared:
            raise ValueError(
                "predict.rows: new needs align.protocol: psi, which tells both parties which of these records they share: "
                f"with {protocol} records that a party lacks would get synthetic rows, other ones in each job, "
                "while the model stays the same, and whoever compared two jobs would learn the same"
            )
        if self.serve and not isinstance(self.train, Train):
            raise ValueError("serve keeps a split network for predictions: it needs train with algorithm: split")
        if self.evaluate.matched:
            self._can_match()
        return self

    @property
    def label_holder(self) -> str | None:
        """The role whose table needs labels; None for a job that only aligns."""
        if self.train is None:
            return None
        return self.train.labels if isinstance(self.train, Logistic) else "active"

    @property
    def classes(self) -> int:
        """How many classes the labels have."""
        return self.train.classes if self.train else 2

    def _can_regress(self, train: Logistic) -> None:
        """Refuse what genuine-with-dummy training cannot do, or what would tell too much."""
        spec = self.align.spec
        if "passive" in spec.synthetic_rows_at:
            raise ValueError(
                f"logistic regression does not train on {spec.shared_rows}: for rows that only the active party owns the "
                "passive one has no score u_s to contribute. Say align.protocol: apsi, or psi"
            )
        if self.evaluate.repeats > 1:
            raise ValueError(
                "evaluate.repeats must be 1 with logistic: every repeat would show the passive party gradients over other "
                "rows, and their differences more of the residuals"
            )
        if train.labels == "passive" and self.evaluate.test_fraction > 0:
            raise ValueError(
                "evaluate.test_fraction must be 0 with labels: passive: to measure on held-out rows the passive party would "
                "have to know which of them the active party owns"
            )
        if self.evaluate.share_with_passive and train.labels == "passive":
            raise ValueError("evaluate.share_with_passive has nothing to share with labels: passive")

    def _can_train(self, train: Train) -> None:
        """Refuse what would fail, or tell too much, only after a long alignment."""
        missing, protocol, spec = train.missing, self.align.protocol, self.align.spec
        stand_ins = [missing.features, *([missing.labels] if "active" in spec.synthetic_rows_at else [])]
        if "passive" in spec.synthetic_rows_at and "none" in stand_ins:
            raise ValueError(
                f"{protocol} trains on {spec.shared_rows}: train.missing.labels and train.missing.features must say "
                "how synthetic labels and rows are made for rows that a party does not own (majority, sampling)"
            )
        if "active" in spec.synthetic_rows_at and missing.labels == "none":
            raise ValueError(
                f"{protocol} trains on {spec.shared_rows}, and the active party has no labels for the rows that are not its "
                "own: train.missing.labels must say how synthetic labels are made (majority)"
            )
        hidden = self._why_intersection_is_hidden()
        if missing.shares and not self.align.dummies:
            raise ValueError(
                "train.missing.shares is for align.dummies: without them both parties know how many rows are whose"
            )
        if missing.calibration != "none" and hidden and not missing.shares:
            way_out = ", or state train.missing.shares" if self.align.dummies else ""
            raise ValueError(f"train.missing.calibration needs the size of the intersection, {hidden}: set it to none{way_out}")

    def _can_match(self) -> None:
        """Refuse matched metrics where there is nothing to match, or they would tell too much."""
        if not self.align.spec.can_count_matched_rows or not isinstance(self.train, Train):
            raise ValueError(
                "evaluate.matched is for split training over psu: with psi every row is matched, and apsi keeps from the "
                "passive party which are"
            )
        if self.train.classes > 2:
            raise ValueError("evaluate.matched is for two classes")
        if self.align.dummies:
            raise ValueError("evaluate.matched counts shared rows, and align.dummies hide how many there are: leave one out")

    def _why_intersection_is_hidden(self) -> str:
        if hidden := self.align.spec.intersection_hidden_from:
            parties = " and the ".join(f"{role} party" for role in sorted(hidden))
            return f"which {self.align.protocol} keeps from the {parties} (a loss that depends on it would tell)"
        return "which align.dummies hides from both parties" if self.align.dummies else ""

    @property
    def is_service(self) -> bool:
        """Whether it predicts known records, as they are asked for, until its owner wants its end."""
        return self.predict is not None and self.predict.rows == "known"

    def canonical(self) -> str:
        """Canonical JSON of every field, defaults included."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), ensure_ascii=True)

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
    return validate(document, Job, source=source)


def differing_fields(ours: dict[str, bytes], theirs: dict[str, bytes]) -> list[str]:
    """Names of the fields whose digests differ or that only one side knows, sorted."""
    return sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))


__all__ = [
    "SERVED_FEATURES",
    "Align",
    "Evaluate",
    "FeatureStrategy",
    "Flow",
    "IdForm",
    "Job",
    "JobId",
    "LabelStrategy",
    "Logistic",
    "Missing",
    "Name",
    "ObfuscatedSet",
    "OwnedShares",
    "Parties",
    "Predict",
    "ProtocolName",
    "Scaling",
    "Serve",
    "Train",
    "Training",
    "UsageError",
    "differing_fields",
    "load_job",
    "parse_job",
]
