"""The job's ``statistics`` section (see docs/guides/look-before-training.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from vfl_node.gdp import MOST_EPSILON, Exposure
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.evaluate import Evaluate
from vfl_node.job.training import ALWAYS, TrainerParts, TrainingJob, Traits
from vfl_node.settings.limits import UnboundedModel
from vfl_node.training.shares.config import SharesConfig

MOST_ROWS = 1 << 22
"""Rows of the shared order: so numbers of records are below 2²³, noise included."""

MOST_COLUMNS = 1 << 13
"""Columns of a party: their figures are one message."""


class Statistics(SharesConfig):
    """Bins of each party's columns, counted by label over exactly the records that all parties have."""

    parts: ClassVar[TrainerParts] = TrainerParts(
        implementation="vfl_node.training.statistics.trainer:StatisticsTrainer",
        report_section="vfl_node.training.statistics.section:StatisticsSection",
        plan="vfl_node.training.statistics.costs:StatisticsTrainingPlan",
        table="vfl_node.training.statistics.table_use:StatisticsTableUse",
        reveals="vfl_node.training.statistics.reveals:declare",
    )
    traits: ClassVar[Traits] = Traits(
        unit="block of columns",
        max_passive_parties=3,
        coordinated_by=ALWAYS,
        on_device=False,
        unmetered="nothing of a row is sent in the open; what is opened at the end stands in the ledger",
        opens_rows=False,
        serves_unshared=False,
    )
    ways: ClassVar[tuple[Mapping[str, Any], ...]] = ()  # to train: there is no model
    title: ClassVar[str] = "statistics"

    algorithm: Literal["statistics"]
    classes: Literal[2] = 2
    bins: int = Field(
        default=10,
        ge=2,
        le=64,
        description="intervals that each party cuts a column of numbers into, and levels of one, at most",
    )
    epsilon: float | None = Field(
        default=1.0,
        gt=0,
        le=MOST_EPSILON,
        allow_inf_nan=False,
        description="what all numbers of records that are opened spend; null: no number is opened, but rounded results without "
        "noise, which each owner must allow",
    )
    least_rows: int = Field(
        default=20,
        ge=1,
        le=1_000_000,
        description="records of either label in a bin, at least; bins with fewer are taken together. And own records that a "
        "column must set apart",
    )
    correlations: bool = Field(
        default=False,
        description="whether columns of all parties are compared with each other, too (Pearson, VIF, what a partner adds); all "
        "parties get these numbers, and both share what epsilon allows",
    )
    worth: bool = Field(
        default=False,
        description="with epsilon: null, also tell how many bits each passive party's column says of the label beyond what the "
        "active party's own columns say",
    )
    metrics_by: Literal["none"] = "none"
    reveal: Literal["none"] = "none"
    target_range: None = None
    seed: int = Field(default=0, ge=0, lt=2**63, description="salts which rows are held out, nothing else")

    @property
    def model_epsilon(self) -> float | None:
        """ε of the counts."""
        return self.epsilon

    @property
    @override
    def unbounded(self) -> UnboundedModel | None:
        return "rounded-statistics" if self.epsilon is None else None

    @override
    def opens(self, evaluate: Evaluate, shared: int | None = None) -> Exposure:
        return replace(super().opens(evaluate, shared), anew=self.epsilon is None)  # other bins, and other records held out

    @override
    def check(self, job: TrainingJob) -> None:
        """As the base: passive parties get figures only where they may know how many records are shared."""
        super().check(job)
        if self.correlations and self.epsilon is None:
            raise ValueError("statistics.correlations needs statistics.epsilon: without noise products of columns tell of rows")
        if self.worth and self.epsilon is not None:
            raise ValueError("statistics.worth needs statistics.epsilon: null: with noise say statistics.correlations")
        spec = ALIGNMENTS[job.align.protocol]
        hidden = "passive" in spec.intersection_hidden_from
        hidden |= len(job.parties.passive) > 1 and not spec.every_row_is_shared
        if hidden or job.align.dummies:
            why = "align.dummies" if job.align.dummies else f"align.protocol: {job.align.protocol}"
            raise ValueError(
                f"statistics do not run with {why}: figures of their columns tell passive parties how many records are shared, "
                "and that is hidden from them. Say align: {protocol: psi}, or psu with one passive party and without dummies"
            )
