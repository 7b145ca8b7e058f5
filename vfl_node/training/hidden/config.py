"""The job's ``train`` section for training in shares (see docs/guides/train-hidden.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from vfl_node.crypto.shares.paired.blocks import LEAST_ROWS
from vfl_node.gdp import MOST_EPSILON
from vfl_node.job.names import ColumnTransform, LinearScaling
from vfl_node.job.training import TrainerParts, TrainingJob, Traits
from vfl_node.settings.limits import UnboundedModel
from vfl_node.training.shares import spending
from vfl_node.training.shares.config import SharesConfig

Loss = Literal["exact", "taylor", "squares", "robust"]
"""What is descended; ``robust`` is the bounded one of numbers, 2σ(2r) − 1 of a residual r."""

USUAL_EPOCHS, USUAL_BATCH, USUAL_RATE, USUAL_MOMENTUM = 10, 512, 0.1, 0.9
"""What a training without a bound, in batches, takes where the job does not say it."""


class Hidden(SharesConfig):
    """A model trained in shares on exactly the records that all parties have (see docs/guides/train-hidden.md)."""

    parts: ClassVar[TrainerParts] = TrainerParts(
        implementation="vfl_node.training.hidden.trainer:HiddenTrainer",
        report_section="vfl_node.training.hidden.section:HiddenSection",
        plan="vfl_node.training.hidden.plan:HiddenTrainingPlan",
        table="vfl_node.training.hidden.table_use:HiddenTableUse",
        exported="vfl_node.training.hidden.exported:HiddenHalf",
        serving="vfl_node.training.hidden.predictor:HiddenPredictor",
        joined="vfl_node.training.hidden.predictor:predict",
        reveals="vfl_node.training.hidden.reveals:declare",
        serving_reveals="vfl_node.training.shares.reveals:declare_served",
    )
    traits: ClassVar[Traits] = Traits(
        tasks=("classification", "regression"),
        max_passive_parties=8,
        coordinated_by="randomness: coordinator",
        on_device=False,
        unmetered="nothing of a row is sent in the open; what is opened at the end has a stated cost (training.hidden.privacy)",
        opens_rows=False,
        serves_unshared=False,
        serves_coordinated=True,
    )

    ways: ClassVar[tuple[Mapping[str, Any], ...]] = ({}, {"randomness": "parties"})
    title: ClassVar[str] = "hidden"
    far_scores: ClassVar[tuple[int, int]] = (24, 32)  # a sum of nine sines has the wrong sign from 32 on
    renamed: ClassVar[Mapping[str, str]] = {"hidden": "layers"}

    algorithm: Literal["hidden"]
    classes: int = Field(default=2, ge=2, le=64, description="labels are 0 to classes - 1; above 2, one model for each class")
    epsilon: float | None = Field(
        default=1.0,
        gt=0,
        le=MOST_EPSILON,
        allow_inf_nan=False,
        description="ε of the model, with a δ of 10⁻⁶: how well all that is opened tells whether one record is shared, or its "
        "label. Noise is added in shares. null: no noise and no bound, where each owner allows it",
    )
    columns: Literal["plain", "bins"] = Field(
        default="plain",
        description="bins: each owner adds to each number eight levels by its quantiles, so that a regression follows curves",
    )
    transform: ColumnTransform = Field(
        default="none",
        description="woe: each party replaces each column by the weights of evidence of its bins, which an earlier job with "
        "statistics has counted over the alignment that is used again (align.reuse)",
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
    bins: Literal[256, 1024] = Field(default=256, description="of the histogram; more are exacter where scores hardly vary")
    randomness: Literal["coordinator", "parties"] = Field(
        default="coordinator",
        description="who makes what masks need: coordinator: a third party deals it; parties: the two data parties make it "
        "themselves, and nobody else takes part (experimental)",
    )
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
    @override
    def reads_evidence(self) -> bool:
        return self.transform == "woe"

    @property
    @override
    def model_epsilon(self) -> float | None:
        return self.epsilon

    @property
    def unbounded(self) -> UnboundedModel | None:
        """Which kind of model without a bound it is; None of one with a bound."""
        if self.layers:
            return "networks"
        if self.loss == "taylor":
            return "taylor"
        return "exact" if self.epsilon is None else None

    @property
    @override
    def coordinated(self) -> bool:
        """Unless the data parties make their randomness themselves."""
        return self.randomness == "coordinator"

    @property
    @override
    def is_experimental(self) -> bool:
        """Without a coordinator."""
        return not self.coordinated

    @property
    @override
    def prepares(self) -> bool:
        """Without a coordinator."""
        return not self.coordinated

    @property
    @override
    def far_score(self) -> int:
        """Beyond which scores are counted, about; without a coordinator from ±16 on."""
        return super().far_score if self.coordinated else 16

    @property
    def draws(self) -> int:
        """How many parties draw noise of the full width: each of both, where no coordinator does."""
        return 1 if self.coordinated else 2

    @property
    def form_loss(self) -> Loss:
        """What is descended."""
        if self.task == "classification":
            return self.loss
        return "squares" if self.epsilon is None else "robust"

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
        if not self.coordinated:
            self._check_parties()
        if self.transform == "woe" and self.columns == "bins":
            raise ValueError(
                "columns: bins cuts numbers into levels, which transform: woe has done before: leave one of them out"
            )
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

    def _check_parties(self) -> None:
        """What two parties cannot do without a dealer. Raises ValueError."""
        if self.layers:
            raise ValueError(
                "randomness: parties trains logistic and linear regression: leave layers out (columns: bins follows curves), "
                "or say randomness: coordinator"
            )
        if self.batch_size is not None and self.batch_size < LEAST_ROWS:
            raise ValueError(
                f"batch_size is {self.batch_size}: with randomness: parties a batch is of whole ciphertexts, of at least "
                f"{LEAST_ROWS} rows each: say {LEAST_ROWS} or more"
            )
        if self.dealer_audit:
            raise ValueError("dealer_audit checks a coordinator, and with randomness: parties there is none: leave it out")

    def check_export(self) -> None:
        """As the base: weights that stay in shares are in no half."""
        super().check_export()
        if self.reveal != "owners":
            raise ValueError(
                "export: with train.reveal: none the weights stay in shares, and no party has a half: say train.reveal: "
                "owners, or leave export out"
            )

    def check(self, job: TrainingJob) -> None:
        """As the base, and audits are for two data parties."""
        super().check(job)
        if not self.coordinated and len(job.parties.passive) > 1:
            raise ValueError(
                "train.randomness: parties is for one passive party: with several, name a coordinator and say randomness: "
                "coordinator"
            )
        if self.dealer_audit and len(job.parties.passive) > 1:
            raise ValueError(
                "train.dealer_audit must be 0 with several passive parties: a check takes masks that two parties show each "
                "other, and passive parties have no conversation"
            )

    @override
    def meter(self, columns: int, records: int, trainings: int) -> str:
        return spending.meter(columns, records, trainings) if self.reveal == "owners" else ""
