"""How the learning rate changes over the steps of a training: a function of the step's number, so a restart changes nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Protocol

SCHEDULES: Mapping[str, Callable[[float], float]] = {
    "constant": lambda t: 1.0,
    "cosine": lambda t: (1 + math.cos(math.pi * t)) / 2,
    "linear": lambda t: 1 - t,
}
"""``train.learning_rate_schedule`` → what the rate is multiplied by when the share t of the steps is done."""


class ScheduledRate(Protocol):
    """The keys of ``train`` that say how the learning rate changes."""

    @property
    def learning_rate_schedule(self) -> str:
        """One of :data:`SCHEDULES`."""

    @property
    def warmup_steps(self) -> int:
        """Steps in which it rises."""


def rate_factor(train: ScheduledRate, step: int, steps: int) -> float:
    """What ``train.learning_rate`` is multiplied by in training step ``step`` of ``steps``, counted from 0.

    It rises evenly over the first ``train.warmup_steps`` and is 1 in the last of them. After them, with t from 0 to 1 the
    share of the other steps done, it follows :data:`SCHEDULES`.

    Source: Loshchilov and Hutter 2017 (SGDR), equation 5 without restarts.
    """
    warmup = train.warmup_steps
    if step < warmup:
        return (step + 1) / warmup
    return SCHEDULES[train.learning_rate_schedule]((step - warmup) / (steps - warmup))
