"""The job: the part that all parties share and must agree on, field by field.

Everything private to one party (paths, columns, addresses, keys, device) lives in
:mod:`vfl_node.settings` and never crosses the wire.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Discriminator, Field, StringConstraints, Tag, field_validator, model_validator

from vfl_node.configuration import Frozen, leaves, load, validate
from vfl_node.errors import UsageError

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$")]
"""Names of jobs and parties: lower-case letters, digits and inner hyphens, at most 63 (safe as a path and in DNS)."""

Protocol = Literal["psu", "psi", "apsi"]
Metric = Literal["auc", "ace", "nll", "accuracy"]
Sizes = tuple[Annotated[int, Field(ge=1, le=65536)], ...]
IdForm = Literal["text", "nocase", "integer"]
Flow = Literal["two-party", "coordinator", "coordinator-clear"]
Scaling = Literal["standard", "unit", "none"]
LabelStrategy = Literal["majority", "minority", "random-pos", "random-pred", "neighbors", "none"]
FeatureStrategy = Literal["sampling", "interpolated", "jittered", "gaussian", "random", "naive", "none"]
JobId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
"""What a node calls one run of a job."""

WHY_TWO_PARTIES = {
    "psu": "a union of more than two sets needs a protocol of its own; unions in pairs would reveal pairwise overlaps",
    "psi": "intersections in pairs would reveal more than the common one",
    "apsi": "each pair would get an obfuscated set of its own, and together they would reveal more of the active party's set",
}


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


class ObfuscatedSet(Frozen):
    """How many records an asymmetric intersection shows to both parties: one of the two is given."""

    size: int | None = Field(default=None, ge=1, description="records")
    fraction: float | None = Field(default=None, gt=0, le=1, description="share of the passive party's set, 0 to 1")

    @model_validator(mode="after")
    def _one(self) -> ObfuscatedSet:
        if (self.size is None) == (self.fraction is None):
            raise ValueError("give either size (records) or fraction (of the passive party's set)")
        return self


class Align(Frozen):
    """How records are matched (see docs/alignment.md)."""

    protocol: Protocol = Field(
        default="psu", description="index the union, the intersection, or an obfuscated set around the intersection"
    )
    group: Literal["curve25519", "modp3072", "modp2048"] = Field(default="curve25519", description="where ids are blinded")
    id_form: IdForm | Annotated[tuple[IdForm, ...], Field(min_length=2, max_length=16)] = Field(
        default="text", description="how ids are compared; a list where several columns together identify a record"
    )
    obfuscation: ObfuscatedSet | Literal["private"] | None = Field(
        default=None, description="apsi only, and required: size of the obfuscated set; private: the active node's settings say"
    )
    padding: int = Field(
        default=0,
        ge=0,
        le=16,
        description="sizes, per doubling, that announced set sizes are rounded up to; 0: exact; apsi: the active party's only",
    )
    dummies: int = Field(
        default=0,
        ge=0,
        le=100_000_000,
        description="psu only: each set grows by twice as many made-up ids, and both see one of dummies + 1 overlaps",
    )
    at_most: int | None = Field(
        default=None,
        ge=1,
        description="a party with more records brings a fixed random part of so many, so that the union stays small",
    )

    @field_validator("obfuscation", mode="before")
    @classmethod
    def _size_or_private(cls, value: object) -> object:
        if value is None or value == "private" or isinstance(value, Mapping | ObfuscatedSet):
            return value
        raise ValueError("give {size: RECORDS}, {fraction: OF THE PASSIVE SET} or private")

    @model_validator(mode="before")
    @classmethod
    def _no_security_number(cls, value: object) -> object:
        obfuscation = value.get("obfuscation") if isinstance(value, Mapping) else None
        if any(isinstance(keys, Mapping) and "security_number" in keys for keys in (value, obfuscation)):
            raise ValueError(
                "a job must not hold a security number: from it, the size m of the obfuscated set and the size n_s of "
                "its own set the passive party computes that of the intersection, (m/n_s^ξ)^(1/(1-ξ)). Say "
                "align.obfuscation: private, and put it into the active node's settings (obfuscation.security_number)"
            )
        return value

    @model_validator(mode="after")
    def _fits_the_protocol(self) -> Align:
        if self.protocol == "apsi" and self.obfuscation is None:
            raise ValueError(
                "apsi needs align.obfuscation, the size of the set that both parties see: {size: RECORDS}, "
                "{fraction: OF THE PASSIVE SET}, or private (the active node's settings say)"
            )
        if self.protocol != "apsi" and self.obfuscation is not None:
            raise ValueError(f"align.obfuscation is for apsi: {self.protocol} has no obfuscated set")
        if self.protocol != "psu" and self.dummies:
            raise ValueError(
                f"align.dummies is for psu: {self.protocol} shows which records are shared, so made-up ones would hide nothing"
            )
        return self


class OwnedShares(Frozen):
    """What share of the shared rows each party owns, where the alignment hides it: an agreed guess."""

    active: float = Field(gt=0, le=1, description="p_a: share of the rows with a real label")
    passive: float = Field(gt=0, le=1, description="p_p: share of the rows with real features of the passive party")


class Missing(Frozen):
    """What stands in for a row that a party does not own (see docs/training.md)."""

    labels: LabelStrategy = "majority"
    draws: int = Field(default=1, ge=1, le=100, description="random-pred only: labels drawn a row and step; their mean is used")
    features: FeatureStrategy = "sampling"
    calibration: Literal["none", "train", "test"] = Field(
        default="none", description="whether and when probabilities are corrected for rows that stand in"
    )
    calibrate: Literal["both", "labels", "features"] = Field(default="both", description="what calibration corrects for")
    shares: OwnedShares | None = Field(
        default=None, description="for calibration with align.dummies, which hide how many rows each party owns"
    )

    @model_validator(mode="after")
    def _fits(self) -> Missing:
        if self.draws > 1 and self.labels != "random-pred":
            raise ValueError("draws is for labels: random-pred, which draws labels anew in every step")
        if self.calibration == "none" and (self.shares or self.calibrate != "both"):
            raise ValueError("shares and calibrate are for calibration, and calibration is none")
        return self


class Train(Frozen):
    """A split network and how it is trained. Sizes are layer widths; the last bottom width is the cut layer."""

    algorithm: Literal["split"] = "split"
    model: Literal["mlp", "wide_deep"] = "mlp"
    classes: int = Field(default=2, ge=2, le=64, description="labels are 0 to classes - 1")
    bottom: Sizes = Field(default=(128, 128), min_length=1)
    active_bottom: Sizes = Field(default=(32,), min_length=1)
    top: Sizes = (128, 128)
    embedding_size: int = Field(default=4, ge=1, le=1024)
    epochs: int = Field(default=10, ge=1, le=100_000)
    batch_size: int = Field(default=256, ge=1, le=1_000_000)
    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: float = Field(default=1e-3, gt=0, le=1e3, allow_inf_nan=False)
    seed: int = Field(default=0, ge=0, lt=2**63, description="salts the public schedule of batches, nothing else")
    missing: Missing = Missing()

    @property
    def outputs(self) -> int:
        """Logits a row: one for two classes, else one a class."""
        return 1 if self.classes == 2 else self.classes

    @model_validator(mode="after")
    def _calibratable(self) -> Train:
        if self.classes > 2 and self.missing.calibration != "none":
            raise ValueError("missing.calibration is for two classes: set it to none")
        return self


class Logistic(Frozen):
    """Logistic regression under encryption, with dummies (see docs/logistic.md)."""

    algorithm: Literal["logistic"]
    flow: Flow = Field(
        default="two-party",
        description="who decrypts, and whether the active party sees scores: the active party and yes, a coordinator and yes "
        "(coordinator-clear), or a coordinator and no (coordinator)",
    )
    labels: Literal["active", "passive"] = Field(default="active", description="which party has the label column")
    classes: int = Field(default=2, ge=2, le=64, description="labels are 0 to classes - 1; above 2, one model a class")
    loss: Literal["exact", "taylor"] = Field(default="exact", description="logistic loss, or its second-order polynomial at 0")
    mask: Literal["additive", "multiplicative"] = Field(
        default="additive", description="how a gradient is hidden from the party that decrypts it"
    )
    scaling: Scaling = Field(default="standard", description="of each party's columns, over its whole table")
    l2: float = Field(default=0.0, ge=0, le=1e3, allow_inf_nan=False, description="weight decay; the intercept has none")
    learning_rate: float = Field(default=0.5, gt=0, le=1e3, allow_inf_nan=False)
    iterations: int = Field(default=30, ge=1, le=10_000)
    tolerance: float = Field(
        default=0.0, ge=0, lt=1, allow_inf_nan=False, description="end when the loss changes by no more than this; 0: never"
    )
    batch_size: int | None = Field(default=None, ge=1, le=100_000_000, description="shared rows an iteration; null: all")
    least_rows: int = Field(
        default=20,
        ge=0,
        description="a column in which fewer shared rows differ from the rest is left out, since its gradient would show their "
        "residuals; 0: all columns stay",
    )
    key_bits: Literal[2048, 3072, 4096] = Field(default=3072, description="size of the Paillier key")
    short_exponents: bool = Field(
        default=False, description="quicker encryption that rests on a further assumption (see docs/logistic.md)"
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="salts the public schedule of batches, nothing else")

    @property
    def outputs(self) -> int:
        """Models trained side by side: one for two classes, else one a class."""
        return 1 if self.classes == 2 else self.classes

    @model_validator(mode="after")
    def _possible(self) -> Logistic:
        if self.flow == "coordinator" and self.loss == "exact":
            raise ValueError(
                "flow: coordinator computes residuals under encryption, where the exact loss's sigmoid cannot be computed: "
                "say loss: taylor, or flow: coordinator-clear, in which the active party sees scores"
            )
        if self.labels == "passive" and self.flow != "coordinator":
            raise ValueError(
                "labels: passive needs flow: coordinator: whoever else held the key could decrypt residuals, which are labels"
            )
        if self.classes > 2 and self.labels == "passive":
            raise ValueError("labels: passive is for two classes")
        if self.classes > 2 and self.mask == "multiplicative":
            raise ValueError(
                "mask: multiplicative is for two classes: with more their residuals share a ciphertext, and one factor would "
                "show the ratios of their gradients"
            )
        if self.classes > 2 and self.flow == "coordinator" and self.tolerance > 0:
            raise ValueError("tolerance must be 0 with flow: coordinator and several classes: their losses are not computed")
        return self


class Evaluate(Frozen):
    """What is measured on rows held out from training."""

    test_fraction: float = Field(default=0.2, ge=0, le=0.9, allow_inf_nan=False)
    repeats: int = Field(default=1, ge=1, le=1000, description="independent splits, each trained from new weights")
    metrics: tuple[Metric, ...] = Field(default=("auc", "ace", "nll", "accuracy"), min_length=1)
    share_with_passive: bool = Field(
        default=False, description="tell the passive party loss and metrics; they derive from labels"
    )
    matched: bool = Field(
        default=False, description="psu only: measure also on the held-out rows that both own, by histograms under encryption"
    )

    @model_validator(mode="after")
    def _repeats_need_a_split(self) -> Evaluate:
        if self.repeats > 1 and self.test_fraction == 0:
            raise ValueError("repeats above 1 need a test_fraction above 0")
        return self


class Serve(Frozen):
    """Predictions after training: both parties keep what they need for them (see docs/prediction.md)."""

    to: Literal["active", "passive", "both"] = Field(description="who may ask")
    batch_size: int = Field(
        default=256, ge=2, le=65_536, description="rows of an agreed batch, among which the wanted one is hidden"
    )


class Predict(Frozen):
    """Predictions by the model of an earlier job."""

    model: JobId = Field(description="the job that trained it")
    to: Literal["active", "passive"] = Field(description="who asks, and gets them")
    rows: Literal["known", "new"] = Field(
        default="known",
        description="known: rows of the model's alignment, asked for one by one; new: all of a new alignment, by psi",
    )


def _algorithm(value: object) -> object:
    """Which of the trainings a section describes: a split network unless it says otherwise."""
    return value.get("algorithm", "split") if isinstance(value, Mapping) else getattr(value, "algorithm", "split")


Training = Annotated[
    Annotated[Train, Tag("split")] | Annotated[Logistic, Tag("logistic")],
    Discriminator(
        _algorithm,
        custom_error_type="algorithm",
        custom_error_message="train.algorithm is neither split nor logistic",
    ),
]


class Job(Frozen):
    """One joint computation. Without ``train`` and ``predict`` it only aligns."""

    name: Name
    parties: Parties
    align: Align = Align()
    train: Training | None = None
    evaluate: Evaluate = Evaluate()
    serve: Serve | None = None
    predict: Predict | None = None

    @model_validator(mode="after")
    def _built(self) -> Job:
        if len(self.parties.passive) > 1:
            protocol = self.align.protocol
            raise ValueError(f"several passive parties with {protocol} are not built yet: {WHY_TWO_PARTIES[protocol]}")
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
            if self.align.protocol == "apsi" and self.evaluate.share_with_passive:
                raise ValueError(
                    "evaluate.share_with_passive must be false with apsi: metrics are counted over shared records, "
                    "so their values tell the passive party how many there are"
                )
        if self.predict and self.train:
            raise ValueError("a job either trains or predicts: leave train or predict out")
        if self.predict and self.predict.rows == "new" and self.align.protocol != "psi":
            raise ValueError(
                "predict.rows: new needs align.protocol: psi, which tells both parties which of these records they share: "
                f"with {self.align.protocol} something would stand in for those that a party lacks, another thing in each job, "
                "while the model stays, and whoever compared two jobs would learn the same"
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
        if self.align.protocol == "psu":
            raise ValueError(
                "logistic regression does not train on a union: for rows that only the active party owns the passive one has "
                "no score u_s to contribute. Say align.protocol: apsi, or psi"
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
        missing = train.missing
        if self.align.protocol == "psu" and "none" in (missing.labels, missing.features):
            raise ValueError(
                "psu trains on the union: train.missing.labels and train.missing.features must say "
                "what stands in for rows that a party does not own (majority, sampling)"
            )
        if self.align.protocol == "apsi" and missing.labels == "none":
            raise ValueError(
                "apsi trains on the obfuscated set, and the active party has no labels for the rows that are not its own: "
                "train.missing.labels must say what stands in for them (majority)"
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
        if self.align.protocol != "psu" or not isinstance(self.train, Train):
            raise ValueError(
                "evaluate.matched is for split training over psu: with psi every row is matched, and apsi keeps from the "
                "passive party which are"
            )
        if self.train.classes > 2:
            raise ValueError("evaluate.matched is for two classes")
        if self.align.dummies:
            raise ValueError("evaluate.matched counts shared rows, and align.dummies hide how many there are: leave one out")

    def _why_intersection_is_hidden(self) -> str:
        if self.align.protocol == "apsi":
            return "which apsi keeps from the passive party (a loss that depends on it would tell)"
        return "which align.dummies hides from both parties" if self.align.dummies else ""

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
    "Align",
    "Evaluate",
    "FeatureStrategy",
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
    "Serve",
    "Train",
    "Training",
    "UsageError",
    "differing_fields",
    "load_job",
    "parse_job",
]
