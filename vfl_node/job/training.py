"""What is trained and measured: the job's ``train`` and ``evaluate`` sections (see docs/training.md, docs/logistic.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from vfl_node.configuration import Frozen, name_in
from vfl_node.models import ARCHITECTURES, OPTIMISERS

Metric = Literal["auc", "ace", "nll", "accuracy"]
Sizes = Annotated[tuple[Annotated[int, Field(ge=1, le=65536)], ...], Field(max_length=64)]
Flow = Literal["two-party", "coordinator", "coordinator-clear"]
Scaling = Literal["standard", "unit", "none"]
LabelStrategy = Literal["majority", "minority", "random-pos", "random-pred", "neighbors", "none"]
FeatureStrategy = Literal["sampling", "smoothed", "gaussian", "random", "naive", "none"]


class OwnedShares(Frozen):
    """What share of the shared rows each party owns, where the alignment hides it: an agreed guess."""

    active: float = Field(gt=0, le=1, description="p_a: share of the rows with a real label")
    passive: float = Field(gt=0, le=1, description="p_p: share of the rows with real features of the passive party")


class Missing(Frozen):
    """What stands in for a row that a party does not own (see docs/training.md)."""

    labels: LabelStrategy = "majority"
    draws: int = Field(
        default=1, ge=1, le=100, description="random-pred only: labels drawn for each row and step; their mean is used"
    )
    features: FeatureStrategy = "sampling"
    calibration: Literal["none", "train", "test"] = Field(
        default="none", description="whether and when probabilities are corrected for synthetic rows"
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
    model: Annotated[str, name_in(ARCHITECTURES)] = "mlp"
    classes: int = Field(default=2, ge=2, le=64, description="labels are 0 to classes - 1")
    bottom: Sizes = Field(default=(128, 128), min_length=1)
    active_bottom: Sizes = Field(default=(32,), min_length=1)
    top: Sizes = (128, 128)
    embedding_size: int = Field(default=4, ge=1, le=1024)
    epochs: int = Field(default=10, ge=1, le=100_000)
    batch_size: int = Field(default=256, ge=1, le=1_000_000)
    optimizer: Annotated[str, name_in(OPTIMISERS)] = "adam"
    learning_rate: float = Field(default=1e-3, gt=0, le=1e3, allow_inf_nan=False)
    batch_norm: bool = Field(default=False, description="scale each hidden layer by mean and variance of the batch")
    layer_norm: bool = Field(default=False, description="scale each hidden layer by mean and variance of the row")
    dropout: float = Field(default=0.0, ge=0, le=0.99, description="share of each hidden layer that a training step sets to 0")
    weight_decay: float = Field(
        default=0.0, ge=0, le=1e3, allow_inf_nan=False, description="times a weight: what is added to its gradient"
    )
    clip: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="largest norm of the gradient of all weights of one party's half; null: any. What is sent is not clipped",
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="salts the public schedule of batches, nothing else")
    missing: Missing = Missing()

    @property
    def outputs(self) -> int:
        """Logits a row: one for two classes, else one a class."""
        return 1 if self.classes == 2 else self.classes

    @model_validator(mode="after")
    def _normalisable(self) -> Train:
        if self.batch_norm and self.layer_norm:
            raise ValueError("batch_norm and layer_norm exclude each other: choose one")
        if self.batch_norm and self.batch_size == 1:
            raise ValueError("batch_norm needs a batch_size of 2 or more: a batch of one row has no variance")
        if self.layer_norm and 1 in (*self.bottom, *self.active_bottom, *self.top):
            raise ValueError("layer_norm needs layers of 2 units or more: one unit alone is always its own mean")
        return self

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
        description="who decrypts, and whether the active party sees scores. two-party: the active party, and yes; "
        "coordinator-clear: a coordinator, and yes; coordinator: a coordinator, and no",
    )
    labels: Literal["active", "passive"] = Field(default="active", description="which party has the label column")
    classes: int = Field(default=2, ge=2, le=64, description="labels are 0 to classes - 1; above 2, one model for each class")
    loss: Literal["exact", "taylor"] = Field(default="exact", description="logistic loss, or its second-order polynomial at 0")
    mask: Literal["additive", "multiplicative"] = Field(
        default="additive", description="how a gradient is hidden from the party that decrypts it"
    )
    scaling: Scaling = Field(default="standard", description="how each party scales its columns, over its whole table")
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
        default=False, description="faster encryption that relies on one more assumption (see docs/logistic.md)"
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
        default=False, description="send loss and metrics, which derive from labels, to the passive party"
    )
    matched: bool = Field(
        default=False, description="psu only: metrics also on the held-out rows that both own, by histograms under encryption"
    )

    @model_validator(mode="after")
    def _repeats_need_a_split(self) -> Evaluate:
        if self.repeats > 1 and self.test_fraction == 0:
            raise ValueError("repeats above 1 need a test_fraction above 0")
        return self


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
