"""What an owner declares of a column in the node's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from vfl_node.configuration import Frozen
from vfl_node.data.scaling import Scaling

Kind = Literal["numeric", "categorical", "date", "ignore"]


class DeclaredColumn(Frozen):
    """A column of which its kind alone does not say it all."""

    kind: Literal["numeric", "date"]
    scaling: Scaling = Field(description="how its numbers are scaled, whatever the job's train.scaling says")


def _short(declared: Any) -> Any:
    """``{kind: numeric}`` is ``numeric``."""
    return declared["kind"] if isinstance(declared, Mapping) and set(declared) == {"kind"} else declared


Declared = Annotated[Kind | DeclaredColumn, BeforeValidator(_short)]


def kind_of(declared: Declared | None) -> Kind | None:
    """The kind that is declared, if any."""
    return declared.kind if isinstance(declared, DeclaredColumn) else declared


def scaling_of(declared: Declared | None) -> Scaling | None:
    """The scaling that is wished for, if any."""
    return declared.scaling if isinstance(declared, DeclaredColumn) else None


def kinds_of(columns: Mapping[str, Declared]) -> dict[str, Kind]:
    """Column → its declared kind."""
    return {name: column.kind if isinstance(column, DeclaredColumn) else column for name, column in columns.items()}
