"""The job's ``train`` section for linear regression under encryption (docs/guides/train-a-logistic-regression.md)."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field

from vfl_node.job.training import Traits
from vfl_node.roles import Task
from vfl_node.training.glm.config import GeneralisedLinear


class LinearRegression(GeneralisedLinear):
    """Linear regression under encryption, with dummies: the flows of logistic regression with an exact residual.

    The residual z − y of a score z and a scaled target y is linear, so that every flow computes it without approximation.
    """

    title: ClassVar[str] = "linear regression"
    traits: ClassVar[Traits] = replace(GeneralisedLinear.traits, tasks=("regression",))

    algorithm: Literal["linear"]
    task: Task = Field(default="regression", description="regression: the label is a number to predict")
    learning_rate: float = Field(default=0.1, gt=0, le=1e3, allow_inf_nan=False)

    @property
    def objective(self) -> str:
        """Squared errors."""
        return "squares"
