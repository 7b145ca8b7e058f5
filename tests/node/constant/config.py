"""What a job says of the trainer, and the alignment."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from vfl_node.alignment.psi.spec import PSI
from vfl_node.job.costs import HEAD_BYTES, TrainingPlan
from vfl_node.job.evaluate import Evaluate
from vfl_node.job.training import TrainerConfig, TrainerParts, Traits

OTHER_PSI = replace(PSI, name="other_psi")


class Constant(TrainerConfig):
    """``train: {algorithm: constant}``."""

    parts: ClassVar[TrainerParts] = TrainerParts(
        implementation="tests.node.constant.trainer:ConstantTrainer",
        report_section="vfl_node.training.section:TrainerSection",
        plan="tests.node.constant.config:ConstantPlan",
        serving="tests.node.constant.trainer:ConstantPredictor",
    )
    traits: ClassVar[Traits] = Traits(on_device=False, measures=frozenset({"matched"}))  # it says so, and counts nothing

    algorithm: Literal["constant"]


class ConstantPlan(TrainingPlan[Constant]):
    """Nothing is sent."""

    def message_bytes(self, evaluate: Evaluate) -> int:
        """None is sent."""
        return HEAD_BYTES

    def served_message_bytes(self, rows: int) -> int:
        """The share alone."""
        return HEAD_BYTES
