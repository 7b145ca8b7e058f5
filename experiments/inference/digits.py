"""Images: the left halves of handwritten digits, rebuilt by the party that has the right halves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments.asymmetric_mnist.make_data import SIDE
from experiments.inference.data import Split
from experiments.inference.experiment import Expectation, Found, Outcome, Plan, Work, mean
from experiments.inference.images import SHOWN, TRAIN, cut, explained, halves, picture, trial
from experiments.inference.images import page as page_of_images

TITLE = "Images: halves of handwritten digits"

GAIN = 0.2
"""The attack explains so much more of the variance than imputation, without a defence."""


def digits(shared: Path, *, seed: int, small: bool) -> Outcome:
    """What :func:`~experiments.inference.images.trial` found, and of seed 0 a ``picture``, as SVG."""
    if small:
        figures, pictures = trial(made_up_halves(seed), seed, {**TRAIN, "epochs": 1})
    else:
        figures, pictures = trial(halves(shared, seed), seed)
    drawn = {"picture": picture(pictures, range(SHOWN))} if seed == 0 else {}
    return {**figures, **drawn}


def made_up_halves(seed: int) -> Split:
    """300 images that need no file: ten patterns of stripes, and noise."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 10, 300)
    across, down = np.meshgrid(np.arange(SIDE), np.arange(SIDE))
    stripes = np.sin(0.3 * across[None] * (classes % 5)[:, None, None] + 0.6 * down[None] * (classes // 5)[:, None, None])
    grey = 128 + 80 * stripes + rng.normal(0, 20, stripes.shape)
    return cut(np.clip(grey, 0, 255).astype(np.uint8), classes.astype(np.uint8))


def _work(plan: Plan, seed: int) -> Work:
    return Work(digits, {"seed": seed, "small": plan.small})


def works(plan: Plan) -> list[Work]:
    """One for each seed."""
    return [_work(plan, seed) for seed in range(plan.seeds)]


def _outcomes(plan: Plan, found: Found) -> list[Any]:
    return [found[_work(plan, seed).name] for seed in range(plan.seeds)]


def gain_beyond(plan: Plan, found: Found, defence: str) -> list[float]:
    """The share of variance that the best attack explains − that of imputation, for each seed."""
    return [
        explained(outcome, min(outcome[defence]["errors"].values())) - explained(outcome, outcome["imputation"])
        for outcome in _outcomes(plan, found)
    ]


def page(plan: Plan, found: Found) -> list[str]:
    """Errors by attack and defence, and the picture."""
    return page_of_images(_outcomes(plan, found))


PICTURE = "inference-images.svg"


def drawings(plan: Plan, found: Found) -> dict[str, str]:
    """Digits of the first seed."""
    return {PICTURE: found[_work(plan, 0).name]["picture"]}


def check(plan: Plan, found: Found) -> list[Expectation]:
    """Embeddings tell more of an image than its other half does."""
    what = "MNIST halves: share of variance that the best attack explains − that of imputation"
    return [Expectation(what, mean(gain_beyond(plan, found, "none")), GAIN)]
