"""Randomised response: the answer that stands for a record's label wherever the label is learnt from.

Classes: a label y of K is kept with probability e^ε / (e^ε + K − 1), else each other class comes with 1 / (e^ε + K − 1).
Numbers: y is clipped to a range of public ends and rounded to one of :data:`STEPS` steps of it; discrete Laplace noise with
scale STEPS / ε steps is added. So for any two labels and any answer a

    P(a | y) ≤ e^ε · P(a | y')

and whatever is computed from the answer alone tells no more, however often.

The draw is a keyed function of the record's id and its label: a record has the same answer in every job, whatever other records
there are and in whatever order. A label that is corrected has an answer of its own. Where both answers differ, that shows that
the label has changed; of such a record the ε of both add up.

Probabilities of classes are rounded to multiples of 2⁻⁶⁴, towards more noise; those of numbers are exact.

Source: Warner 1965; Kairouz, Oh and Viswanath 2014 (k-ary randomised response); Ghosh, Roughgarden and Sundararajan 2009
(geometric mechanism); Canonne, Kamath and Steinke 2020, algorithm 2 (how it is drawn).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.discrete_gaussian import DiscreteLaplace
from vfl_node.crypto.randomness import Randomness

STEPS = 1 << 20
"""Steps of a range of numbers."""

_ROUNDED = 1 + 2.0**-50
"""More than a float64 may have lost of a probability."""


def keep_probability(classes: int, epsilon: float) -> float:
    """The probability that a label of ``classes`` classes is its own answer."""
    return 1 / (1 + (classes - 1) * math.exp(-epsilon))


def move_probability(classes: int, epsilon: float) -> float:
    """The probability of each other answer."""
    return math.exp(-epsilon) * keep_probability(classes, epsilon)


def answer_classes(
    secret: Randomness, ids: Iterable[bytes], labels: NDArray[Any], classes: int, epsilon: float
) -> NDArray[np.float32]:
    """An answer for each record.

    Args:
        secret: for these labels under these terms alone; the same one gives the same answers.
        ids: n canonical identifiers.
        labels: [n], 0 to ``classes`` − 1.
        classes: K.
        epsilon: ε.

    Returns:
        float32[n], 0 to K − 1.

    Cost: one HMAC a record, about 2 µs.
    """
    own = labels.astype(np.int64)
    words = secret.words_of(_names(ids, own), 2)
    bound = min(math.ceil((classes - 1) * move_probability(classes, epsilon) * _ROUNDED * 2.0**64), 2**64 - 1)
    further = 1 + (words[:, 1] % np.uint64(classes - 1)).astype(np.int64)
    return np.where(words[:, 0] < np.uint64(bound), (own + further) % classes, own).astype(np.float32)


def answer_numbers(
    secret: Randomness, ids: Iterable[bytes], targets: NDArray[np.float64], within: tuple[float, float], epsilon: float
) -> NDArray[np.float64]:
    """An answer for each record.

    Args:
        secret: as of :func:`answer_classes`.
        ids: n canonical identifiers.
        targets: float64[n].
        within: low and high, public.
        epsilon: ε.

    Returns:
        float64[n], in the targets' unit; it may lie outside the range. Its mean is the clipped target.

    Cost: about 30 µs a record.
    """
    low, high = within
    step = (high - low) / STEPS
    steps = np.rint((np.clip(targets, low, high) - low) / step).astype(np.int64)
    scale = math.ceil(STEPS / epsilon)  # a whole number: no less noise than ε allows
    seeds = secret.words_of(_names(ids, steps), 4)
    drawn = [DiscreteLaplace(Randomness(seed.tobytes()), scale).draw() for seed in seeds]
    return low + step * (steps + np.array(drawn, dtype=np.int64)).astype(np.float64)


def _names(ids: Iterable[bytes], values: NDArray[np.int64]) -> Iterator[bytes]:
    """A name of each record with its label, of which no two are equal."""
    return (id_ + value.to_bytes(8, "big") for id_, value in zip(ids, values.tolist(), strict=True))
