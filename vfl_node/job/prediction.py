"""Predictions after training: the job's ``serve`` and ``predict`` sections (see docs/prediction.md)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from vfl_node.configuration import Frozen, text_like

JobId = Annotated[str, text_like(r"^[a-z0-9][a-z0-9-]{0,62}$", "the id of a job: small letters, digits and hyphens")]
"""What a node calls one run of a job."""


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
        description="known: requested rows of the model's alignment; new: all rows of a new alignment without missing rows",
    )
