"""What networks of two halves have in common in a job's ``train`` section: their layers, and how they are trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field, model_validator
from typing_extensions import Self

from vfl_node.configuration.models import name_in
from vfl_node.job.evaluate import EARLY_STOPPING
from vfl_node.job.names import Scaling
from vfl_node.job.training import TrainerConfig, TrainingJob
from vfl_node.models import OPTIMISERS
from vfl_node.models.settings import ModelName
from vfl_node.roles import NUMBER_TASKS
from vfl_node.training.class_weight import ClassWeight, check_class_weight
from vfl_node.training.network.rate import SCHEDULES

Sizes = Annotated[tuple[Annotated[int, Field(ge=1, le=65536)], ...], Field(max_length=64)]


class NetworkConfig(TrainerConfig):
    """The halves of a network and how they are trained by :func:`vfl_node.training.network.loop.train`.

    Sizes are layer widths; the last bottom width is the cut layer.
    """

    called_elsewhere: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "learning_rate": ("lr", "eta", "step_size"),
        "epochs": ("n_epochs", "num_epochs", "max_iter", "iterations"),
        "bottom": ("layers", "hidden", "hidden_layers", "hidden_sizes", "hidden_layer_sizes"),
        "embedding_size": ("embedding_dim", "embed_dim"),
        "learning_rate_schedule": ("lr_schedule", "lr_scheduler", "lr_scheduler_type", "scheduler", "schedule"),
        "warmup_steps": ("warmup", "num_warmup_steps", "n_warmup_steps"),
        "weight_decay": ("l2", "alpha", "reg_lambda"),
        "task": ("objective", "problem", "problem_type"),
        "class_weight": ("class_weights", "pos_weight", "scale_pos_weight"),
        "scaling": ("scaler", "normalise", "normalize", "standardise", "standardize", "preprocessing"),
        "least_rows": ("min_frequency", "min_count", "rare"),
    }
    together: ClassVar[Mapping[tuple[str, ...], tuple[str, ...]]] = EARLY_STOPPING

    model: ModelName = Field(
        default="mlp", description="mlp, wide_deep, cnn, youtube_dnn, or a model that every data party's node has declared"
    )
    classes: int = Field(default=2, ge=2, le=64, description="classification: labels are 0 to classes - 1")
    bottom: Sizes = Field(default=(128, 128), min_length=1)
    active_bottom: Sizes = Field(default=(32,), min_length=1)
    top: Sizes = (128, 128)
    scaling: Scaling = Field(
        default="auto",
        description="how each party scales its numbers, on its own training rows; auto: standard, or quantile or log for "
        "a column with heavy tails. An owner's wish for a column (data.columns) comes first",
    )
    least_rows: int = Field(
        default=10,
        ge=0,
        description="levels of a category that fewer of a party's training rows have are merged into one, because so few rows "
        "are learnt by heart; 0: every level stays",
    )
    embedding_size: int = Field(default=4, ge=1, le=1024)
    epochs: int = Field(default=10, ge=1, le=100_000)
    batch_size: int = Field(default=256, ge=1, le=1_000_000)
    optimizer: Annotated[str, name_in(OPTIMISERS)] = "adam"
    learning_rate: float = Field(default=1e-3, gt=0, le=1e3, allow_inf_nan=False)
    learning_rate_schedule: Annotated[str, name_in(SCHEDULES)] = Field(
        default="constant", description="how learning_rate falls over the steps of all epochs: not at all, or to 0"
    )
    warmup_steps: int = Field(
        default=0, ge=0, le=1_000_000_000, description="first steps, over which the learning rate rises evenly to learning_rate"
    )
    patience: int = Field(
        default=5,
        ge=1,
        le=100_000,
        description="with evaluate.validation_fraction: epochs without a smaller validation loss before training stops",
    )
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
    class_weight: ClassWeight = None
    seed: int = Field(default=0, ge=0, lt=2**63, description="salts the public schedule of batches, nothing else")

    @property
    def outputs(self) -> int:
        """Logits a row: one for two classes and for a number, else one a class."""
        return 1 if self.classes == 2 else self.classes

    @model_validator(mode="after")
    def _check_normalisation(self) -> Self:
        if self.batch_norm and self.layer_norm:
            raise ValueError("batch_norm and layer_norm exclude each other: choose one")
        if self.batch_norm and self.batch_size == 1:
            raise ValueError("batch_norm needs a batch_size of 2 or more: a batch of one row has no variance")
        if self.layer_norm and 1 in (*self.bottom, *self.active_bottom, *self.top):
            raise ValueError("layer_norm needs layers of 2 units or more: one unit alone is always its own mean")
        return self

    @model_validator(mode="after")
    def _check_class_weight(self) -> Self:
        if self.class_weight is not None and self.task in NUMBER_TASKS:
            raise ValueError(f"class_weight is for classes: a {self.task} predicts a number. Leave it out")
        check_class_weight(self.class_weight, self.classes)
        return self

    @property
    def exchanged_before(self) -> int:
        """Epochs without labels in which batches cross the wire, before the training with labels."""
        return 0

    def check(self, job: TrainingJob) -> None:
        """As the base: patience is for jobs with validation rows."""
        if self.patience != type(self).model_fields["patience"].default and not job.evaluate.validation_fraction:
            raise ValueError(
                "train.patience counts epochs by the loss on validation rows, and there are none: say "
                "evaluate.validation_fraction (0.1, for example), or leave it out"
            )
