"""How sure an AUC is on rows held out that are the same in every training: the bootstrap, paired by row.

Rows held out by time cannot be drawn anew. That other rows would give other figures shows only where these are resampled:
each training keeps its AUC on the same resamples, so that differences are paired by row, of trainings at other times, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.metrics import ModelOutput, auc
from vfl_node.training.evaluation import Evaluation
from vfl_node.training.intervals import DRAWS, NORMAL
from vfl_node.training.split import active

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Said:
    """What the label party measures in one training.

    Attributes:
        labels: float32[k], of the rows held out, in the order of its table.
        joint: float64[k], what the joint model says of them.
        alone: float64[k], what its own model says.
    """

    labels: NDArray[np.float32]
    joint: Floats
    alone: Floats


@contextmanager
def heard() -> Iterator[list[Said]]:
    """What is measured by trainings of this process in this context, each at its end: a result has figures alone.

    Trainings with more than two classes, numbers as labels or no own model of the label party are none for it.
    """
    every: list[Said] = []
    assess = active.assess

    def listening(asked: Any, labels: Any, joint: Any, alone: Any, *others: Any, **keys: Any) -> Evaluation:
        assert isinstance(joint, ModelOutput)
        assert isinstance(alone, ModelOutput)
        every.append(Said(labels, joint.scores, alone.scores))
        return assess(asked, labels, joint, alone, *others, **keys)

    with patch.object(active, "assess", listening):
        yield every


def resampled(labels: NDArray[np.float32], scores: Floats) -> list[float]:
    """AUC on each of :data:`DRAWS` resamples, which are the same for equally many rows, to four digits.

    Cost: about 0.2 s for 2,000 rows.
    """
    rows, drawn = len(labels), Randomness(bytes(32)).derive("fedads resamples")
    resamples = drawn.choices(rows, DRAWS * rows).reshape(DRAWS, rows)
    values = [auc(labels[of], scores[of]) for of in resamples]
    return [round(value, 4) for value in values if value is not None]


def half_width(one: Floats, other: Floats) -> float:
    """Half the 95 % interval of a difference of two AUCs, by both on the same resamples, float64[DRAWS] each.

    It is of the normal approximation, as in :mod:`vfl_node.training.intervals`.
    """
    return NORMAL * float(np.std(one - other, ddof=1))
