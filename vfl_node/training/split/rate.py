"""How the learning rate changes over the steps of a training: a function of the step's number, so a restart changes nothing."""

from __future__ import annotations

import math

from vfl_node.training.split.config import Train


def rate_factor(train: Train, step: int, steps: int) -> float:
    """What ``train.learning_rate`` is multiplied by in training step ``step`` of ``steps``, counted from 0.

    It rises evenly over the first ``train.warmup_steps`` and is 1 in the last of them. After them, with t from 0 to 1 the
    share of the other steps done, it is 1 (``constant``), (1 + cos πt)/2 (``cosine``) or 1 − t (``linear``).

    Source: Loshchilov and Hutter 2017 (SGDR), equation 5 without restarts.
    """
    warmup = train.warmup_steps
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / (steps - warmup)
    if train.learning_rate_schedule == "cosine":
        return (1 + math.cos(math.pi * done)) / 2
    return 1 - done if train.learning_rate_schedule == "linear" else 1.0
