"""The words of ``random-pred``."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from vfl_node.training.split.missing.strategies import LabelStrategy


class RandomPred(LabelStrategy):
    """A class drawn anew in each step, as the model itself predicts."""

    implementation: ClassVar[str] = "vfl_node.training.split.missing.labels.random_pred.labels:PredictedLabels"

    draws: int = Field(default=1, ge=1, le=100, description="labels drawn for each row and step; their mean is used")

    def words(self) -> str:
        """As the base."""
        return "a class drawn anew in each step, as the model predicts" + f"; the mean of {self.draws} draws" * (self.draws > 1)

    def learnt(self, peer: str) -> str:
        """As the base."""
        if self.draws > 1:
            return f"which records {peer} lacks can be inferred for most: their gradients are short"
        return f"which records {peer} lacks can be inferred over epochs, for most: their labels change"
