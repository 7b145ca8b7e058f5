"""Numbers in a shape that other things have, too: a point may separate thousands instead of decimals, or they are codes.

Whether a column of ``1.234`` and ``12.500`` has decimals or thousands, no cell tells:

- A whole number below 1000 without a point (``999``), beside another one with a zero at its end (``12.500``): programs write
  decimals either all alike or without such zeros. The points most likely separate thousands, and the column is refused.
- Without such a zero, or without such whole numbers: either is possible. They are decimals, with a warning.
- ``0.567``, ``1.25`` or ``1234`` in one cell proves decimals, and so does another column.

Where all are as long (``1.234`` … ``9.876``) thousands would be the same numbers in another unit, so nothing is said.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from vfl_node.data.cells import matches

Seems = Literal["thousands", "codes"]
"""What the shape of a column's numbers may mean besides: that points separate thousands, or that groups of digits are codes."""

LEAST_CODES = 20
"""With fewer values it is no wonder that they have as many digits each."""

NEARLY_ALL = 0.95

LOOKED_AT = 50_000
MOST_FAR, FAR_SHARE, LEAST_OTHERS, FEW_OTHERS, OF_ZERO = 3, 0.005, 2, 10, 10

LARGEST_PART = 31
"""The largest part of a date or a time, in two digits; without weeks and minutes: codes of regions are as large."""

_GROUPED = r"^[+-]?(?:0|[1-9][0-9]{0,2}(?:\.[0-9]{3})?)$"
_FEW_ENDINGS = 3
"""Halves, thirds and quarters, rounded, have as few, and whole numbers among them: ``2.333``, ``2.667``, ``3``."""


def may_have_thousands(text: pa.Array, values: NDArray[np.float64]) -> bool:
    """Whether points may separate thousands in all cells of text; ``values`` are NaN where one is missing."""
    return bool((matches(text, _GROUPED) | np.isnan(values)).all())


def thousands_by_points(texts: pa.Array) -> Literal["likely", "possible"] | None:
    """Whether the points of a column may separate thousands.

    Args:
        texts: its different numbers, without a minus and anything else beside the digits.
    """
    with_point = texts.filter(pc.match_substring(texts, "."))
    if not len(with_point) or not matches(texts, _GROUPED).all():
        return None
    if matches(texts, "^[1-9][0-9]*$").any():
        if matches(with_point, "0$").any():
            return "likely"
        return "possible" if pc.count_distinct(pc.utf8_slice_codeunits(with_point, -3)).as_py() > _FEW_ENDINGS else None
    lengths = pc.binary_length(with_point)
    return "possible" if pc.min(lengths).as_py() < pc.max(lengths).as_py() else None


def are_codes(texts: pa.Array, rows: int, thousands: str) -> bool:
    """Whether numbers with groups of digits are rather codes: all of one length, nearly all distinct, and not round.

    Of two groups only those between spaces count, ``600 123``: amounts of six digits are common.

    Args:
        texts: the different ones, as they are written.
        rows: how many rows have one.
        thousands: what separates the groups.
    """
    if rows < LEAST_CODES or len(texts) < NEARLY_ALL * rows or pc.count_distinct(pc.binary_length(texts)).as_py() > 1:
        return False
    alike = matches(texts, rf"^(?:[0-9]{{1,3}}(?:[{thousands}][0-9]{{3}}){{2,}}|[0-9]{{3}} [0-9]{{3}})$").all()
    return bool(alike and 2 * np.count_nonzero(matches(texts, "0$")) < len(texts))


def far_apart(values: NDArray[np.float64], *, dates: bool = False) -> int:
    """How many values are farther from all others than these are from each other, as 9999 for a missing value is; 0: none.

    They are one to three different ones, each several times. Among less than ten others they are all nines or, unlike those,
    negative. Zeros alone are amounts like others, unless they are ten times as far.

    Args:
        values: n numbers; NaN: missing. Of more than 50,000 some are looked at.
        dates: whether they are dates, of which zero is one like others.
    """
    some = values[:: max(1, len(values) // LOOKED_AT)]
    distinct, counts = np.unique(some[np.isfinite(some)], return_counts=True)
    if len(distinct) < LEAST_OTHERS + 1:
        return 0
    gap = int(np.argmax(np.diff(distinct))) + 1
    above = gap > len(distinct) // 2
    far, others = (slice(gap, None), slice(gap)) if above else (slice(gap), slice(gap, None))
    near, away, rows = distinct[others], distinct[far], int(counts[far].sum())
    if len(away) > MOST_FAR or rows < max(2 * len(away), FAR_SHARE * counts.sum()):
        return 0
    spans = 1 if away.any() or dates else OF_ZERO
    if distinct[gap] - distinct[gap - 1] <= spans * (near[-1] - near[0]) or len(near) < LEAST_OTHERS:
        return 0
    nines = all(set(f"{abs(value):.0f}") == {"9"} for value in away)
    if len(near) < FEW_OTHERS and not nines and not (away[-1] < 0 <= near[0]):
        return 0
    return int(np.isin(values, away).sum())


def are_parts_of_dates(values: NDArray[np.float64], *, longer: bool) -> bool:
    """Whether numbers with a zero before other digits are months, days, weekdays or hours (``01`` … ``31``), and not codes.

    Args:
        values: all numbers of the column.
        longer: whether one of those with a zero has more than two digits.
    """
    return not longer and not bool((values > LARGEST_PART).any())
