"""What ``report.json`` has of a party's own columns: what was done with each, and how well it was rebuilt."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vfl_node.data.dates import Part
from vfl_node.job.names import ScalingMethod
from vfl_node.training.section import Count, Section


class ColumnFigures(Section):
    """What was done with one of this party's own columns; no level and no other cell."""

    name: str
    kind: Literal["numeric", "categorical", "date", "list"]
    transform: ScalingMethod | Literal["cuts"] | None = Field(
        description="how numbers, or the days of a date, are scaled, or `cuts` into intervals; null for categories, and for a "
        "column that is left out"
    )
    levels: Count | None = Field(
        description="categorical: how many have a code of their own; list: likewise of items; null for another kind"
    )
    merged: Count | None = Field(
        description="categorical and list: how many others the table has: rare, or not in training rows"
    )
    parts: tuple[Part, ...] = Field(description="date: parts that are read as categories beside the days")
    missing: Count = Field(description="rows of this party's table without a value")
    cut: Count = Field(default=0, description="list: rows of this party's table with more items than are read")


class ColumnAudit(Section):
    """How well this party's own attacks rebuilt one of its columns from what it sent, in the first repeat.

    A success is an accuracy, an AUC or an R². The epoch that counts is chosen on one half of the judged rows, and every figure
    is that of the other half. It is null where it is not defined.
    """

    kind: Literal["categories", "flag", "number"] = Field(description="a flag is a column of two values, whatever they are")
    metric: Literal["accuracy", "auc", "r2"] = Field(description="what success means for it: by its kind, in that order")
    constant: float | None = Field(
        description="success of always giving the same answer: the share of the commonest category; of an AUC .5, of R² 0"
    )
    static: float | None = Field(description="fresh decoders of an epoch's embeddings; worst epoch")
    adaptive: float | None = Field(description="one decoder that learns in every step; worst epoch")
    stacked: float | None = Field(description="fresh decoders of last epochs side by side; worst epoch. After one as static")
    held_out: float | None = Field(
        description="fresh decoders of embeddings of rows held out or validated on, all by the same weights; null too where "
        "fewer than 100 could be judged"
    )
    projections: float | None = Field(default=None, description="fresh decoders of projections; worst epoch. null: none left")
    worst: float | None = Field(description="of the attack and epoch of the largest gain over the constant")
    attack: Literal["static", "adaptive", "stacked", "held_out", "projections"] | None = Field(description="which that is")
    epoch: int | None = Field(description="after how many epochs, from 1; those before the training with labels count")
    known: Count = Field(description="rows whose value the peer is assumed to know")
    judged: Count = Field(description="rows behind worst")
    figures: dict[str, float | None] = Field(
        description="metric → value of the worst attack: its success, and beside it error; of a flag error, recall, f1 and "
        "accuracy; of a number mse, in squared standard deviations"
    )
    constants: dict[str, float | None] = Field(
        description="metric → what always giving the commonest value, or the mean, has on the same rows"
    )
