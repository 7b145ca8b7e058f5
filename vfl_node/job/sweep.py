"""Several trainings in one job, of which validation rows choose one: the job's ``sweep`` section."""

from __future__ import annotations

import hashlib
import itertools
import json
from typing import Any, Literal, NamedTuple

from pydantic import Field, field_validator, model_validator

from vfl_node.configuration.models import Frozen
from vfl_node.job.training import TRAINERS, TrainingJob

MOST_TRIALS, MOST_COMBINATIONS, HALVING_ETA = 64, 4096, 3

FIXED = ("algorithm", "task", "classes", "seed", "missing", "unaligned", "class_weight", "start_from")
"""Keys of ``train`` that all trials have in common: they say what is learnt, from which rows, and how rows are split."""


class Rung(NamedTuple):
    """A part of a sweep, in which each trial that is left trains until it has so many epochs; None: all that it says."""

    trials: int
    epochs: int | None


class Sweep(Frozen):
    """Which settings are tried, and by what one of them is chosen.

    The trials train one after the other over one alignment. Only the one that is chosen is measured on held-out rows.

    Source of ``halving``: Jamieson and Talwalkar 2016, section 3 (successive halving).
    """

    over: dict[str, list[Any]] = Field(
        min_length=1,
        max_length=16,
        description="key of train → values that are tried, such as {learning_rate: [0.001, 0.01], bottom: [[32], [64, 32]]}",
    )
    by: Literal["grid", "drawn", "halving"] = Field(
        default="grid",
        description="grid: all combinations; drawn: as many of them as trials says, drawn by the job's text; halving: all, or "
        "as many as trials says, for a few epochs, and then the best of them for more",
    )
    trials: int | None = Field(
        default=None, ge=2, le=MOST_TRIALS, description="drawn, halving: how many combinations are tried"
    )
    eta: int = Field(
        default=HALVING_ETA,
        ge=2,
        le=8,
        description="halving: one of so many trials goes on each time, for so many times the epochs",
    )
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
            raise ValueError("trials is for by: drawn or halving; a grid tries all combinations")
        if self.by == "halving" and self.trials and self.trials > combinations:
            raise ValueError(f"trials is more than the {combinations} combinations that there are: leave it out")
        if self.by == "halving" and "epochs" in self.over:
            raise ValueError("by: halving says itself for how many epochs a trial trains: leave epochs out of over")
        if self.by != "halving" and self.eta != HALVING_ETA:
            raise ValueError("eta is for by: halving")
        if not self.trials and combinations > MOST_TRIALS:
            raise ValueError(f"{combinations} combinations are more than {MOST_TRIALS}: say by: drawn and trials")
        return self

    def check(self, job: TrainingJob) -> None:
        """Raises ValueError unless the job trains what can be swept, and measures what trials are chosen by."""
        if not (job.train and job.train.traits.sweeps):
            able = " and ".join(name for name, config in TRAINERS.usable() if config.traits.sweeps)
            raise ValueError(f"sweep is for train.algorithm: {able}: leave it out")
        if not job.evaluate.validation_fraction:
            raise ValueError("sweep chooses by validation rows: set evaluate.validation_fraction, such as to 0.1")
        if job.evaluate.repeats > 1:
            raise ValueError("sweep trains each trial once: leave evaluate.repeats out")
        if self.choose == "auc" and "auc" not in job.evaluate.metrics:
            raise ValueError("sweep.choose: auc needs auc in evaluate.metrics")
        if unknown := sorted(set(self.over) - set(type(job.train).model_fields)):
            raise ValueError(f"sweep.over: {unknown[0]} is no key of train")

    def settings(self) -> list[dict[str, Any]]:
        """What each trial says of ``over``, in their order, which is the same at all parties."""
        keys = sorted(self.over)
        every = [dict(zip(keys, values, strict=True)) for values in itertools.product(*(self.over[key] for key in keys))]
        if not self.trials:
            return every
        drawn = sorted(every, key=lambda each: hashlib.sha256(json.dumps(each, sort_keys=True).encode()).digest())
        return drawn[: self.trials]

    def rungs(self, epochs: int) -> tuple[Rung, ...]:
        """The parts of the sweep in their order, of a job whose ``train`` says so many ``epochs``."""
        left = len(self.settings())
        if self.by != "halving":
            return (Rung(left, None),)
        counts = [left]
        while counts[-1] > 1:
            counts.append(-(-counts[-1] // self.eta))
        rungs: dict[int, int] = {}
        for later, count in enumerate(reversed(counts)):
            rungs[max(1, epochs // self.eta**later)] = count  # where a part is too short to be cut, the larger number counts
        return tuple(Rung(count, until) for until, count in sorted(rungs.items()))

    def shares(self, epochs: int) -> list[float]:
        """The share of its ``epochs`` that each trial trains at most: first of those that are kept longest."""
        rungs = self.rungs(epochs)
        kept = [*(rung.trials for rung in rungs[1:]), 0]
        return [
            1.0 if rung.epochs is None else rung.epochs / epochs
            for rung, later in reversed(list(zip(rungs, kept, strict=True)))
            for _ in range(rung.trials - later)
        ]
