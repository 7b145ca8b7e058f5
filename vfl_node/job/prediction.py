"""Predictions after training: the job's ``serve`` and ``predict`` sections (see docs/guides/give-predictions.md)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from vfl_node.configuration.models import Frozen
from vfl_node.job.alignment import ALIGNMENTS, ProtocolName
from vfl_node.job.names import JobId, Name


class Serve(Frozen):
    """Predictions after training: all data parties keep what they need for them (see docs/guides/give-predictions.md)."""

    to: Name = Field(description="who may ask: active, passive (every passive party), both, or a party by its name")
    batch_size: int = Field(
        default=256, ge=2, le=65_536, description="rows of an agreed batch, among which the wanted row is hidden"
    )
    align: ProtocolName | None = Field(
        default=None,
        description="the protocol by which new records are aligned: one in which all parties own each row, such as psi or "
        "upsi. null: that of the training, or psi where that is no such one",
    )

    @model_serializer(mode="wrap")
    def _serialise(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without an ``align`` that is not said, so that jobs from before there was the key are the same."""
        fields: dict[str, Any] = written(self)
        if self.align is None:
            fields.pop("align", None)
        return fields

    def check(self, passive: int) -> None:
        """Refuse an ``align`` by which the new records of these parties are not aligned.

        Args:
            passive: how many passive parties there are.

        Raises:
            ValueError: it is such a one; the text is for the owner.
        """
        if self.align is None:
            return
        spec = ALIGNMENTS[self.align]
        if not spec.every_row_is_shared:
            raise ValueError(
                f"serve.align is for protocols in which all parties own each row, such as psi, and not {spec.name}"
            )
        if passive > spec.several.most:
            most, why = spec.several.most, spec.several.why_not_more
            raise ValueError(f"serve.align: {spec.name} aligns with {most} of parties.passive at most: {why}")


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
