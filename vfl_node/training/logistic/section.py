"""What logistic regression alone reports: ``training.logistic``."""

from __future__ import annotations

from pydantic import Field

from vfl_node.training.logistic.config import Flow
from vfl_node.training.section import Count, Section


class LogisticSection(Section):
    """What only a logistic regression has; of a party that this one knows nothing of there is no entry, or null."""

    flow: Flow = Field(description="who decrypts, and what the active party sees of scores")
    rows: Count | None = Field(description="shared rows trained on, dummies included; null if not known to this party")
    features: dict[str, Count | None] = Field(
        description="party → encoded columns; null for a party of which this one does not know it"
    )
    rounds: Count = Field(description="gradients computed under encryption")
    decryptions: dict[str, Count] = Field(description="party → values decrypted for it, as far as this party knows")
    decrypted_bits: dict[str, Count] = Field(description="party → bits it was told of these, whatever they were of")
    dropped: tuple[str, ...] = Field(default=(), description="this party's own columns left out")
