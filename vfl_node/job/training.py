"""What a job may train: the registry of trainers, and what each of them declares before anything runs.

A trainer is a folder under ``vfl_node/training`` or in an installed package. Its *config* is a subclass of
:class:`TrainerConfig`: it has the keys of the job's ``train`` section, and checks them. It imports neither torch nor grpc, so
that any command can check a job. Beside the keys it has two values. ``traits`` (:class:`Traits`) states what is true of the
trainer in every job. ``parts`` (:class:`TrainerParts`) names the other parts of the trainer, which are loaded when they are
needed. docs/guides/add-a-trainer.md shows how to write one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol

from pydantic import BaseModel, Field, model_validator
from typing_extensions import Self

from vfl_node.configuration.models import Frozen
from vfl_node.configuration.registry import Registry, check_there, load
from vfl_node.gdp import Exposure
from vfl_node.job.alignment import Align
from vfl_node.job.costs import ONE_BESIDE, Beside, TrainingPlan
from vfl_node.job.evaluate import Evaluate
from vfl_node.job.parties import Parties
from vfl_node.job.prediction import Serve
from vfl_node.roles import NUMBER_TASKS, DataRole, Task

ALWAYS = "always"
"""A value of :attr:`Traits.coordinated_by`."""

DEFAULT_TRAINER = "split"
"""The value of ``train.algorithm`` in a job that does not set it."""

Measure = Literal["validation_fraction", "hold_out", "matched", "contributions"]
"""Keys of ``evaluate`` that not every trainer supports."""

Secret = Literal["labels", "columns"]
"""What a party may send to the others as it is."""


@dataclass(frozen=True, kw_only=True)
class TrainerParts:
    """Where the parts of a trainer are. Each is ``module:attribute`` and loaded when it is first needed; empty: there is none.

    Attributes:
        implementation: the :class:`~vfl_node.training.trainer.Trainer`.
        report_section: the model of the section of a report that this trainer alone has. Its key there is the name that the
            trainer had first, also if it was renamed later.
        plan: its :class:`~vfl_node.job.costs.TrainingPlan`, from which a job is estimated.
        table: its :class:`~vfl_node.training.table_use.TableUse`: what it reads of a party's table, and what it refuses.
        serving: the :class:`~vfl_node.training.predictor.Predictor` for its models; empty: they cannot be served.
        joined: a function that predicts with the halves of all parties in one place, for a trial whose tables have one owner:
            (active, passives, positions) → float64[k] or [k, K]. Each half is a
            :class:`~vfl_node.training.predictor.KeptHalf`; ``passives`` is a sequence in the job's order.
        exported: the :class:`~vfl_node.halves.half.OwnHalf` that a party's stored half is outside of the product, if any.
        embedded: the :class:`~vfl_node.training.predictor.Embeddings` that a passive party's kept half computes, so that its
            owner can attack them (``vfl-node audit``).
        estimated: a function that estimates the joint attack: (table, train, models) → figure.
        reveals: a function from a job to a :class:`~vfl_node.ledger.Declaration` of each thing that it tells; empty: none.
        serving_reveals: the same of predictions by its models: (job that predicts, job that trained the model).
    """

    implementation: str
    report_section: str
    plan: str = "vfl_node.job.costs:TrainingPlan"
    table: str = "vfl_node.training.table_use:TableUse"
    serving: str = ""
    joined: str = ""
    embedded: str = ""
    exported: str = ""
    estimated: str = ""
    reveals: str = ""
    serving_reveals: str = ""


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What is true of a trainer in every job.

    Attributes:
        tasks: the kinds of labels that it can learn.
        unit: the part of training after which it reports figures: ``epoch`` or ``iteration``.
        max_passive_parties: the most passive parties that it can train with.
        coordinated_by: when a coordinator takes part. Empty: never. :data:`ALWAYS`: in every training. Otherwise: text
            for an error message that says which keys of ``train`` need a coordinator.
        on_device: whether it computes on the node's device, which must then be the same in every attempt.
        by_similarity: whether it trains over alignments by similarity, with several candidates for a row, and over no others.
        synthetic_rows: whether it makes up rows for those that a party does not own, and draws them anew with each alignment.
        measures: which of :data:`Measure` it supports. A job with one of the others is refused.
        defended: the tensors that defences can change before it sends them: ``embeddings`` of passive parties, ``gradients`` of
            the active one.
        recorded: whether a passive party records what it sends and receives, if the session keeps a record of tensors
            (``transcript``).
        unmetered: why no attack measures what it sends (``meters`` of the report); empty: attacks measure it.
        opens_rows: whether it sends anything in the clear that depends on a single row.
        row_numbers: which of :data:`~vfl_node.settings.table.RowNumber` of an active party's settings it reads. It is refused
            where they name another one.
        opens: what a party sends to the others as it is: its labels, its columns.
        sweeps: whether several settings can be tried in one job (``sweep``).
        serves_unshared: whether its models also predict known records over an alignment in which some party may lack a row.
        serves_coordinated: whether the coordinator of the training also takes part in predictions by its models.
    """

    tasks: tuple[Task, ...] = ("classification",)
    unit: str = "epoch"
    max_passive_parties: int = 1
    coordinated_by: str = ""
    on_device: bool = True
    by_similarity: bool = False
    synthetic_rows: bool = False
    measures: frozenset[Measure] = frozenset()
    defended: frozenset[str] = frozenset()
    recorded: bool = False
    unmetered: str = "no attack on what this training sends is known here"
    opens_rows: bool = True
    row_numbers: frozenset[str] = frozenset()
    opens: frozenset[Secret] = frozenset()
    sweeps: bool = False
    serves_unshared: bool = True
    serves_coordinated: bool = False


class TrainingJob(Protocol):
    """The parts of a job against which its ``train`` section is checked."""

    @property
    def parties(self) -> Parties:
        """The parties of the job."""

    @property
    def align(self) -> Align:
        """How records are matched."""

    @property
    def train(self) -> TrainerConfig | None:
        """The section itself."""

    @property
    def evaluate(self) -> Evaluate:
        """What is measured of the model."""

    @property
    def serve(self) -> Serve | None:
        """Who may ask the model for predictions; None: nobody."""


class TrainerConfig(Frozen):
    """The job's ``train`` section for one trainer: its keys, and how they are checked.

    Attributes:
        parts: where the other parts of the trainer are.
        traits: what is true of the trainer whatever the keys say.
        ways: keys of the section in each way to train that other parties take part in, or that tells something else; the usual
            one first (:mod:`vfl_node.plans.combinations`).
        algorithm: the name of the trainer in the registry.
        task: what the labels of this job are. A trainer that only predicts numbers sets a different default for this key.
        classes: the number of classes. Labels are 0 to classes − 1. It has no meaning in a regression. A trainer that
            supports two classes only must declare it as ``Literal[2]``.
    """

    parts: ClassVar[TrainerParts]
    traits: ClassVar[Traits] = Traits()
    ways: ClassVar[tuple[Mapping[str, Any], ...]] = (MappingProxyType({}),)

    algorithm: str
    task: Task = Field(default="classification", description="whether labels are classes, or numbers to predict")
    classes: int = 2

    @model_validator(mode="after")
    def _fits_its_task(self) -> Self:
        if self.task not in self.traits.tasks:
            able = [name for name, config in TRAINERS.usable() if self.task in config.traits.tasks]
            raise ValueError(f"task: {self.task} is not for algorithm: {self.algorithm}, but for {' and '.join(able)}")
        if self.task in NUMBER_TASKS and self.classes != 2:
            raise ValueError(f"classes is for task: classification; a {self.task} predicts a number: leave it out")
        return self

    @classmethod
    def section_of(cls, job: TrainingJob) -> Self:
        """The ``train`` section of a job, which must be of this class. Raises TypeError if it is not."""
        if not isinstance(job.train, cls):
            raise TypeError(f"the job's train section is none of {cls.__name__}")
        return job.train

    @property
    def label_holder(self) -> DataRole:
        """The role whose table has the labels."""
        return "active"

    @property
    def coordinated(self) -> bool:
        """Whether a coordinator takes part."""
        return False

    @property
    def is_experimental(self) -> bool:
        """Whether no outside cryptographer has read this way to train yet."""
        return False

    @property
    def prepares(self) -> bool:
        """Whether it makes what it needs ahead, once records are aligned and before it trains."""
        return False

    @property
    def reads_evidence(self) -> bool:
        """Whether columns are replaced by weights of evidence of an earlier job (``statistics``)."""
        return False

    @property
    def model_epsilon(self) -> float | None:
        """ε that a training in shares states for its model; None: it states none."""
        return None

    def opens(self, evaluate: Evaluate, shared: int | None = None) -> Exposure:
        """What it reveals at its end, as amounts that can be added up over several jobs. Not the same as ``traits.opens``.

        ``shared``: the most records that may be shared; None: not known.
        """
        return Exposure()

    @classmethod
    def complete(cls, section: Mapping[str, Any], job: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add defaults that depend on the rest of the ``job`` to the ``train`` section of a job file."""
        return section

    def check(self, job: TrainingJob) -> None:
        """Refuse a job whose training would fail or would reveal too much: now, and not only after a long alignment.

        Raises:
            ValueError: the reason in whole sentences, which name the keys to change.
        """

    def check_export(self) -> None:
        """Refuse a job that hands halves over (``export``) where a half of its model cannot be exported.

        Raises:
            ValueError: the reason, with the keys to change.
        """
        if self.reads_evidence:
            raise ValueError(
                "export: with train.transform: woe a half tells how labels lie in bins of its owner's columns, and is not "
                "handed over: leave export out; each owner may export its own (vfl-node export)"
            )
        if not self.parts.exported:
            able = [name for name, config in TRAINERS.usable() if config.parts.exported]
            raise ValueError(
                f"export: halves of train.algorithm: {self.algorithm} cannot be exported: train by one of {', '.join(able)}, "
                "or leave export out"
            )

    def make_plan(
        self, passive_parties: int = 1, beside: Beside = ONE_BESIDE, models: Mapping[str, str] = MappingProxyType({})
    ) -> TrainingPlan[Any]:
        """A plan of what it will send and compute. Arguments as :class:`~vfl_node.job.costs.TrainingPlan`.

        Raises:
            UsageError: :attr:`TrainerParts.plan` cannot be loaded (``E_EXTENSION``).
        """
        plan: type[TrainingPlan[Any]] = load(self.parts.plan, what=f"plan of trainer {self.algorithm!r}")
        return plan(self, passive_parties, beside, models)

    def check_here(self, models: Mapping[str, str]) -> None:
        """Refuse a job that names something that this node does not have. It is checked before anything begins, without torch.

        Args:
            models: ``models`` of this node's settings: name → ``module:Class`` of an architecture.

        Raises:
            UsageError: something is missing; it says what to declare or install (``E_EXTENSION``).
        """
        check_there(self.parts.implementation, what=f"trainer {self.algorithm!r}")
        check_there(self.parts.report_section, what=f"report of trainer {self.algorithm!r}")

    @property
    def learns_unaligned_by(self) -> str:
        """The method by which it learns from rows outside of the alignment, under its name in ``unaligned`` of a policy."""
        return "none"


def check_evidence(train: TrainerConfig, align: Align) -> None:
    """Refuse weights of evidence without an earlier job that can have counted them.

    Raises:
        ValueError: the reason, with the keys to change.
    """
    if not train.reads_evidence:
        return
    if not align.reuse:
        raise ValueError(
            "train.transform: woe takes weights of evidence that an earlier job with statistics has counted: say align.reuse: "
            "auto, or the id of that job"
        )
    if train.task != "classification" or train.classes != 2 or train.label_holder != "active":
        raise ValueError("train.transform: woe is for two classes, and for labels of the active party: statistics count these")


_OF_REPORTS = """
algorithm epochs rows steps repeats split_digest classes device audit max_attack_auc columns joint feature_audit
max_feature_gain label_audit max_label_auc warnings trials section
"""

REPORT_KEYS = frozenset(_OF_REPORTS.split())
"""Names that no trainer may have, because reports have keys with these names beside the trainer's section."""


def _check(name: str, config: type[TrainerConfig]) -> None:
    if not (isinstance(config, type) and issubclass(config, TrainerConfig)):
        raise ValueError("is no TrainerConfig")
    if not hasattr(config, "parts"):
        raise ValueError(
            "lacks parts, which name its implementation and its report_section (vfl_node.job.training.TrainerParts)"
        )
    if name in REPORT_KEYS or name.startswith("_") or hasattr(BaseModel, name):
        raise ValueError("has a name that is taken in reports; it needs another one")


TRAINERS: Registry[type[TrainerConfig]] = Registry(
    "vfl_node.trainers",
    {
        "split": "vfl_node.training.split.config:Train",
        "logistic": "vfl_node.training.logistic.config:Logistic",
        "linear": "vfl_node.training.linear.config:LinearRegression",
        "candidates": "vfl_node.training.candidates.config:Linked",
        "hidden": "vfl_node.training.hidden.config:Hidden",
        "trees": "vfl_node.training.trees.config:Trees",
        "statistics": "vfl_node.training.statistics.config:Statistics",
    },
    check=_check,
    renamed={"linked": "candidates"},
)
"""``train.algorithm`` → its config."""

SHORT = "statistics"
"""A key of a job file that stands for a ``train`` section with this algorithm."""


def expand_short(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """The ``job`` with what stands for a training as its ``train`` section."""
    if SHORT not in job:
        return job
    if "train" in job:
        raise ValueError(f"{SHORT} are a job of their own: leave train out, and train in a second job (align.reuse)")
    if not isinstance(section := job[SHORT], Mapping):
        raise ValueError(f"{SHORT} are keys and values; {{}} has all defaults")
    if section.get("algorithm", SHORT) != SHORT:
        raise ValueError(f"{SHORT} have no other algorithm: leave {SHORT}.algorithm out, or say train")
    return {**{key: value for key, value in job.items() if key != SHORT}, "train": {**section, "algorithm": SHORT}}
