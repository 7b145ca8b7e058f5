"""Several trainings in one job, of which validation rows choose one: the job's ``sweep`` section."""

from __future__ import annotations

import hashlib
import itertools
import json
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from vfl_node.configuration.models import Frozen

MOST_TRIALS, MOST_COMBINATIONS = 64, 4096

FIXED = ("algorithm", "task", "classes", "seed", "missing", "unaligned", "class_weight", "start_from")
"""Keys of ``train`` that all trials have in common: they say what is learnt, from which rows, and how rows are split."""


class Sweep(Frozen):
    """Which settings are tried, and by what one of them is chosen.

    The trials train one after the other over one alignment. Only the one that is chosen is measured on held-out rows.
    """

    over: dict[str, list[Any]] = Field(
        min_length=1,
        max_length=16,
        description="key of train → values that are tried, such as {learning_rate: [0.001, 0.01], bottom: [[32], [64, 32]]}",
    )
    by: Literal["grid", "drawn"] = Field(
        default="grid", description="grid: all combinations; drawn: as many of them as trials says, drawn by the job's text"
    )
    trials: int | None = Field(default=None, ge=2, le=MOST_TRIALS, description="drawn: how many combinations are tried")
    choose: Literal["loss", "auc"] = Field(
        default="loss", description="what is compared, on the validation rows of each trial's best epoch; auc: of two classes"
    )

    @field_validator("over")
    @classmethod
    def _check_keys(cls, over: dict[str, list[Any]]) -> dict[str, list[Any]]:
        for key, values in over.items():
            if key in FIXED:
                raise ValueError(f"{key} is the same in all trials: compare jobs to choose it")
            if len(values) < 2:
                raise ValueError(f"{key} has fewer than two values: say it in train")
            if len({json.dumps(value, sort_keys=True) for value in values}) < len(values):
                raise ValueError(f"{key} has a value twice")
        return over

    @model_validator(mode="after")
    def _check_number(self) -> Sweep:
        combinations = 1
        for values in self.over.values():
            combinations *= len(values)
        if combinations > MOST_COMBINATIONS:
            raise ValueError(f"{combinations} combinations are more than {MOST_COMBINATIONS}: leave values out")
        if self.by == "drawn" and not (self.trials and self.trials <= combinations):
            raise ValueError(f"by: drawn needs trials, of 2 to {min(combinations, MOST_TRIALS)}")
        if self.by == "grid" and self.trials is not None:
            raise ValueError("trials is for by: drawn; a grid tries all combinations")
        if self.by == "grid" and combinations > MOST_TRIALS:
            raise ValueError(f"{combinations} combinations are more than {MOST_TRIALS}: say by: drawn and trials")
        return self

    def settings(self) -> list[dict[str, Any]]:
        """What each trial says of ``over``, in their order, which is the same at all parties."""
        keys = sorted(self.over)
        every = [dict(zip(keys, values, strict=True)) for values in itertools.product(*(self.over[key] for key in keys))]
        if self.by == "grid":
            return every
        drawn = sorted(every, key=lambda each: hashlib.sha256(json.dumps(each, sort_keys=True).encode()).digest())
        return drawn[: self.trials]
