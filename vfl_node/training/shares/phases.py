"""What the phases of a training without a coordinator take, for reports; light: any command may ask."""

from __future__ import annotations

from pydantic import Field

from vfl_node.training.section import Count, Section

PHASES = ("setup", "offline", "online")
"""In their order."""


class PhaseFigures(Section):
    """What a phase took at this party, in its last attempt."""

    seconds: float = Field(description="of each piece of it; online without what is made ahead in between")
    rounds: Count = Field(description="messages that had to be waited for")
    bytes: Count = Field(description="that this party sent, without what frames add")
