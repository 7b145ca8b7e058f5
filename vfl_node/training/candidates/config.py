"""The job's ``train`` section for training over candidates (see docs/explanations/training/candidates.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from vfl_node.configuration.models import name_in
from vfl_node.configuration.renamed import Renamed
from vfl_node.job.training import TrainerParts, TrainingJob, Traits
from vfl_node.models import OPTIMISERS
from vfl_node.training.candidates.methods import CUTS, MERGES, METHODS, Method
from vfl_node.training.network.config import NetworkConfig, Sizes


class Linked(NetworkConfig):
    """A network over candidates and how it is trained. Defaults are those of FedSim's code for its largest data sets.

    Where dropout differs from the code :mod:`vfl_node.training.candidates.network` says.
    """

    parts: ClassVar[TrainerParts] = TrainerParts(
        implementation="vfl_node.training.candidates.trainer:LinkedTrainer",
        report_section="vfl_node.training.candidates.section:LinkedSection",
        plan="vfl_node.training.candidates.costs:LinkedPlan",
        table="vfl_node.training.network.table_use:NetworkTableUse",
        reveals="vfl_node.training.candidates.reveals:declare",
    )
    traits: ClassVar[Traits] = Traits(
        tasks=("classification", "regression"),
        by_similarity=True,
        measures=frozenset({"validation_fraction"}),
        recorded=True,
        unmetered="no attack was run on the embeddings and gradients that training over candidates sends",
    )

    called_elsewhere: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **NetworkConfig.called_elsewhere,
        "method": ("strategy", "mode"),
        "merge": ("merge_mode", "aggregation", "pooling"),
    }

    algorithm: Annotated[Literal["candidates"], Renamed({"linked": "candidates"})]
    model: Literal["mlp"] = "mlp"
    batch_norm: Literal[False] = False
    layer_norm: Literal[False] = False
    bottom: Sizes = Field(default=(200, 100), min_length=1)
    active_bottom: Sizes = Field(default=(200, 100), min_length=1)
    top: Sizes = Field(default=(100,), description="hidden layers of the local network, which reads a row beside a candidate")
    epochs: int = Field(default=30, ge=1, le=100_000)
    batch_size: int = Field(default=128, ge=1, le=1_000_000)
    optimizer: Annotated[str, name_in(OPTIMISERS)] = "lamb"
    learning_rate: float = Field(default=3e-3, gt=0, le=1e3, allow_inf_nan=False)
    dropout: float = Field(default=0.3, ge=0, le=0.99, description="share of each hidden layer that a training step sets to 0")
    weight_decay: float = Field(
        default=1e-5, ge=0, le=1e3, allow_inf_nan=False, description="times a weight: what is added to its gradient or step"
    )
    method: Annotated[str, name_in(METHODS)] = Field(
        default="fedsim",
        description="what a row makes of its candidates: fedsim weighs and merges them; mean of what each gives; top1: the "
        "nearest alone; feature: each is a sample of its own; exact: one with equal keys",
    )
    cut: Annotated[str, name_in(CUTS)] = Field(default="linear", description="last layer of each bottom: without ReLU")
    merge: Annotated[str, name_in(MERGES)] = Field(
        default="conv", description="fedsim: conv, along the candidates in the order of their similarity; mean, by weight"
    )
    pair_outputs: int = Field(
        default=10, ge=1, le=1024, description="fedsim with merge: conv: numbers that the local network gives of each candidate"
    )
    similarity_hidden: int = Field(default=10, ge=1, le=1024, description="fedsim: hidden units between similarity and weight")
    channels: int = Field(default=8, ge=1, le=256, description="merge: conv: channels of the convolution")
    kernel: int = Field(default=7, ge=1, le=1024, description="merge: conv: candidates that the convolution reads at once")
    merge_hidden: Sizes = Field(default=(400,), description="merge: conv: hidden layers after the convolution")

    @property
    def how(self) -> Method:
        """What ``method`` does."""
        return METHODS[self.method]

    @property
    def sorts(self) -> bool:
        """Whether candidates are merged in the order of their similarity."""
        return self.merge == "conv"

    @model_validator(mode="after")
    def _check_keys_of_method(self) -> Linked:
        unused = [] if self.how.gates else ["merge", "similarity_hidden"]
        if not (self.how.gates and self.sorts):
            unused += ["pair_outputs", "channels", "kernel", "merge_hidden"]
        said = [name for name in unused if getattr(self, name) != type(self).model_fields[name].default]
        if said:
            raise ValueError(f"{said[0]} changes nothing with method: {self.method} and merge: {self.merge}: leave it out")
        return self

    def check(self, job: TrainingJob) -> None:
        """As the base: ``exact`` needs one candidate with equal keys."""
        super().check(job)
        align = job.align
        if self.how.equal and not (align.equal_only and align.candidates == 1):
            raise ValueError(
                f"train.method: {self.method} uses one candidate with equal keys: say align.equal_only: true and "
                "align.candidates: 1"
            )
