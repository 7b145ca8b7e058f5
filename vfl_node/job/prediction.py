"""Predictions after training: the job's ``serve`` and ``predict`` sections (see docs/guides/give-predictions.md)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vfl_node.configuration.models import Frozen
from vfl_node.job.names import JobId, Name


class Serve(Frozen):
    """Predictions after training: all data parties keep what they need for them (see docs/guides/give-predictions.md)."""

    to: Name = Field(description="who may ask: active, passive (every passive party), both, or a party by its name")
    batch_size: int = Field(
        default=256, ge=2, le=65_536, description="rows of an agreed batch, among which the wanted row is hidden"
    )


class Predict(Frozen):
    """Predictions by the model of an earlier job."""

    model: JobId = Field(description="the job that trained the model")
    to: Name = Field(
        description="who asks, and gets the predictions: active, passive, or where there are several passive parties one's name"
    )
    rows: Literal["known", "new"] = Field(
        default="known",
        description="known: requested rows of the model's alignment; new: all rows of a new alignment without missing rows",
    )
