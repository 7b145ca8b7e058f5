"""The job's ``train`` section of the trainer ``one_number``. It imports neither torch nor grpc: any command checks jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from vfl_node.trainers import HEAD_BYTES, TrainerConfig, TrainingCost

if TYPE_CHECKING:
    from vfl_node.job import Evaluate, Job


class OneNumber(TrainerConfig):
    """``train: {algorithm: one_number, ridge: 0.01}``."""

    implementation: ClassVar[str] = "vfl_example.one_number.trainer:OneNumberTrainer"
    report_section: ClassVar[str] = "vfl_example.one_number.section:OneNumberSection"
    on_device: ClassVar[bool] = False

    algorithm: Literal["one_number"]
    ridge: float = Field(default=0.01, gt=0, description="added to the variance of the number, so that the line is defined")

    def check(self, job: Job) -> None:
        """As the base: only shared records have the number."""
        if not job.align.spec.every_row_is_shared:
            raise ValueError("one_number trains on records that both parties have: say align.protocol: psi")
        if job.evaluate.repeats > 1:
            raise ValueError("evaluate.repeats must be 1 with one_number: the line is the same each time")

    def cost(self, evaluate: Evaluate, rows: int, protocol: str) -> TrainingCost:
        """One number a row, once."""
        held_out = int(rows * evaluate.test_fraction)
        return TrainingCost(rows=rows - held_out, batches=1, steps=1, active_bytes=HEAD_BYTES, passive_bytes=8 * rows)

    def message_bytes(self, evaluate: Evaluate) -> int:
        """The active party does not know the number of rows before the alignment; 4 bytes a row of at most 10 million."""
        return 40_000_000 + HEAD_BYTES
