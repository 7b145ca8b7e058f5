"""The same model in plain numbers: the active party's own, with which the shared one is compared.

The same steps on the same form, with the true sigmoid at the end; hidden layers have the activation of the shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.sines import SIGMOID
from vfl_node.training.glm.plain import sigmoid
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.network import HIDDEN_TERMS

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

DIVERGED = 1e6


def fit(values: Floats, labels: Floats, train: Hidden, randomness: Randomness) -> list[Floats]:
    """Weights of the layers, each [inputs, outputs], and after the first one a bias behind each.

    Args:
        values: float64[n, d], the last column of ones.
        labels: float64[n, K].
        train: the job's section.
        randomness: for batches and first weights.
    """
    after = [*train.hidden, labels.shape[1]]
    first = randomness.derive("weights").normal((values.shape[1], after[0])) / np.sqrt(values.shape[1])
    weights: list[Floats] = [np.asarray(first * bool(train.hidden), dtype=np.float64)]
    for index, (inputs, outputs) in enumerate(pairwise(after)):
        drawn = randomness.derive(f"weights {index}").normal((inputs, outputs)) / np.sqrt(inputs)
        weights += [np.asarray(drawn, dtype=np.float64), np.zeros((1, outputs))]
    size = min(train.batch_size, len(values))
    batches = _batches(len(values), size, train.epochs, randomness.derive("batches"))
    return descend(values, labels, weights, batches, size, train)


def descend(
    values: Floats, labels: Floats, first: Sequence[Floats], batches: Iterable[Rows], divisor: float, train: Hidden
) -> list[Floats]:
    """Weights after a step over each batch.

    Args:
        values: float64[n, d], the last column of ones.
        labels: float64[n, K].
        first: weights to begin with.
        batches: rows of each step.
        divisor: of a sum over a batch.
        train: the job's section.
    """
    weights, velocity = list(first), [np.zeros_like(of) for of in first]
    for rows in batches:
        for index, gradient in enumerate(_gradients(values[rows], labels[rows], weights, train)):
            velocity[index] = train.momentum * velocity[index] + train.learning_rate * (
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
    return behind(values @ weights[0], weights[1:])


def behind(z: Floats, layers: Sequence[Floats]) -> Floats:
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
    if train.form_loss == "exact":
        delta = sigmoid(z) - labels
    else:
        delta = z / 4 + 0.5 - labels if train.form_loss == "taylor" else z - labels
    gradients: list[Floats] = []
    for h, slope, weight in reversed(kept):
        gradients[:0] = [h.T @ delta, delta.sum(axis=0, keepdims=True)]
        delta = delta @ weight.T * slope
    return [values.T @ delta, *gradients]
