"""What the ``train`` sections of all trainings in shares have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from vfl_node.gdp import Exposure
from vfl_node.job.evaluate import Evaluate
from vfl_node.job.training import TrainerConfig, TrainingJob
from vfl_node.settings.limits import UnboundedModel
from vfl_node.training.shares import spending

DEALER = "by which it knows every mask: with what one data party receives it would know everything"
"""What every declaration says of the coordinator."""


class SharesConfig(TrainerConfig):
    """A training in shares on exactly the records that all parties have.

    A coordinator deals randomness, unless :attr:`coordinated` says that two data parties make it themselves.

    Attributes:
        title: what it is called in sentences about keys of a job.
        far_scores: two bins of the histogram of scores, next to each other. Up to the first one no score of classes counts as
            beyond what the sum of sines is good for, from the second one on every one does, and between them by a coin.
    """

    title: ClassVar[str]
    far_scores: ClassVar[tuple[int, int]]

    target_range: tuple[float, float] | None = Field(
        default=None,
        description="of a regression: between which numbers targets usually lie, as everybody knows and no table says. null: "
        "the active party's table says how they are scaled, and then ε does not cover a single target",
    )
    metrics_by: Literal["histogram", "none"] = Field(
        default="histogram", description="how the model is measured: by sums of a histogram in shares, or not at all"
    )
    reveal: Literal["owners", "none"] = Field(
        default="none",
        description="owners: each party gets its own part of the model; none: it stays in shares",
    )

    @property
    def coordinated(self) -> bool:
        """Whether the coordinator deals randomness."""
        return True

    @property
    @override
    @abstractmethod
    def model_epsilon(self) -> float | None:
        """ε of the model; None: nothing bounds it."""

    @property
    @abstractmethod
    def unbounded(self) -> UnboundedModel | None:
        """Which kind of model without a bound it is; None of one with a bound."""

    @property
    def far_score(self) -> int:
        """Beyond which scores are counted, about."""
        return sum(self.far_scores) // 2

    @property
    def outputs(self) -> int:
        """Models trained side by side: one for two classes and for a number, else one a class."""
        return 1 if self.classes == 2 else self.classes

    @property
    def covers_labels(self) -> bool:
        """Whether ε is about a label, too: the numbers of a regression must not be scaled by what the table says."""
        return self.task == "classification" or self.target_range is not None

    @override
    def opens(self, evaluate: Evaluate, shared: int | None = None) -> Exposure:
        kind, measures = self.unbounded, self.metrics_by == "histogram"
        of_metrics = (evaluate.epsilon or self.model_epsilon or spending.METRICS_EPSILON) if measures else None
        return Exposure(
            mu=spending.mu_of_job(self.model_epsilon, of_metrics, held_out=evaluate.test_fraction > 0),
            unbounded=kind or "",
            warning=spending.unbounded_warning(kind, evaluate, shared) if kind else "",
            labels=self.covers_labels,
            # models without noise begin anew each time, and sums are over other records
            anew=self.model_epsilon is None and (self.reveal == "owners" or measures),
        )

    def meter(self, columns: int, records: int, trainings: int) -> str:
        """What opened parts of a model without a bound tell, once a training is over; empty: no more than the warning.

        Args:
            columns: of the data party that has most.
            records: shared ones, trained on.
            trainings: over these records, this one included.
        """
        return ""

    def check(self, job: TrainingJob) -> None:
        """As the base: one split, and no metrics that tell what dummies hide."""
        evaluate, title = job.evaluate, self.title
        if evaluate.repeats > 1:
            raise ValueError(f"evaluate.repeats must be 1 with {title}: sums over other rows held out tell of single rows")
        if evaluate.validation_fraction:
            raise ValueError(f"evaluate.validation_fraction must be 0 with {title}: it does not stop early")
        if evaluate.share_with_passive and len(job.parties.passive) > 1 and not job.align.spec.every_row_is_shared:
            raise ValueError(
                "evaluate.share_with_passive must be false with several passive parties: metrics are counted over the records "
                f"that all share, and with {job.align.protocol} the active party alone knows how many these are"
            )
        if job.align.dummies and self.metrics_by != "none":
            raise ValueError(
                "train.metrics_by must be none with align.dummies: the numbers of labels that metrics are made of tell how "
                "many records are shared, which dummies hide"
            )
