"""Predictions after training: the job's ``serve`` and ``predict`` sections (see docs/prediction.md)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from vfl_node.configuration import Frozen
from vfl_node.job.training import FeatureStrategy

JobId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
"""What a node calls one run of a job."""

SERVED_FEATURES: FeatureStrategy = "smoothed"
"""``train.missing.features`` of a job with ``serve`` that says nothing of it: ``sampling`` elsewhere.

All predictions meet the same weights, under which a copied row is equal to its source. Predictions cannot stand in by
another strategy than training did: a row that changes where real ones stay is told by that (docs/prediction.md).
"""


class Serve(Frozen):
    """Predictions after training: both parties keep what they need for them (see docs/prediction.md)."""

    to: Literal["active", "passive", "both"] = Field(description="who may ask")
    batch_size: int = Field(
        default=256, ge=2, le=65_536, description="rows of an agreed batch, among which the wanted row is hidden"
    )


class Predict(Frozen):
    """Predictions by the model of an earlier job."""

    model: JobId = Field(description="the job that trained the model")
    to: Literal["active", "passive"] = Field(description="who asks, and gets the predictions")
    rows: Literal["known", "new"] = Field(
        default="known",
        description="known: requested rows of the model's alignment; new: all rows of a new alignment, by psi",
    )
