"""A number as one of eight levels by the quantiles of its own table, so that a linear model may follow a curve."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from vfl_node.configuration.models import Frozen
from vfl_node.data.dates import Part
from vfl_node.data.transforms import Finite
from vfl_node.job.names import LEVELS


class QuantileLevels(Frozen):
    """Between which ``edges`` a number lies; ``levels`` has those intervals, counted from 0, that have a code.

    Attributes:
        edges: ascending. Interval k has the numbers from edge k - 1 on and below edge k.
        levels: ascending; interval ``levels[j]`` has code j.
    """

    kind: Literal["bins"] = "bins"
    name: str
    part: Part | None = None
    edges: tuple[Finite, ...]
    levels: tuple[int, ...]

    @model_validator(mode="after")
    def _ascending(self) -> QuantileLevels:
        if any(
            one >= other
            for numbers in (self.edges, (-1, *self.levels, len(self.edges) + 1))
            for one, other in pairwise(numbers)
        ):
            raise ValueError("edges and levels ascend, and there is an edge between intervals")
        return self

    @classmethod
    def fit(cls, name: str, part: Part | None, ordered: NDArray[np.float64], enough: Callable[[int], bool]) -> QuantileLevels:
        """The levels of finite numbers float64[n], ascending. Equal numbers are in the same interval.

        Args:
            name: of the column.
            part: of its dates.
            ordered: the numbers.
            enough: whether an interval that so many of them lie in has a code.
        """
        n = len(ordered)
        edges = np.setdiff1d(ordered[[n * k // LEVELS for k in range(1, LEVELS)]], ordered[:1]) if n else ordered
        counts = np.diff([0, *np.searchsorted(ordered, edges).tolist(), n])
        kept = tuple(k for k, count in enumerate(counts.tolist()) if enough(count))
        return cls(name=name, part=part, edges=tuple(edges.tolist()), levels=kept)

    @property
    def method(self) -> None:
        """None: the number itself stands beside."""

    @property
    def cardinality(self) -> int:
        """How many codes there are."""
        return len(self.levels)

    def apply(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Codes int64[n]; −1 for a missing number, and one in an interval without a code."""
        code = np.full(len(self.edges) + 2, -1)
        code[list(self.levels)] = np.arange(len(self.levels))
        interval = np.searchsorted(np.array(self.edges), values, side="right")
        return np.asarray(code[np.where(np.isnan(values), -1, interval)])
