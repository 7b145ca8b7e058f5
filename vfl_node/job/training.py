"""What a job may train: the registry of trainers, and what each of them says about itself before anything runs.

A trainer is a folder under ``vfl_node/training`` (or an installed package). Its *config* is the job's ``train`` section, a
subclass of :class:`TrainerConfig`: keys, and what is checked of them. It imports neither torch nor grpc, so that any command
can check a job. Beside the keys it has two values: :class:`Traits`, what is true of the trainer whatever a job says, and
:class:`TrainerParts`, where its other parts are: these are loaded when they are needed. docs/guides/add-a-trainer.md
has the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol

from pydantic import BaseModel, Field, model_validator
from typing_extensions import Self

from vfl_node.configuration.models import Frozen
from vfl_node.configuration.registry import Registry, load
from vfl_node.gdp import Exposure
from vfl_node.job.alignment import Align
from vfl_node.job.costs import ONE_BESIDE, Beside, TrainingPlan
from vfl_node.job.evaluate import Evaluate
from vfl_node.job.parties import Parties
from vfl_node.job.prediction import Serve
from vfl_node.roles import DataRole, Task

ALWAYS = "always"
"""Stands in :attr:`Traits.coordinated_by`."""

DEFAULT_TRAINER = "split"
"""What ``train.algorithm`` is where a job does not say."""

Measure = Literal["validation_fraction", "hold_out", "matched", "contributions"]

Secret = Literal["labels", "columns"]
"""Keys of ``evaluate`` that not every trainer can do."""


@dataclass(frozen=True, kw_only=True)
class TrainerParts:
    """Where the parts of a trainer are: each ``module:attribute``, loaded when it is first needed; empty: there is none.

    Attributes:
        implementation: the :class:`~vfl_node.training.trainer.Trainer`.
        report_section: model of what it alone reports. Its key in a report is the first name of the trainer.
        plan: its :class:`~vfl_node.job.costs.TrainingPlan`, which an estimate loads.
        table: its :class:`~vfl_node.training.table_use.TableUse`: what it reads of a party's table, and what it refuses.
        serving: the :class:`~vfl_node.training.predictor.Predictor` by its models; empty: they cannot be served.
        joined: what predicts with all parties' halves in one place (``(active, passives, positions) → float64[k] or [k, K]``;
            the halves as :class:`~vfl_node.training.predictor.KeptHalf`, those of the passive parties a sequence in the job's
            order), for a trial whose tables have one owner.
        embedded: the :class:`~vfl_node.training.predictor.Embeddings` that a passive party's kept half sends, so that its owner
            can attack them (``vfl-node audit``).
        estimated: what estimates the joint attack: (table, train, models) → figure.
    """

    implementation: str
    report_section: str
    plan: str = "vfl_node.job.costs:TrainingPlan"
    table: str = "vfl_node.training.table_use:TableUse"
    serving: str = ""
    joined: str = ""
    embedded: str = ""
    estimated: str = ""


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What is true of a trainer, whatever a job says.

    Attributes:
        tasks: what its labels can be.
        unit: what it calls the part of training after which it reports figures: ``epoch`` or ``iteration``.
        max_passive_parties: how many passive parties it can train with.
        coordinated_by: what its section must say for a coordinator to take part; empty: none ever does; :data:`ALWAYS`: one
            takes part in every training.
        on_device: whether it computes on the node's device, which must then be the same in every attempt.
        by_similarity: whether it trains over alignments by similarity (several candidates a row), and over no other.
        synthetic_rows: whether it makes rows up for those that a party does not own, anew in each training.
        measures: what it can do of :data:`Measure`. A job with another one is refused.
        defended: the tensors that it sends through the place where defences work: ``embeddings`` of passive parties,
            ``gradients`` of the active one.
        recorded: whether a passive party records what it sends and gets, where the session has a transcript.
        unmetered: why no attack measures what it sends (report's ``meters``); empty: attacks do.
        opens_rows: whether anything that depends on a single row is sent in the open.
        opens: what of a party's own it sends to the others as it is: its labels, its columns.
        serves_unshared: whether known records are also predicted over an alignment in which some party may lack a row.
        serves_coordinated: whether the coordinator of the training takes part in predictions by its models, too.
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
    opens: frozenset[Secret] = frozenset()
    serves_unshared: bool = True
    serves_coordinated: bool = False


class TrainingJob(Protocol):
    """The job in which a ``train`` section stands, as far as it is checked against the rest."""

    @property
    def parties(self) -> Parties:
        """Who takes part."""

    @property
    def align(self) -> Align:
        """How records are matched."""

    @property
    def train(self) -> TrainerConfig | None:
        """The section itself."""

    @property
    def evaluate(self) -> Evaluate:
        """What is measured."""

    @property
    def serve(self) -> Serve | None:
        """Who may ask for predictions; None: nobody."""


class TrainerConfig(Frozen):
    """The job's ``train`` section for one trainer: its keys, and what is checked of them.

    Attributes:
        parts: where its other parts are.
        traits: what is true of it whatever the keys say.
        algorithm: its name, that of the registry.
        task: what the labels of this job are. A trainer for numbers alone gives the key another default.
        classes: of labels, 0 to classes − 1; of no meaning in a regression. A trainer for two classes only narrows it to
            ``Literal[2]``.
    """

    parts: ClassVar[TrainerParts]
    traits: ClassVar[Traits] = Traits()

    algorithm: str
    task: Task = Field(default="classification", description="whether labels are classes, or numbers to predict")
    classes: int = 2

    @model_validator(mode="after")
    def _fits_its_task(self) -> Self:
        if self.task not in self.traits.tasks:
            able = [name for name, config in TRAINERS.usable() if self.task in config.traits.tasks]
            raise ValueError(f"task: {self.task} is not for algorithm: {self.algorithm}, but for {' and '.join(able)}")
        if self.task == "regression" and self.classes != 2:
            raise ValueError("classes is for task: classification; a regression predicts a number: leave it out")
        return self

    @classmethod
    def section_of(cls, job: TrainingJob) -> Self:
        """The ``train`` section of a job, for the trainer whose section it is."""
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

    def opens(self, evaluate: Evaluate, shared: int | None = None) -> Exposure:
        """What it opens at its end: the part that adds up over jobs. ``shared``: how many records are shared at most."""
        return Exposure()

    @classmethod
    def complete(cls, section: Mapping[str, Any], job: Mapping[str, Any]) -> Mapping[str, Any]:
        """The ``train`` section of a document, with defaults that depend on the rest of the ``job``."""
        return section

    def check(self, job: TrainingJob) -> None:
        """Refuse a job in which this training would fail, or tell too much, only after a long alignment.

        Raises:
            ValueError: whole sentences that name the keys to change.
        """

    def make_plan(
        self, passive_parties: int = 1, beside: Beside = ONE_BESIDE, models: Mapping[str, str] = MappingProxyType({})
    ) -> TrainingPlan[Any]:
        """What it will send and compute; args as :class:`~vfl_node.job.costs.TrainingPlan`.

        Raises:
            UsageError: :attr:`TrainerParts.plan` cannot be loaded (``E_EXTENSION``).
        """
        plan: type[TrainingPlan[Any]] = load(self.parts.plan, what=f"plan of trainer {self.algorithm!r}")
        return plan(self, passive_parties, beside, models)

    def check_here(self, models: Mapping[str, str]) -> None:
        """Refuse a job that names what this node does not have, before anything begins.

        Args:
            models: of this node's settings: name → ``module:Class`` of an architecture.

        Raises:
            UsageError: with what to declare or install (``E_EXTENSION``).
        """
        load(self.parts.implementation, what=f"trainer {self.algorithm!r}")
        load(self.parts.report_section, what=f"report of trainer {self.algorithm!r}")

    @property
    def learns_unaligned_by(self) -> str:
        """Name of the method by which it learns from rows outside of the alignment, as ``limits.methods`` has it."""
        return "none"


REPORT_KEYS = frozenset(
    {
        *("algorithm", "epochs", "rows", "steps", "repeats", "classes", "device", "audit", "max_attack_auc", "columns"),
        *("joint", "feature_audit", "max_feature_gain", "label_audit", "max_label_auc", "warnings", "section"),
    }
)
"""What no trainer is called, since its section of a report stands beside these."""


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
    },
    check=_check,
    renamed={"linked": "candidates"},
)
"""``train.algorithm`` → its config."""
