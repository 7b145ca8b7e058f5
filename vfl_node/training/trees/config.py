"""The job's ``train`` section for boosted trees in shares (see docs/guides/train-trees.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from vfl_node.gdp import MOST_EPSILON, Exposure
from vfl_node.job.evaluate import Evaluate
from vfl_node.job.training import ALWAYS, TrainerParts, Traits
from vfl_node.settings.limits import UnboundedModel
from vfl_node.training.shares.config import SharesConfig

MOST_ROWS = (1 << 22) * 100 // 101
"""Rows over which sums of gradients keep 8 fractional bits, of numbers 5."""

MOST_CANDIDATES = (1 << 13) - 1

MOST_TREES = 10_000
"""Trees of all classes together."""

USUAL_WITH_NOISE = {"trees": 200, "depth": 3}
"""What a job with ``epsilon`` takes where it does not say it."""


class Trees(SharesConfig):
    """Boosted trees on exactly the records that all parties have; nobody sees a split before the end."""

    parts: ClassVar[TrainerParts] = TrainerParts(
        implementation="vfl_node.training.trees.trainer:TreesTrainer",
        report_section="vfl_node.training.trees.section:TreesSection",
        plan="vfl_node.training.trees.costs:TreesTrainingPlan",
        table="vfl_node.training.trees.table_use:TreesTableUse",
        serving="vfl_node.training.trees.predictor:TreesPredictor",
        joined="vfl_node.training.trees.predictor:predict",
        reveals="vfl_node.training.trees.reveals:declare",
        serving_reveals="vfl_node.training.shares.reveals:declare_served",
    )
    traits: ClassVar[Traits] = Traits(
        tasks=("classification", "regression"),
        unit="tree",
        max_passive_parties=3,
        coordinated_by=ALWAYS,
        on_device=False,
        unmetered="nothing of a row is sent in the open; what is opened at the end stands in the ledger",
        opens_rows=False,
        serves_unshared=False,
        serves_coordinated=True,
    )
    title: ClassVar[str] = "trees"
    far_scores: ClassVar[tuple[int, int]] = (12, 14)  # a sum of 13 sines is off by .02 at 14, and has the wrong sign from 16 on

    algorithm: Literal["trees"]
    classes: int = Field(default=2, ge=2, le=64, description="labels are 0 to classes - 1; above 2, each has its own trees")
    epsilon: float | None = Field(
        default=None,
        gt=0,
        le=MOST_EPSILON,
        allow_inf_nan=False,
        description="ε of the model, with a δ of 10⁻⁶: how well all that is opened tells whether one record is shared, or its "
        "label. Splits are drawn, and leaves have noise. null: no noise and no bound, where each owner allows it",
    )
    trees: int = Field(
        default=50,
        ge=1,
        le=1000,
        description="how many are added up; of several classes as many for each; with epsilon 200 if the job does not say it",
    )
    depth: int = Field(
        default=5, ge=1, le=8, description="levels of splits of a tree, which has 2^depth leaves; with epsilon 3"
    )
    bins: int = Field(default=16, ge=2, le=64, description="intervals that each party cuts a column of numbers into, at most")
    learning_rate: float = Field(
        default=0.1, ge=0.001, le=1, allow_inf_nan=False, description="what the values of a tree's leaves are multiplied by"
    )
    l2: float = Field(default=1.0, ge=0, le=100, allow_inf_nan=False, description="λ, added to the sum of hessians of a leaf")
    min_gain: float = Field(
        default=0.01, ge=0, le=1e6, allow_inf_nan=False, description="a node in which no split gains more is not split"
    )
    least_rows: int = Field(
        default=20,
        ge=1,
        le=1_000_000,
        description="shared records on each side of a split, at least, that count in the tree; and own records on each side of "
        "a candidate. With epsilon the latter alone",
    )
    row_fraction: float = Field(
        default=1.0,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="which part of the rows counts in a tree, drawn anew in public for each, whatever the rows are; below 1 "
        "with leaves: none alone",
    )
    reveal: Literal["owners", "none"] = Field(
        default="owners",
        description="owners: each party gets the splits on its own columns; none: they stay in shares",
    )
    leaves: Literal["active", "none"] = Field(
        default="active", description="active: the active party gets the values of the leaves; none: they stay in shares"
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="salts which rows are held out, and which count in a tree")

    @property
    @override
    def model_epsilon(self) -> float | None:
        return self.epsilon

    @property
    @override
    def unbounded(self) -> UnboundedModel | None:
        return "boosted-trees" if self.epsilon is None else None

    @override
    def opens(self, evaluate: Evaluate, shared: int | None = None) -> Exposure:
        opens = super().opens(evaluate, shared)
        leaves = self.epsilon is None and self.leaves == "active"
        return replace(opens, anew=opens.anew or leaves)  # leaves are others each time

    @property
    def loss(self) -> Literal["log", "squares"]:
        """What is descended."""
        return "log" if self.task == "classification" else "squares"

    @model_validator(mode="before")
    @classmethod
    def _fill_usual(cls, given: Any) -> Any:
        """With noise many small trees are better than a few large ones."""
        noised = isinstance(given, Mapping) and given.get("epsilon") is not None
        return {**USUAL_WITH_NOISE, **given} if noised else given

    @model_validator(mode="after")
    def _fits(self) -> Trees:
        if self.target_range is not None and (self.task != "regression" or not self.target_range[0] < self.target_range[1]):
            raise ValueError("target_range is for task: regression: two numbers, [low, high], the second one larger")
        if self.trees * self.outputs > MOST_TREES:
            raise ValueError(
                f"train.trees: {self.trees} of each of {self.outputs} classes are more than {MOST_TREES:,} trees: say "
                f"{MOST_TREES // self.outputs} at most"
            )
        if self.epsilon is not None:
            self._check_noised()
        if self.row_fraction < 1 and self.leaves != "none":
            raise ValueError(
                "train.row_fraction below 1 needs leaves: none, since leaves of many trees over other rows each would tell "
                "which records are shared. Say leaves: none, or leave row_fraction out"
            )
        return self

    def _check_noised(self) -> None:
        without = "leave epsilon out, where each party's owner allows that (unbounded_models)"
        if self.task == "regression":
            raise ValueError(
                "epsilon of trees is for task: classification, whose gradients are bounded: "
                f"{without}; or say algorithm: hidden with columns: bins"
            )
        if self.classes > 2:
            raise ValueError(
                f"epsilon of trees is for two classes, since no noise is counted for a record in the trees of {self.classes}: "
                f"{without}; or say algorithm: hidden with columns: bins"
            )
        if self.row_fraction < 1:
            raise ValueError(
                "train.row_fraction must be 1 with train.epsilon: noise is counted as if each record were in every tree. Leave "
                f"row_fraction out, or {without}"
            )
