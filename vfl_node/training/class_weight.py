"""``train.class_weight``: how much each class counts in the loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, Field

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BALANCED = "balanced"

MOST = 10_000.0
"""The largest weight: as for a class of one row in ten thousand."""


def _read(value: object) -> object:
    """A weight a class, whether written as a list or by the numbers of the classes. Raises ValueError."""
    if value is None or value == BALANCED:
        return value
    if isinstance(value, Mapping):
        by_class = {str(key): weight for key, weight in value.items()}
        if set(by_class) != {str(k) for k in range(len(by_class))}:
            raise ValueError(
                "it needs the number of every class, from 0, such as {0: 1, 1: 5}; names of classes are private, and a job is "
                "public"
            )
        value = [by_class[str(k)] for k in range(len(by_class))]
    weights = list(value) if isinstance(value, list | tuple) else []
    numbers = [float(weight) for weight in weights if isinstance(weight, int | float) and not isinstance(weight, bool)]
    if not numbers or len(numbers) < len(weights) or not all(0 < weight <= MOST for weight in numbers):
        raise ValueError(f"it is {BALANCED}, or a number above 0 and up to {MOST:,.0f} for each class, such as [1, 5]")
    return tuple(numbers)


ClassWeight = Annotated[
    str | tuple[float, ...] | None,
    BeforeValidator(_read),
    Field(
        description="how much a row counts in the loss, by its class: a number for each; balanced: so that all classes count "
        "alike, by the frequencies of the active party's labels; null: all rows alike"
    ),
]


def check_class_weight(weight: str | tuple[float, ...] | None, classes: int) -> None:
    """Refuse weights of another number of classes. Raises ValueError."""
    if isinstance(weight, tuple) and len(weight) != classes:
        raise ValueError(f"class_weight has {len(weight)} weights, and the job has {classes} classes (train.classes)")


def weight_of_classes(weight: str | tuple[float, ...], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weight of each class, float64[K].

    Args:
        weight: of the job.
        shares: float64[K], how frequent each class is among the labels trained on.

    ``balanced``: of n labels n_k are of class k, and C classes occur; its weight is n / (C·n_k), as in scikit-learn, so that
    the mean over these labels is 1. A class that does not occur has weight 1.
    """
    import numpy as np  # which a job alone does not need

    if isinstance(weight, tuple):
        return np.array(weight)
    occurs = shares > 0
    return np.where(occurs, 1 / (np.count_nonzero(occurs) * np.where(occurs, shares, 1)), 1.0)
