"""Which column has a party's labels, and which of two classes is the positive one: ``data.label`` of its settings."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from vfl_node.configuration import Frozen


def _as_written(value: object) -> object:
    """YAML reads ``yes``, ``true`` and ``1`` without quotes as what they mean; a table has them as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, int | float) else value


class LabelSource(Frozen):
    """The column of labels; of two classes also the positive one."""

    column: str = Field(min_length=1, description="its name")
    positive: Annotated[str, BeforeValidator(_as_written), Field(min_length=1)] | None = Field(
        default=None, description="two classes: the one whose probability is predicted, as the table writes it; None: the last"
    )


def _named(value: object) -> object:
    return {"column": value} if isinstance(value, str) else value


LabelAsWritten = Annotated[LabelSource, BeforeValidator(_named)]
"""A column name alone, or keys and values."""
