"""What split training alone reports: ``training.split``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from vfl_node.training.section import Attacks, Count, Section


class Strategies(Section):
    """How rows were filled in that are not real at both parties."""

    labels: str | None = Field(description="for a label that the active party lacks; null where it lacks none")
    features: str | None = Field(description="for columns that a party lacks; null where none are lacking")
    calibration: Literal["none", "train", "test"] = Field(description="whether and when probabilities were corrected for it")


class HeldOut(Section):
    """This party's own attacks on rows that are all embedded by the same weights."""

    attacks: Attacks
    judged: dict[str, Count] = Field(description="attack → number of rows behind its AUC")


class MatchedMetrics(Section):
    """The federated model on the held-out rows that both parties own; null throughout where they are too few to count."""

    auc: float | None = None
    ace: float | None = None
    nll: float | None = None
    accuracy: float | None = None
    rows: Count | None


class SplitSection(Section):
    """What only split training has."""

    strategies: Strategies
    held_out: HeldOut | None = Field(
        description="the attacks on the embeddings of the rows held out in the first repeat; null where this party sent none"
    )
    defences: tuple[dict[str, JsonValue], ...] = Field(
        default=(), description="this party's own defences, in their order: name and parameters"
    )
    matched_metrics: MatchedMetrics | None = Field(
        description="over the held-out rows that both own, counted under encryption, first repeat; null where the job does not "
        "ask, and at the passive party"
    )
