"""What is measured: the job's ``evaluate`` section (see docs/explanations/training/evaluation.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from vfl_node.configuration.models import Frozen
from vfl_node.gdp import MOST_EPSILON
from vfl_node.roles import NUMBER_TASKS, Task

Metric = Literal["auc", "ace", "nll", "accuracy", "pr_auc", "f1", "ks", "lift", "rmse", "mae", "r2", "mse", "deviance", "d2"]

METRICS: Mapping[Task, tuple[Metric, ...]] = {
    "classification": ("auc", "ace", "nll", "accuracy", "pr_auc", "f1", "ks", "lift"),
    "regression": ("rmse", "mae", "r2", "mse"),
    "poisson": ("deviance", "d2", "mae", "rmse", "mse"),
}
"""Task → its metrics."""

DEFAULT_METRICS: Mapping[Task, tuple[Metric, ...]] = {
    "classification": ("auc", "ace", "nll", "accuracy"),
    "regression": ("rmse", "mae", "r2", "mse"),
    "poisson": ("deviance", "d2", "mae"),
}
"""Task → what ``evaluate.metrics`` is where a job does not say."""

WITH_UNIT: tuple[Metric, ...] = ("rmse", "mae", "mse", "deviance")
"""Metrics in the target's unit, or its square: of any size."""

LOWER_IS_BETTER: tuple[Metric, ...] = ("ace", "nll", "rmse", "mae", "mse", "deviance")

MOST_APART = 0.9
"""Largest share of the shared rows that is not trained on."""

EARLY_STOPPING: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("evaluate.validation_fraction", "train.patience"): (
        "early_stopping",
        "early_stopping_rounds",
        "early_stopping_round",
        "early_stopping_patience",
        "n_iter_no_change",
        "load_best_model_at_end",
    )
}
"""Keys of a job that together make a training stop early → what other tools call that."""

OF_TWO_CLASSES: tuple[Metric, ...] = ("ks", "lift")
"""Metrics of the scores of two classes."""


class LastRows(Frozen):
    """Which rows are held out: the last ones in the order of the active party's column ``data.order``."""

    last: float = Field(gt=0, le=0.9, allow_inf_nan=False, description="share of the shared rows; what test_fraction is then")


class Evaluate(Frozen):
    """What is measured on rows held out from training."""

    renamed: ClassVar[Mapping[str, str]] = {"split": "hold_out"}
    called_elsewhere: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "test_fraction": ("test_size", "test_ratio", "test_split", "holdout"),
        "validation_fraction": ("validation_split", "validation_size", "val_fraction", "val_size", "eval_fraction"),
        "hold_out": ("time_split", "temporal_split", "split_by"),
        "repeats": ("folds", "n_folds", "n_splits", "cv"),
        "contributions": ("permutation_importance", "feature_importance", "importance", "importances"),
    }
    together: ClassVar[Mapping[tuple[str, ...], tuple[str, ...]]] = EARLY_STOPPING

    test_fraction: float = Field(default=0.2, ge=0, le=0.9, allow_inf_nan=False)
    hold_out: LastRows | None = Field(
        default=None,
        description="{last: 0.2}: hold out the last shared rows, in the order of a private column of the active party "
        "(data.order), and not rows drawn at random. Validation rows are the last ones before them",
    )
    validation_fraction: float = Field(
        default=0.0,
        ge=0,
        le=0.5,
        allow_inf_nan=False,
        description="share of the shared rows that is measured on after every epoch and not trained on; above 0 training stops "
        "early (train.patience)",
    )
    repeats: int = Field(default=1, ge=1, le=1000, description="independent splits, each trained from new weights")
    metrics: tuple[Metric, ...] = Field(
        default=DEFAULT_METRICS["classification"],
        min_length=1,
        description="of the task; a regression has rmse, mae, r2, mse, poisson deviance, d2, mae",
    )
    threshold: float = Field(
        default=0.5,
        gt=0,
        lt=1,
        allow_inf_nan=False,
        description="two classes: probability from which on class 1 is predicted, for accuracy, f1 and the confusion matrix",
    )
    epsilon: float | None = Field(
        default=None,
        gt=0,
        le=MOST_EPSILON,
        allow_inf_nan=False,
        description="hidden training: ε of the metrics, whose sums are opened with noise; null: that of train.epsilon, or 1",
    )
    share_with_passive: bool = Field(
        default=False, description="send loss and metrics, which derive from labels, to the passive party"
    )
    matched: bool = Field(
        default=False, description="psu only: metrics also on the held-out rows that both own, by histograms under encryption"
    )
    contributions: bool = Field(
        default=False,
        description="measure which party's columns help: how much worse the metrics are with each party's part of the held-out "
        "rows permuted; the active party alone computes it, and nothing more is sent",
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_test_fraction(cls, section: Any) -> Any:
        """With ``hold_out`` a ``test_fraction`` that nobody wrote is what it says."""
        if not isinstance(section, Mapping) or "test_fraction" in section:
            return section
        held = section.get("hold_out")
        last = held.get("last") if isinstance(held, Mapping) else getattr(held, "last", None)
        return section if last is None else {**section, "test_fraction": last}

    @model_validator(mode="after")
    def _check_hold_out(self) -> Evaluate:
        if self.hold_out is None:
            return self
        if self.test_fraction != self.hold_out.last:
            raise ValueError("hold_out.last says how many rows are held out: leave test_fraction out")
        if self.repeats > 1:
            raise ValueError("repeats above 1 need splits that differ, and hold_out takes the same last rows in each: leave it")
        return self

    @model_validator(mode="after")
    def _check_repeats(self) -> Evaluate:
        if self.repeats > 1 and self.test_fraction == 0:
            raise ValueError("repeats above 1 need a test_fraction above 0")
        return self

    @model_validator(mode="after")
    def _check_shares(self) -> Evaluate:
        if self.test_fraction + self.validation_fraction > MOST_APART:
            raise ValueError(
                f"test_fraction and validation_fraction together may be {MOST_APART:g} at most: the other rows are trained on"
            )
        return self

    def check_task(self, task: Task, classes: int) -> None:
        """Refuse what is not defined for the task, or for so many classes. Raises ValueError."""
        if others := [name for name in self.metrics if name not in METRICS[task]]:
            raise ValueError(
                f"evaluate.metrics: {' and '.join(others)} {'are' if len(others) > 1 else 'is'} not for train.task: {task}; "
                f"choose among {', '.join(METRICS[task])}"
            )
        if task in NUMBER_TASKS:
            self._check_numbers()
        else:
            self._check_classes(classes)

    def _check_numbers(self) -> None:
        if self.threshold != 0.5:
            raise ValueError("evaluate.threshold is for classes, and this job predicts a number. Leave it out")
        if self.matched:
            raise ValueError(
                "evaluate.matched is for two classes: it counts rows of each class in groups of like scores, and numbers have "
                "no classes to count. Leave it out"
            )

    def _check_classes(self, classes: int) -> None:
        binary = [name for name in self.metrics if name in OF_TWO_CLASSES]
        if classes > 2 and binary:
            raise ValueError(f"evaluate.metrics: {' and '.join(binary)} {'are' if len(binary) > 1 else 'is'} for two classes")
        if classes > 2 and self.threshold != 0.5:
            raise ValueError("evaluate.threshold is for two classes: of several the likeliest is predicted")
