"""Rows that are sorted by the record they belong to, and what is computed of each record's rows.

No result depends on the order of the rows within a record. Sums are exact before they are rounded once, as ``math.fsum`` gives
them; where several rows are equally early or late, their values decide.

Values are float64[n] in the order of the groups, and NaN where there is none. Results are float64[g], a record each.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.int64]


class RowGroups:
    """n rows of g records.

    Args:
        rows: places of the rows in the input, int64[n], those of a record one after the other.
        begins: whether a row is of another record than the one before it, bool[n]; the first one is.

    Attributes:
        rows: as given.
        starts: where the rows of each record begin, int64[g].
    """

    def __init__(self, rows: Places, begins: NDArray[np.bool_]) -> None:
        self.rows = rows
        self.starts = np.flatnonzero(begins)

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def lengths(self) -> Places:
        """How many rows each record has, int64[g]."""
        return np.diff(self.starts, append=len(self.rows))

    @cached_property
    def of_row(self) -> Places:
        """The record of each row, int64[n]."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def count(self, values: Floats) -> Floats:
        """How many rows have a value."""
        return np.add.reduceat(~np.isnan(values), self.starts, dtype=np.int64).astype(np.float64)

    def least(self, values: Floats) -> Floats:
        """The smallest value."""
        return np.fmin.reduceat(values, self.starts)

    def largest(self, values: Floats) -> Floats:
        """The largest value."""
        return np.fmax.reduceat(values, self.starts)

    def total(self, values: Floats) -> Floats:
        """The sum, rounded once, of numbers up to 2^900; NaN of no number.

        Each number is split into parts that are multiples of one unit and so few units that no sum of a part is rounded.
        """
        bits = 53 - int(self.lengths.max()).bit_length()
        rest, parts = np.where(np.isnan(values), 0.0, values), [np.zeros(len(self))]
        while largest := float(np.abs(rest).max()):
            unit = max(math.ldexp(1.0, math.frexp(largest)[1] - bits), math.ulp(0.0))
            part = np.rint(rest / unit) * unit
            parts.append(np.add.reduceat(part, self.starts))
            rest -= part
        sums = np.fromiter(map(math.fsum, zip(*(part.tolist() for part in parts), strict=True)), np.float64, len(self))
        return np.where(self.count(values) > 0, sums, np.nan)

    def mean(self, values: Floats) -> Floats:
        """The mean of the numbers."""
        return self.total(values) / np.maximum(self.count(values), 1)

    def deviation(self, values: Floats) -> Floats:
        """The standard deviation with n − 1 in the denominator, of numbers up to 2^400; NaN of fewer than two."""
        apart = values - self.mean(values)[self.of_row]
        free = self.count(values) - 1
        return np.where(free > 0, np.sqrt(self.total(apart * apart) / np.maximum(free, 1)), np.nan)

    def median(self, values: Floats) -> Floats:
        """The median of the numbers."""
        by_size = values[np.lexsort((values, self.of_row))]  # NaN comes last
        count = self.count(values).astype(np.int64)
        low, high = (self.starts + np.maximum(place, 0) for place in ((count - 1) // 2, count // 2))
        high = np.minimum(high, np.maximum(low, self.starts + count - 1))
        one, other = by_size[low], by_size[high]
        return one + (other - one) / 2

    def value_at_end(self, values: Floats, when: Floats, end: Literal["first", "last"]) -> Floats:
        """The value of the first or the last row that has one; of several such rows the smallest or the largest value.

        ``when``: the place of each row in their order, finite.
        """
        take = self.least if end == "first" else self.largest
        there = ~np.isnan(values)
        chosen = there & (when == take(np.where(there, when, np.nan))[self.of_row])
        return take(np.where(chosen, values, np.nan))

    def kinds(self, codes: Floats) -> tuple[Places, Places, Places]:
        """The different codes that each record has: record, code and in how many of its rows; sorted by record and code."""
        there = np.flatnonzero(~np.isnan(codes))
        width = int(codes[there].max(initial=0)) + 1
        pairs, rows = np.unique(self.of_row[there] * width + codes[there].astype(np.int64), return_counts=True)
        return pairs // width, pairs % width, rows

    def distinct(self, values: Floats) -> Floats:
        """How many different values there are."""
        there = ~np.isnan(values)
        codes = np.full(len(values), np.nan)
        codes[there] = np.unique(values[there], return_inverse=True)[1]
        return np.bincount(self.kinds(codes)[0], minlength=len(self)).astype(np.float64)

    def most(self, codes: Floats) -> Floats:
        """The code of the most rows; of several such codes the smallest."""
        record, code, rows = self.kinds(codes)
        order = np.lexsort((code, -rows, record))
        first = order[np.flatnonzero(np.diff(record[order], prepend=-1))]
        found = np.full(len(self), np.nan)
        found[record[first]] = code[first]
        return found

    def last_ones(self, codes: Floats, when: Floats, most: int) -> tuple[Places, Places]:
        """The codes of the last rows that have one, at most so many a record, the latest last; and how many each record has."""
        order = np.lexsort((codes, when, self.of_row))
        order = order[~np.isnan(codes[order])]
        count = np.bincount(self.of_row[order], minlength=len(self))
        left = np.repeat(np.cumsum(count), count) - np.arange(len(order))  # rows of the record from this one on
        return codes[order[left <= most]].astype(np.int64), np.minimum(count, most)
