"""The job's ``train`` section for training in shares (see docs/guides/train-hidden.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from vfl_node.gdp import MOST_EPSILON, Exposure
from vfl_node.job.evaluate import Evaluate
from vfl_node.job.names import LinearScaling
from vfl_node.job.training import ALWAYS, TrainerConfig, TrainerParts, TrainingJob, Traits
from vfl_node.settings.limits import UnboundedModel
from vfl_node.training.hidden import spending

Loss = Literal["exact", "taylor", "squares", "robust"]
"""What is descended; ``robust`` is the bounded one of numbers, 2σ(2r) − 1 of a residual r."""

USUAL_EPOCHS, USUAL_BATCH, USUAL_RATE, USUAL_MOMENTUM = 10, 512, 0.1, 0.9
"""What a training without a bound, in batches, takes where the job does not say it."""


class Hidden(TrainerConfig):
    """A model trained in shares on exactly the records that all parties have (see docs/guides/train-hidden.md)."""

    parts: ClassVar[TrainerParts] = TrainerParts(
        implementation="vfl_node.training.hidden.trainer:HiddenTrainer",
        report_section="vfl_node.training.hidden.section:HiddenSection",
        plan="vfl_node.training.hidden.plan:HiddenTrainingPlan",
        table="vfl_node.training.hidden.table_use:HiddenTableUse",
        exported="vfl_node.training.hidden.exported:HiddenHalf",
        serving="vfl_node.training.hidden.prediction.predictor:HiddenPredictor",
        joined="vfl_node.training.hidden.prediction.predictor:predict",
        reveals="vfl_node.training.hidden.reveals:declare",
        serving_reveals="vfl_node.training.hidden.reveals:declare_served",
    )
    traits: ClassVar[Traits] = Traits(
        tasks=("classification", "regression"),
        max_passive_parties=8,
        coordinated_by=ALWAYS,
        on_device=False,
        unmetered="nothing of a row is sent in the open; what is opened at the end has a stated cost (training.hidden.privacy)",
        opens_rows=False,
        serves_unshared=False,
        serves_coordinated=True,
    )

    renamed: ClassVar[Mapping[str, str]] = {"hidden": "layers"}

    algorithm: Literal["hidden"]
    classes: int = Field(default=2, ge=2, le=64, description="labels are 0 to classes - 1; above 2, one model for each class")
    epsilon: float | None = Field(
        default=1.0,
        gt=0,
        le=MOST_EPSILON,
        allow_inf_nan=False,
        description="ε of the model, with a δ of 10⁻⁶: how well all that is opened tells whether one record is shared, or its "
        "label. The coordinator deals noise in shares. null: no noise and no bound, where each owner allows it",
    )
    columns: Literal["plain", "bins"] = Field(
        default="plain",
        description="bins: each owner adds to each number eight levels by its quantiles, so that a regression follows curves",
    )
    target_range: tuple[float, float] | None = Field(
        default=None,
        description="of a regression: between which numbers targets usually lie, as everybody knows and no table says. null: "
        "the active party's table says how they are scaled, and then ε does not cover a single target",
    )
    layers: tuple[Annotated[int, Field(ge=1, le=4096)], ...] = Field(
        default=(),
        max_length=3,
        description="widths of hidden layers, which need epsilon: null; none: logistic or linear regression",
    )
    loss: Literal["exact", "taylor"] = Field(
        default="exact",
        description="of classes: logistic loss by a sum of sines; taylor: its second-order polynomial at 0, with epsilon: null",
    )
    epochs: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="with epsilon steps, each over all rows; null: 20 or 40, by public numbers. With epsilon: null passes, 10",
    )
    batch_size: int | None = Field(
        default=None,
        ge=1,
        le=10_000_000,
        description="with epsilon: null: shared records of a batch, 512; as many more rows are taken as are not shared",
    )
    learning_rate: float | None = Field(
        default=None,
        gt=0,
        le=1e3,
        allow_inf_nan=False,
        description="null: with epsilon by public numbers, so that noise in a score stays below .4; else 0.1",
    )
    momentum: float | None = Field(default=None, ge=0, lt=1, description="null: 0.8 or 0.9, with epsilon: null 0.9")
    weight_decay: float = Field(
        default=0.0, ge=0, le=1e2, allow_inf_nan=False, description="times a weight, added to its gradient"
    )
    scaling: LinearScaling = Field(default="standard", description="how each party scales its columns, over its whole table")
    shared_fraction: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="which part of the rows all parties own, about, where not everybody knows it from the alignment",
    )
    metrics_by: Literal["histogram", "none"] = Field(
        default="histogram", description="how the model is measured: by sums of a histogram in shares, or not at all"
    )
    bins: Literal[256, 1024] = Field(default=256, description="of the histogram; more are exacter where scores hardly vary")
    reveal: Literal["owners", "none"] = Field(
        default="none",
        description="owners: each party gets the weights of its own columns, which costs no more ε; none: they stay in shares",
    )
    dealer_audit: float = Field(
        default=0.0,
        ge=0,
        le=0.5,
        allow_inf_nan=False,
        description="which part of the coordinator's numbers is checked: so many batches are not trained on; two data parties",
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="salts the public schedule of batches, nothing else")

    @property
    def coordinated(self) -> bool:
        """Always: the coordinator deals randomness."""
        return True

    @override
    def opens(self, evaluate: Evaluate, shared: int | None = None) -> Exposure:
        kind, measures = self.unbounded, self.metrics_by == "histogram"
        of_metrics = (evaluate.epsilon or self.epsilon or spending.METRICS_EPSILON) if measures else None
        return Exposure(
            mu=spending.mu_of_job(self.epsilon, of_metrics, held_out=evaluate.test_fraction > 0),
            unbounded=kind or "",
            warning=spending.unbounded_warning(kind, evaluate, shared) if kind else "",
            labels=self.covers_labels,
            # weights without noise have another beginning each time, and sums are over other records
            anew=self.epsilon is None and (self.reveal == "owners" or measures),
        )

    @property
    def unbounded(self) -> UnboundedModel | None:
        """Which kind of model without a bound it is; None of one with a bound."""
        if self.layers:
            return "networks"
        if self.loss == "taylor":
            return "taylor"
        return "exact" if self.epsilon is None else None

    @property
    def outputs(self) -> int:
        """Models trained side by side: one for two classes and for a number, else one a class."""
        return 1 if self.classes == 2 else self.classes

    @property
    def form_loss(self) -> Loss:
        """What is descended."""
        if self.task == "classification":
            return self.loss
        return "squares" if self.epsilon is None else "robust"

    @property
    def covers_labels(self) -> bool:
        """Whether ε is about a label, too: the numbers of a regression must not be scaled by what the table says."""
        return self.task == "classification" or self.target_range is not None

    @property
    def batch(self) -> int:
        """Shared records of a batch, where there are batches."""
        return self.batch_size or USUAL_BATCH

    @model_validator(mode="before")
    @classmethod
    def _refuse_least_rows(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and "least_rows" in given:
            raise ValueError(
                "least_rows is no key of a job with hidden any more: leave it out; each owner says least_rows in the "
                "settings of its node"
            )
        return given

    @model_validator(mode="after")
    def _fits(self) -> Hidden:
        if self.task == "regression" and self.loss != "exact":
            raise ValueError("loss is for task: classification; a regression descends squared errors: leave it out")
        if self.target_range is not None and (self.task != "regression" or not self.target_range[0] < self.target_range[1]):
            raise ValueError("target_range is for task: regression: two numbers, [low, high], the second one larger")
        if self.epsilon is not None:
            self._check_bound()
        if self.layers and self.loss == "taylor":
            raise ValueError(
                "loss: taylor is good for small scores alone, which hidden layers do not keep small: say loss: exact"
            )
        return self

    def _check_bound(self) -> None:
        """What has no bound needs ``epsilon: null``. Raises ValueError."""
        unbounded = "hidden layers have" if self.layers else "loss: taylor has" if self.loss == "taylor" else ""
        if unbounded:
            raise ValueError(
                f"{unbounded} no bound on what the model tells of single records: say epsilon: null, which each party's owner "
                "must allow (unbounded_models); or leave it out, and say columns: bins for curves"
            )
        if self.batch_size:
            raise ValueError(
                "with epsilon each step takes all rows, as noise is dealt for each: leave batch_size out, and epochs and "
                "learning_rate, too, which public rules set; or say epsilon: null"
            )

    def check_export(self) -> None:
        """As the base: weights that stay in shares are in no half."""
        super().check_export()
        if self.reveal != "owners":
            raise ValueError(
                "export: with train.reveal: none the weights stay in shares, and no party has a half: say train.reveal: "
                "owners, or leave export out"
            )

    def check(self, job: TrainingJob) -> None:
        """As the base: one split, and no metrics that tell what dummies hide."""
        evaluate = job.evaluate
        if evaluate.repeats > 1:
            raise ValueError("evaluate.repeats must be 1 with hidden: sums over other rows held out tell of single rows")
        if evaluate.validation_fraction:
            raise ValueError(
                "evaluate.validation_fraction must be 0 with hidden: it does not stop early; say train.weight_decay"
            )
        if self.dealer_audit and len(job.parties.passive) > 1:
            raise ValueError(
                "train.dealer_audit must be 0 with several passive parties: a check takes masks that two parties show each "
                "other, and passive parties have no conversation"
            )
        if evaluate.share_with_passive and len(job.parties.passive) > 1 and not job.align.spec.every_row_is_shared:
            raise ValueError(
                "evaluate.share_with_passive must be false with several passive parties: metrics are counted over the records "
                f"that all share, and with {job.align.protocol} the active party alone knows how many these are"
            )
        if job.align.dummies and self.metrics_by != "none":
            raise ValueError(
                "train.metrics_by must be none with align.dummies: the numbers of labels that metrics are made of tell how "
                "many records are shared, which dummies hide"
            )
