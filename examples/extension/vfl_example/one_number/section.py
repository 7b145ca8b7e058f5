"""What the trainer ``one_number`` reports: ``training.one_number``."""

from __future__ import annotations

from pydantic import Field

from vfl_node.training.section import Section


class OneNumberSection(Section):
    """The line, at the active party."""

    slope: float | None = Field(description="change of the score with the number; null at the passive party")
