"""The training of :mod:`vfl_node.training.hidden` in float64, on the rows alone that all parties own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vfl_node.crypto.shares.sines import SIGMOID
from vfl_node.training.glm.plain import sigmoid
from vfl_node.training.hidden.network import HIDDEN_TERMS, OUTPUT_TERMS, Form

Floats = Any


@dataclass(frozen=True)
class Step:
    """v ← momentum·v + factor·G + decay·W."""

    factor: float
    momentum: float
    decay: float


def forward(form: Form, weights: Sequence[Floats], x: Floats) -> tuple[Floats, list[Any]]:
    """z of rows of all parties' columns side by side, and what backward needs."""
    parties = len(form.widths)
    z, kept = x @ np.vstack(weights[:parties]), []
    for weight, bias in zip(weights[parties::2], weights[parties + 1 :: 2], strict=True):
        series = SIGMOID[HIDDEN_TERMS]
        h, slope = 2 * series.values(z), 2 * series.slopes(z)
        kept.append((h, slope, weight))
        z = h @ weight + bias
    return z, kept


def gradients(form: Form, weights: Sequence[Floats], x: Floats, y: Floats, *, true_sigmoid: bool = False) -> list[Floats]:
    """Sums over rows, in the order of the form."""
    z, kept = forward(form, weights, x)
    if form.loss == "exact":
        delta = (sigmoid(z) if true_sigmoid else SIGMOID[OUTPUT_TERMS].values(z) + 0.5) - y
    elif form.loss == "robust":
        delta = 2 * SIGMOID[OUTPUT_TERMS].values(2 * (z - y))
    else:
        delta = z / 4 + 0.5 - y if form.loss == "taylor" else z - y
    behind: list[Floats] = []
    for h, slope, weight in reversed(kept):
        behind[:0] = [h.T @ delta, delta.sum(axis=0, keepdims=True)]
        delta = delta @ weight.T * slope
    return [*np.split(x.T @ delta, np.cumsum(form.widths)[:-1]), *behind]


def descend(
    form: Form, start: Sequence[Floats], x: Floats, y: Floats, batches: Sequence[Any], of: Step, **how: Any
) -> list[Floats]:
    """Weights after a step over each batch of rows."""
    weights = [each.copy() for each in start]
    velocity = [np.zeros_like(each) for each in weights]
    for rows in batches:
        for index, gradient in enumerate(gradients(form, weights, x[rows], y[rows], **how)):
            velocity[index] = of.momentum * velocity[index] + of.factor * gradient + of.decay * (weights[index] - start[index])
            weights[index] = weights[index] - velocity[index]
    return weights
