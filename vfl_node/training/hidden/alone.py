"""The same model in plain numbers: the active party's own, with which the shared one is compared.

The same steps on the same form, with the true sigmoid at the end; hidden layers have the activation of the shares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, repeat

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.sines import SIGMOID
from vfl_node.training.glm.plain import sigmoid
from vfl_node.training.hidden.config import Hidden, Loss
from vfl_node.training.hidden.descent import Descent, descent_of
from vfl_node.training.hidden.network import HIDDEN_TERMS

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

DIVERGED = 1e6

STEPS = 200
"""How many steps there are, each over all rows, where rows are bounded."""

RESIDUALS: Mapping[Loss, Callable[[Floats, Floats], Floats]] = {
    "exact": lambda z, labels: sigmoid(z) - labels,
    "taylor": lambda z, labels: z / 4 + 0.5 - labels,
    "squares": lambda z, labels: z - labels,
    "robust": lambda z, labels: 2 * sigmoid(2 * (z - labels)) - 1,
}
"""Loss → slope at scores z, float64[n, K]."""


def fit(values: Floats, labels: Floats, train: Hidden, randomness: Randomness) -> list[Floats]:
    """Weights of the layers, each [inputs, outputs], and after the first one a bias behind each.

    Args:
        values: float64[n, d], the last column the intercept's.
        labels: float64[n, K].
        train: the job's section.
        randomness: for batches and first weights.
    """
    after = [*train.layers, labels.shape[1]]
    first = randomness.derive("weights").normal((values.shape[1], after[0])) / np.sqrt(values.shape[1])
    weights: list[Floats] = [np.asarray(first * bool(train.layers), dtype=np.float64)]
    for index, (inputs, outputs) in enumerate(pairwise(after)):
        drawn = randomness.derive(f"weights {index}").normal((inputs, outputs)) / np.sqrt(inputs)
        weights += [np.asarray(drawn, dtype=np.float64), np.zeros((1, outputs))]
    if train.epsilon is not None:  # nothing limits how long it descends
        descent = replace(descent_of(train, 1, 1e15, 1), steps=STEPS)
        return descend(values, labels, weights, repeat(np.arange(len(values)), STEPS), len(values), descent, train)
    descent, size = descent_of(train, 1, 1.0, 1), min(train.batch, len(values))
    batches = _batches(len(values), size, descent.steps, randomness.derive("batches"))
    return descend(values, labels, weights, batches, size, descent, train)


def descend(
    values: Floats,
    labels: Floats,
    first: Sequence[Floats],
    batches: Iterable[Rows],
    divisor: float,
    descent: Descent,
    train: Hidden,
) -> list[Floats]:
    """Weights after a step over each batch.

    Args:
        values: float64[n, d], the last column the intercept's.
        labels: float64[n, K].
        first: weights to begin with.
        batches: rows of each step.
        divisor: of a sum over a batch.
        descent: rate and momentum.
        train: the job's section.
    """
    weights, velocity = list(first), [np.zeros_like(weight) for weight in first]
    for rows in batches:
        for index, gradient in enumerate(_gradients(values[rows], labels[rows], weights, train)):
            velocity[index] = descent.momentum * velocity[index] + descent.rate * (
                gradient / divisor + train.weight_decay * weights[index]
            )
            weights[index] = np.clip(weights[index] - velocity[index], -DIVERGED, DIVERGED)
    return weights


def _batches(rows: int, size: int, epochs: int, randomness: Randomness) -> Iterator[Rows]:
    for _ in range(epochs):
        order = randomness.permutation(rows)
        yield from (order[start : start + size] for start in range(0, rows - size + 1, size))


def scores(values: Floats, weights: Sequence[Floats]) -> Floats:
    """z of rows, float64[n, K]."""
    return scores_from_sums(values @ weights[0], weights[1:])


def scores_from_sums(z: Floats, layers: Sequence[Floats]) -> Floats:
    """z of rows, float64[n, K], from the sums ``z`` that the first layer makes of them, float64[n, width]."""
    return _forward(z, layers)[0]


def _forward(z: Floats, layers: Sequence[Floats]) -> tuple[Floats, list[tuple[Floats, Floats, Floats]]]:
    kept = []
    for weight, bias in zip(layers[::2], layers[1::2], strict=True):
        series = SIGMOID[HIDDEN_TERMS]
        h, slope = 2 * series.values(z), 2 * series.slopes(z)
        kept.append((h, slope, weight))
        z = h @ weight + bias
    return z, kept


def _gradients(values: Floats, labels: Floats, weights: Sequence[Floats], train: Hidden) -> list[Floats]:
    z, kept = _forward(values @ weights[0], weights[1:])
    delta = RESIDUALS[train.form_loss](z, labels)
    gradients: list[Floats] = []
    for h, slope, weight in reversed(kept):
        gradients[:0] = [h.T @ delta, delta.sum(axis=0, keepdims=True)]
        delta = delta @ weight.T * slope
    return [values.T @ delta, *gradients]
