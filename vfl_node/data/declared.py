"""What an owner declares of columns in the node's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from vfl_node.configuration import Frozen
from vfl_node.data.scaling import Scaling

Shape = tuple[int, int, int]
"""Channels, height and width."""

Size = Annotated[int, Field(ge=1, le=4096)]
"""Height or width of an image, or how many channels it has."""

Kind = Literal["numeric", "categorical", "date", "list", "ignore"]


class DeclaredColumn(Frozen):
    """A column of which its kind alone does not say it all."""

    kind: Literal["numeric", "date"]
    scaling: Scaling = Field(description="how its numbers are scaled, whatever the job's train.scaling says")


class DeclaredList(Frozen):
    """A column of lists of items, such as ``17|4|22``."""

    kind: Literal["list"] = "list"
    separator: str = Field(default="|", min_length=1, max_length=8, description="what stands between two items of a cell")
    longest: int = Field(default=50, ge=1, le=4096, description="most items of a cell that are read")
    keep: Literal["first", "last"] = Field(
        default="last", description="which items of a longer cell are read: the last ones are the newest of a history"
    )


class DeclaredImage(Frozen):
    """What an owner declares of the columns that are an image."""

    columns: Annotated[str, Field(min_length=1)] | Annotated[tuple[str, ...], Field(min_length=1)] = Field(
        description="their names in a list; or a pattern in which * stands for any text and ? for any character, which takes "
        "the columns in the table's order"
    )
    shape: Annotated[tuple[Size, ...], Field(min_length=2, max_length=3)] = Field(
        description="[height, width], or [channels, height, width]. Columns go row by row, channel after channel"
    )

    @model_validator(mode="after")
    def _distinct(self) -> DeclaredImage:
        if not isinstance(self.columns, str) and len(set(self.columns)) != len(self.columns):
            raise ValueError("columns: a column may be one pixel only")
        return self

    @property
    def dimensions(self) -> Shape:
        """Channels, height and width."""
        channels, height, width = self.shape if len(self.shape) == 3 else (1, *self.shape)
        return channels, height, width

    @property
    def named(self) -> tuple[str, ...]:
        """The columns that stand in a list; none of a pattern."""
        return () if isinstance(self.columns, str) else self.columns


def _short(declared: Any) -> Any:
    """``{kind: numeric}`` is ``numeric``."""
    return declared["kind"] if isinstance(declared, Mapping) and set(declared) == {"kind"} else declared


Declared = Annotated[Kind | DeclaredColumn | DeclaredList, BeforeValidator(_short)]


def kind_of(declared: Declared | None) -> Kind | None:
    """The kind that is declared, if any."""
    return declared if declared is None or isinstance(declared, str) else declared.kind


def list_of(declared: Declared | None) -> DeclaredList | None:
    """What is declared of a column of lists; None: it is another one."""
    if isinstance(declared, DeclaredList):
        return declared
    return DeclaredList() if declared == "list" else None


def scaling_of(declared: Declared | None) -> Scaling | None:
    """The scaling that is wished for, if any."""
    return declared.scaling if isinstance(declared, DeclaredColumn) else None


def kinds_of(columns: Mapping[str, Declared]) -> dict[str, Kind]:
    """Column → its declared kind."""
    return {name: column if isinstance(column, str) else column.kind for name, column in columns.items()}
