"""The job's ``train`` section of the trainer ``nearest_mean``.

It imports neither torch nor grpc, so that any command can check a job.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from vfl_node.job import Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.costs import HEAD_BYTES, TrainingCost, TrainingPlan
from vfl_node.job.evaluate import Evaluate
from vfl_node.job.training import TrainerConfig, TrainerParts, TrainingJob, Traits
from vfl_node.ledger import Declaration

BATCH_ROWS = 100_000


class NearestMean(TrainerConfig):
    """``train: {algorithm: nearest_mean, epochs: 2}``."""

    parts: ClassVar[TrainerParts] = TrainerParts(
        implementation="vfl_example.nearest_mean.trainer:NearestMeanTrainer",
        report_section="vfl_example.nearest_mean.section:NearestMeanSection",
        plan="vfl_example.nearest_mean.config:NearestMeanPlan",
        reveals="vfl_example.nearest_mean.config:declare",
    )
    traits: ClassVar[Traits] = Traits(on_device=False)

    algorithm: Literal["nearest_mean"]
    classes: Literal[2] = 2
    epochs: int = Field(default=2, ge=1, le=1000, description="how often each row's number is sent, each time with new noise")

    def check(self, job: TrainingJob) -> None:
        """As in the base class: refuse a job that would fail only after a long alignment, in sentences that name the keys."""
        if not job.align.spec.every_row_is_shared:
            raise ValueError("nearest_mean trains on records that both parties have: say align.protocol: psi")
        if job.evaluate.repeats > 1:
            raise ValueError("evaluate.repeats must be 1 with nearest_mean: it has no initial weights to draw again")


def declare(job: Job) -> Iterator[Declaration]:
    """What each party may learn, which every owner is shown before the job runs: the keywords of the trainer's disclosures."""
    active, passive = job.parties.active, job.parties.pair["passive"]
    yield Declaration(active, "numbers", f"from {passive} a number of each shared row in each epoch, with noise")
    yield Declaration(passive, "figures", f"from {active} how well the model predicts, if the job says so")


class NearestMeanPlan(TrainingPlan[NearestMean]):
    """What the training sends and computes, as far as it follows from the section and the number of rows."""

    @override
    def steps(self, evaluate: Evaluate, rows: int) -> int:
        return self.train.epochs

    def cost(self, evaluate: Evaluate, rows: int, protocol: str) -> TrainingCost | None:
        """The passive party sends a float32 for each row in each epoch, also for held-out rows."""
        if not ALIGNMENTS[protocol].every_row_is_shared:
            return None
        return TrainingCost(
            rows=rows - math.ceil(rows * evaluate.test_fraction),
            batches=math.ceil(rows / BATCH_ROWS),
            steps=self.train.epochs * math.ceil(rows / BATCH_ROWS),
            active_bytes=0,
            passive_bytes=4 * self.train.epochs * rows,
        )

    @override
    def reported_epochs(self, evaluate: Evaluate) -> int:
        return self.train.epochs

    def message_bytes(self, evaluate: Evaluate) -> int:
        """The bytes of a full batch. The number of shared rows is not known yet, so the size of a batch is fixed."""
        return 4 * BATCH_ROWS + HEAD_BYTES
