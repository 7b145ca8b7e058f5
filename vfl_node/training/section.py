"""The base of what a trainer reports of itself, and types that several of them use."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from vfl_node.configuration.models import Frozen
from vfl_node.training.words import ReportedTraining, TrainingWords

Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Attacks = Annotated[
    dict[str, Share | None],
    Field(
        description="attack → AUC with which this party's own audit tells its synthetic rows from real ones: 0.5 is chance, "
        "both 0 and 1 tell all; null where not defined, empty where no row of this party is synthetic"
    ),
]


class Section(Frozen):
    """Base of every part of a report: JSON values, no NaN, no unknown key."""

    model_config = ConfigDict(allow_inf_nan=False, json_schema_serialization_defaults_required=True)


class JointAttack(Section):
    """How well a peer tells this party's synthetic rows by how badly they fit its own columns of the same people."""

    value: Share = Field(description="AUC, 0.5 is chance; of several peers and estimates the largest")
    estimate: bool = Field(
        description="whether the peer's columns were not at hand, so that a part of this party's own ones stood for them"
    )
    judged: Count = Field(description="rows behind it")


class MetricValues(Section):
    """A key for each metric; null if the job did not ask for it, it is not defined or it is not known to this party."""

    auc: float | None = None
    pr_auc: float | None = None
    ks: float | None = None
    lift: float | None = None
    accuracy: float | None = None
    f1: float | None = None
    ace: float | None = None
    nll: float | None = None


class TrainerSection(Section):
    """Base of what one trainer reports of itself: ``training.<algorithm>``."""

    @property
    def counts_matched_rows(self) -> bool:
        """Whether it tells what was measured on the rows that both parties own (``evaluate.matched``)."""
        return False

    @property
    def verdict(self) -> tuple[str, str] | None:
        """Two sentences in place of whether federating helped: what was done, and where it stands. None: it trained a model."""
        return None

    def words(self, training: ReportedTraining) -> TrainingWords:
        """What the page of the report says of it."""
        return TrainingWords()
