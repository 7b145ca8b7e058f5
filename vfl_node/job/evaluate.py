"""What is measured: the job's ``evaluate`` section (see docs/training.md)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from vfl_node.configuration import Frozen

Metric = Literal["auc", "ace", "nll", "accuracy"]


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
