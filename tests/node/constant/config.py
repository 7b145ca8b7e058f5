"""What a job says of the trainer, and the alignment."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from vfl_node.alignment.psi.spec import PSI
from vfl_node.computing import HEAD_BYTES, TrainingPlan
from vfl_node.trainers import TrainerConfig

if TYPE_CHECKING:
    from vfl_node.job import Evaluate

OTHER_PSI = replace(PSI, name="other_psi")


class Constant(TrainerConfig):
    """``train: {algorithm: constant}``."""

    implementation: ClassVar[str] = "tests.node.constant.trainer:ConstantTrainer"
    report_section: ClassVar[str] = "vfl_node.training.section:TrainerSection"
    plan: ClassVar[str] = "tests.node.constant.config:ConstantPlan"
    serving: ClassVar[str] = "tests.node.constant.trainer:ConstantPredictor"
    on_device: ClassVar[bool] = False

    algorithm: Literal["constant"]

    @property
    def can_match(self) -> bool:
        """It says so, and counts nothing."""
        return True


class ConstantPlan(TrainingPlan[Constant]):
    """Nothing is sent."""

    def message_bytes(self, evaluate: Evaluate) -> int:
        """None is sent."""
        return HEAD_BYTES

    def served_message_bytes(self, rows: int) -> int:
        """The share alone."""
        return HEAD_BYTES
