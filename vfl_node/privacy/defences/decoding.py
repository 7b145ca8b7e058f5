"""The keys of a defence that protects named columns from a decoder which it trains itself."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import override

from vfl_node.settings.defences import DefenceParams
from vfl_node.settings.protection import ColumnNames

LayerWidth = Annotated[int, Field(ge=1, le=4096)]


class ColumnParams(DefenceParams):
    """Keys of a defence of columns."""

    columns: ColumnNames | Literal["all"] = Field(
        description="columns of this party's table that are protected; all: every one that varies"
    )

    @property
    def names(self) -> tuple[str, ...]:
        """The columns; none: all."""
        return () if self.columns == "all" else self.columns

    @property
    @override
    def trains(self) -> bool:
        return True

    @property
    def column_words(self) -> str:
        """The columns in words, for the owner's report."""
        return "all columns" if self.columns == "all" else ", ".join(self.columns)


class DecoderParams(ColumnParams):
    """Keys of a defence that simulates an attacker: a decoder that knows the embeddings and columns of all rows."""

    decoder: tuple[LayerWidth, ...] = Field(
        default=(128, 128), max_length=8, description="widths of the simulated decoder's hidden layers; none makes it linear"
    )
    decoder_steps: int = Field(default=1, ge=1, le=1000, description="steps of the simulated decoder each time that it learns")
    decoder_rate: float = Field(default=3e-3, gt=0, le=1, description="learning rate of the simulated decoder (Adam)")
