"""What generalised linear models under encryption have in common in a job's ``train`` section."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from vfl_node.configuration.renamed import Renamed
from vfl_node.job.names import LinearScaling
from vfl_node.job.training import TrainerConfig, TrainerParts, TrainingJob, Traits
from vfl_node.roles import DataRole

Flow = Literal["two-party", "coordinator", "coordinator-open-scores"]


class GeneralisedLinear(TrainerConfig):
    """A generalised linear model under encryption, with dummies (see docs/guides/train-a-logistic-regression.md).

    Attributes:
        title: what it is called in sentences.
    """

    parts: ClassVar[TrainerParts] = TrainerParts(
        implementation="vfl_node.training.glm.trainer:GlmTrainer",
        report_section="vfl_node.training.glm.section:GlmSection",
        plan="vfl_node.training.glm.costs:GlmPlan",
        table="vfl_node.training.glm.table_use:GlmTableUse",
        exported="vfl_node.training.glm.exported:RegressionHalf",
        serving="vfl_node.training.glm.predictor:GlmPredictor",
        joined="vfl_node.training.glm.predictor:predict",
        reveals="vfl_node.training.glm.reveals:declare",
        serving_reveals="vfl_node.training.prediction.reveals:declare_scores",
    )
    traits: ClassVar[Traits] = Traits(
        unit="iteration",
        max_passive_parties=8,
        coordinated_by="flow: coordinator or coordinator-open-scores",
        on_device=False,
        unmetered="this training sends no gradient of a row in the open; docs/guides/train-a-logistic-regression.md says what "
        "scores and weights tell",
        serves_unshared=False,
    )
    ways: ClassVar[tuple[Mapping[str, Any], ...]] = ({}, {"flow": "coordinator-open-scores"}, {"flow": "coordinator"})
    title: ClassVar[str]

    flow: Annotated[Flow, Renamed({"coordinator-clear": "coordinator-open-scores"})] = Field(
        default="two-party",
        description="who decrypts, and whether the active party sees scores. two-party: the active party, and yes; "
        "coordinator-open-scores: a coordinator, and yes; coordinator: a coordinator, and no",
    )
    labels: Literal["active", "passive"] = Field(default="active", description="which party has the label column")
    mask: Literal["additive", "multiplicative"] = Field(
        default="additive", description="how a gradient is hidden from the party that decrypts it"
    )
    scaling: LinearScaling = Field(default="standard", description="how each party scales its columns, over its whole table")
    l2: float = Field(default=0.0, ge=0, le=1e3, allow_inf_nan=False, description="weight decay; the intercept has none")
    learning_rate: float = Field(default=0.5, gt=0, le=1e3, allow_inf_nan=False)
    iterations: int = Field(default=30, ge=1, le=10_000)
    tolerance: float = Field(
        default=0.0, ge=0, lt=1, allow_inf_nan=False, description="end when the loss changes by no more than this; 0: never"
    )
    batch_size: int | None = Field(default=None, ge=1, le=100_000_000, description="shared rows per iteration; null: all")
    least_rows: int = Field(
        default=20,
        ge=0,
        description="a column in which fewer shared rows differ from the rest is left out, because its gradient would reveal "
        "their residuals; 0: all columns stay",
    )
    key_bits: Literal[2048, 3072, 4096] = Field(default=3072, description="size of the Paillier key")
    short_exponents: bool = Field(
        default=False,
        description="faster encryption that relies on one more assumption (see docs/guides/train-a-logistic-regression.md)",
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="salts the public schedule of batches, nothing else")

    @property
    def outputs(self) -> int:
        """Models trained side by side: one for two classes and for a number, else one a class."""
        return 1 if self.classes == 2 else self.classes

    @property
    def objective(self) -> str:
        """The loss that is descended: a name in :data:`vfl_node.training.glm.plain.LOSSES`."""
        raise NotImplementedError

    @property
    def weights(self) -> str | tuple[float, ...] | None:
        """How much each class counts in the loss (:mod:`vfl_node.training.class_weight`); None: all alike."""
        return None

    @model_validator(mode="after")
    def _labels_with_a_coordinator(self) -> Self:
        if self.labels == "passive" and self.flow != "coordinator":
            raise ValueError(
                "labels: passive needs flow: coordinator: whoever else held the key could decrypt residuals, which are labels"
            )
        return self

    @property
    def label_holder(self) -> DataRole:
        """As the job says."""
        return self.labels

    @property
    def coordinated(self) -> bool:
        """In every flow in which a third party holds the key."""
        return self.flow != "two-party"

    def check(self, job: TrainingJob) -> None:
        """As the base: no union, one repeat, nothing held out or served where labels are passive, a flow for all parties."""
        spec = job.align.spec
        several = len(job.parties.passive) > 1
        if "passive" in spec.synthetic_rows_at:
            raise ValueError(
                f"{self.title} does not train on {spec.shared_rows}: for rows that only the active party owns the "
                f"passive one has no score u_s to contribute. Say align.protocol: {'' if several else 'apsi, or '}psi"
            )
        if several:
            self._check_several()
        if job.evaluate.repeats > 1:
            raise ValueError(
                f"evaluate.repeats must be 1 with {self.algorithm}: every repeat would show the passive party gradients over "
                "other rows, and their differences more of the residuals"
            )
        if job.evaluate.validation_fraction:
            raise ValueError(
                f"evaluate.validation_fraction must be 0 with {self.algorithm}, whose few weights hardly overfit: say train.l2 "
                "against overfitting, and train.tolerance to end where the loss changes no more"
            )
        if self.labels == "passive" and job.evaluate.test_fraction > 0:
            raise ValueError(
                "evaluate.test_fraction must be 0 with labels: passive: to measure on held-out rows the passive party would "
                "have to know which of them the active party owns"
            )
        if job.serve and self.labels == "passive":
            raise ValueError(
                "serve needs labels: active: the active party makes the predictions, and with labels: passive it lacks the "
                "intercept, and never sees a score"
            )
        if job.evaluate.share_with_passive and self.labels == "passive":
            raise ValueError("evaluate.share_with_passive has nothing to share with labels: passive")

    def _check_several(self) -> None:
        """Refuse what is for one passive party alone. Raises ValueError."""
        if self.flow == "two-party":
            raise ValueError(
                "flow: two-party is for one passive party, whose gradients the active one decrypts; with several there must "
                "be a third party with the key: say flow: coordinator-open-scores or coordinator, and name it in parties"
            )
        if self.labels == "passive":
            raise ValueError(
                "labels: passive is for one passive party: of several the job would not say which has the labels, and the "
                "others have no conversation with it. Make the party with the labels parties.active, and say labels: active"
            )
