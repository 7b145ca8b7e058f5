"""What a job may train: the registry of trainers, and what each of them says about itself before anything runs.

A trainer is a folder under ``vfl_node/training`` (or an installed package) with four parts: the *config*, the job's ``train``
section, a subclass of :class:`TrainerConfig` that imports neither torch nor grpc, so that any command can check a job; the
*plan*, a :class:`vfl_node.computing.TrainingPlan`, by which a job is estimated; the *implementation*, a
:class:`vfl_node.training.trainer.Trainer`, loaded when it first runs; and the *report section*, a
:class:`vfl_node.training.section.TrainerSection` with what it alone reports. CONTRIBUTING.md ("Another trainer") has the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, final

from pydantic import BaseModel, Field, model_validator
from typing_extensions import Self

from vfl_node.computing import ONE_BESIDE, Beside, TrainingPlan
from vfl_node.configuration.models import Frozen
from vfl_node.configuration.registry import Registry, load
from vfl_node.gdp import Exposure
from vfl_node.roles import DataRole, Task

if TYPE_CHECKING:
    from vfl_node.data.encoded import EncodedColumn
    from vfl_node.data.tables import Table
    from vfl_node.job import Evaluate, Job

ALWAYS = "always"
"""Of :attr:`TrainerConfig.coordinated_by`."""

DEFAULT_TRAINER = "split"
"""What ``train.algorithm`` is where a job does not say."""


class TrainerConfig(Frozen):
    """The job's ``train`` section for one trainer, and the facts that the rest of vfl-node asks for.

    Attributes:
        implementation: ``module:attribute`` of the :class:`~vfl_node.training.trainer.Trainer`.
        report_section: ``module:attribute`` of the model of what it alone reports, under ``training.<algorithm>``.
        plan: ``module:attribute`` of its :class:`~vfl_node.computing.TrainingPlan`, which an estimate loads.
        serving: ``module:attribute`` of the :class:`~vfl_node.training.predictor.Predictor` by its models; empty: they cannot
            be served.
        serves_unshared: whether known records are also predicted over an alignment in which some party may lack a row.
        serves_coordinated: whether the coordinator of the training takes part in predictions by its models, too.
        joined: ``module:attribute`` of what predicts with all parties' halves in one place
            (``(active, passives, positions) → float64[k] or [k, K]``; the halves as
            :class:`~vfl_node.training.predictor.KeptHalf`, those of the passive parties a sequence in the job's order), for a
            trial whose tables have one owner; empty: nothing does.
        embedded: ``module:attribute`` of the :class:`~vfl_node.training.predictor.Embeddings` that a passive party's kept half
            sends, so that its owner can attack them (``vfl-node audit``); empty: it sends none.
        estimated: ``module:attribute`` of what estimates the joint attack: (table, train, models) → figure; empty: none.
        max_passive_parties: how many passive parties it can train with.
        defended: the tensors that it sends through the place where defences work: ``embeddings`` of passive parties,
            ``gradients`` of the active one.
        unmetered: why nobody can say what others tell from what it sends (report's ``meters``); empty: attacks run on it.
        recorded: whether a passive party records what it sends and gets, where the session has a transcript.
        by_similarity: whether it trains over alignments by similarity (several candidates a row), and over no other.
        on_device: whether it computes on the node's device, which must then be the same in every attempt.
        coordinated_by: what its section must say for a coordinator to take part; empty: none ever does;
            :data:`ALWAYS`: one takes part in every training.
        unit: what it calls the part of training after which it reports figures: ``epoch`` or ``iteration``.
        tasks: what its labels can be.
        algorithm: its name, that of the registry.
        task: what the labels of this job are. A trainer for numbers alone gives the key another default.
        classes: of labels, 0 to classes − 1; of no meaning in a regression. One for two classes narrows it to ``Literal[2]``.
    """

    implementation: ClassVar[str]
    report_section: ClassVar[str]
    plan: ClassVar[str] = "vfl_node.computing:TrainingPlan"
    serving: ClassVar[str] = ""
    serves_unshared: ClassVar[bool] = True
    serves_coordinated: ClassVar[bool] = False
    joined: ClassVar[str] = ""
    embedded: ClassVar[str] = ""
    estimated: ClassVar[str] = ""
    max_passive_parties: ClassVar[int] = 1
    defended: ClassVar[frozenset[str]] = frozenset()
    unmetered: ClassVar[str] = "no attack on what this training sends is known here"
    recorded: ClassVar[bool] = False
    by_similarity: ClassVar[bool] = False
    on_device: ClassVar[bool] = True
    coordinated_by: ClassVar[str] = ""
    unit: ClassVar[str] = "epoch"
    tasks: ClassVar[tuple[Task, ...]] = ("classification",)

    algorithm: str
    task: Task = Field(default="classification", description="whether labels are classes, or numbers to predict")
    classes: int = 2

    @model_validator(mode="after")
    def _fits_its_task(self) -> Self:
        if self.task not in self.tasks:
            able = [name for name, config in TRAINERS.usable() if self.task in config.tasks]
            raise ValueError(f"task: {self.task} is not for algorithm: {self.algorithm}, but for {' and '.join(able)}")
        if self.task == "regression" and self.classes != 2:
            raise ValueError("classes is for task: classification; a regression predicts a number: leave it out")
        return self

    @classmethod
    def of(cls, job: Job) -> Self:
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

    @property
    def has_synthetic_rows(self) -> bool:
        """Whether it makes rows up for those that a party does not own, anew in each training."""
        return False

    @property
    def tells_anew(self) -> bool:
        """Whether what is opened at the end differs from training to training, so that several tell more than one."""
        return False

    def opens(self, evaluate: Evaluate, shared: int | None = None) -> Exposure:
        """What it opens at its end, as far as that adds up over jobs; ``shared``: how many records are shared at most."""
        return Exposure()

    @final
    @property
    def can_serve(self) -> bool:
        """Whether its model can be kept for predictions (``serve``): :attr:`serving` names what predicts by it."""
        return bool(self.serving)

    @property
    def can_join(self) -> bool:
        """Whether all parties' halves of its model predict in one place: :attr:`joined` names what does it."""
        return bool(self.joined)

    @property
    def can_validate(self) -> bool:
        """Whether it measures on rows set apart and stops early (``evaluate.validation_fraction``)."""
        return False

    @property
    def can_hold_out_last(self) -> bool:
        """Whether it holds out the last rows by the active party's order (``evaluate.hold_out``)."""
        return False

    @property
    def can_match(self) -> bool:
        """Whether it measures on the rows that both parties own (``evaluate.matched``)."""
        return False

    @property
    def can_attribute(self) -> bool:
        """Whether it measures which party's columns help (``evaluate.contributions``)."""
        return False

    @classmethod
    def completed(cls, section: Mapping[str, Any], job: Mapping[str, Any]) -> Mapping[str, Any]:
        """The ``train`` section of a document, with defaults that depend on the rest of the ``job``."""
        return section

    def check(self, job: Job) -> None:
        """Refuse a job in which this training would fail, or tell too much, only after a long alignment.

        Raises:
            ValueError: whole sentences that name the keys to change.
        """

    def planned(
        self, passive_parties: int = 1, beside: Beside = ONE_BESIDE, models: Mapping[str, str] = MappingProxyType({})
    ) -> TrainingPlan[Any]:
        """What it will send and compute; args as :class:`~vfl_node.computing.TrainingPlan`.

        Raises:
            UsageError: :attr:`plan` cannot be loaded (``E_EXTENSION``).
        """
        plan: type[TrainingPlan[Any]] = load(self.plan, what=f"plan of trainer {self.algorithm!r}")
        return plan(self, passive_parties, beside, models)

    def check_here(self, models: Mapping[str, str]) -> None:
        """Refuse a job that names what this node does not have, before anything begins.

        Args:
            models: of this node's settings: name → ``module:Class`` of an architecture.

        Raises:
            UsageError: with what to declare or install (``E_EXTENSION``).
        """
        load(self.implementation, what=f"trainer {self.algorithm!r}")
        load(self.report_section, what=f"report of trainer {self.algorithm!r}")

    def check_table(self, role: DataRole, table: Table) -> None:
        """Refuse a table with which this training would fail whatever the peer has; ``vfl-node check`` asks.

        Args:
            role: of the party.
            table: its whole table.

        Raises:
            DataError: with what to change in the table or the job.
        """

    def reads_images(self, models: Mapping[str, str]) -> bool:
        """Whether a party's image is read as one; else its pixels are numeric columns.

        Args:
            models: as for :meth:`check_here`.
        """
        return False

    def reads_lists(self, models: Mapping[str, str]) -> bool:
        """Whether columns of lists are read; else a table with one is refused.

        Args:
            models: as for :meth:`check_here`.
        """
        return False

    def columns_read(self, table: Table) -> tuple[EncodedColumn, ...]:
        """What training would do with each column of ``table``, as all its rows suggest; empty: it does not say.

        ``vfl-node check`` shows it; in a job training rows decide.
        """
        return ()

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
    if lacking := [attribute for attribute in ("implementation", "report_section") if not hasattr(config, attribute)]:
        raise ValueError(f"lacks {' and '.join(lacking)}")
    if name in REPORT_KEYS or name.startswith("_") or hasattr(BaseModel, name):
        raise ValueError("has a name that is taken in reports; it needs another one")


TRAINERS: Registry[type[TrainerConfig]] = Registry(
    "vfl_node.trainers",
    {
        "split": "vfl_node.training.split.config:Train",
        "logistic": "vfl_node.training.logistic.config:Logistic",
        "linear": "vfl_node.training.linear.config:LinearRegression",
        "linked": "vfl_node.training.linked.config:Linked",
        "hidden": "vfl_node.training.hidden.config:Hidden",
    },
    check=_check,
)
"""``train.algorithm`` → its config."""
