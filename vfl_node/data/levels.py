"""Categories of one column as codes: what is learnt of its levels, and which columns have no categories at all.

=================  ====================================================================================
code               stands for
=================  ====================================================================================
0                  a missing value
1 … L              the L levels that enough fitted rows have, in sorted order
L + 1              a level that fewer rows have, or that no fitted row has
=================  ====================================================================================

The last code exists if the fitted rows have a rare level or a missing value. Otherwise neither a missing value nor an unseen
level was met in training, and both have code 0, of which nothing was learnt.
"""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from vfl_node.configuration.models import Frozen
from vfl_node.configuration.yaml_text import quote_key
from vfl_node.data.dates import Part
from vfl_node.data.tables import CategoricalColumn, Table
from vfl_node.errors import DataError

MOST_UNREAD = 1000
"""A column of so few levels is never refused: in a small table most values may be distinct, and rare ones are merged anyway."""

NEAR_UNIQUE = 0.8
"""A column in which more of its values are distinct is text or an identifier. Hashed categories of a click log reach .57."""

FEW_ROWS_EACH = 10
"""The default of ``train.least_rows``: a level that fewer rows have is learnt by heart, or merged with other ones."""

NEARLY_ALL = 0.8
"""If more of a column's values are such levels, hardly anything is learnt from it."""

MANY = 0.25
"""So many numbers are too many to be learnt by heart, whatever the other values are."""

_NUMBER = re.compile(
    r"[^0-9A-Za-z]{0,3}[0-9][0-9.,:/' T-]*"  # also a date or a time
    r"(?:[A-Za-z]{3,9}[ .,/-]{1,2}[0-9][0-9 :-]*)?[A-Za-z%]{0,3}"
)

FEW_VALUES = 100
"""With fewer values many levels are no wonder, and there are other warnings of so few records."""


class Levels(Frozen):
    """How one categorical column is encoded: ``levels[k]`` has code k + 1.

    Attributes:
        levels: those that have a code of their own, sorted.
        other: whether rare and unseen levels share the code after them; else an unseen one has code 0.
        part: of the date that the column holds; None for a categorical column.
    """

    kind: Literal["categorical"] = "categorical"
    name: str
    levels: tuple[str, ...]
    other: bool = False
    part: Part | None = None

    @classmethod
    def fit(
        cls, name: str, column: CategoricalColumn, rows: NDArray[np.int64], least_rows: int = 0, part: Part | None = None
    ) -> Levels:
        """Learn the levels that ``least_rows`` of ``rows``, int64[k], have."""
        counts = np.bincount(column.codes[rows] + 1, minlength=len(column.levels) + 1)
        missing, of_level = counts[0] > 0, counts[1:]
        kept = tuple(sorted(column.levels[code] for code in np.flatnonzero(of_level >= max(1, least_rows))))
        rare = len(kept) < np.count_nonzero(of_level)
        return cls(name=name, levels=kept, other=bool(rare or missing), part=part)

    @property
    def method(self) -> None:
        """None: there are no numbers."""

    @property
    def cardinality(self) -> int:
        """How many codes there are."""
        return len(self.levels) + 1 + self.other

    def apply(self, column: CategoricalColumn) -> NDArray[np.int64]:
        """Codes int64[n]."""
        code_of = {level: code for code, level in enumerate(self.levels, start=1)}
        unseen = self.cardinality - 1 if self.other else 0
        codes = [code_of.get(level, unseen) for level in column.levels]
        return np.array([*codes, 0], dtype=np.int64)[column.codes]  # −1, missing, takes the last element

    def undo(self, codes: NDArray[np.int64]) -> CategoricalColumn:
        """A column that is encoded as ``codes``, int64[n]; the code of rare levels becomes a level that no table has."""
        return CategoricalColumn(codes - 1, (*self.levels, "") if self.other else self.levels)


def check_categories(table: Table, party: str) -> None:
    """Refuse to train on columns that were taken for categories because of their values, and have none.

    Raises:
        DataError: nearly every value is another one (``E_TEXT_COLUMN``).
    """
    for name, column in table.columns.items():
        if isinstance(column, CategoricalColumn) and column.detected and (counts := find_near_unique(column)):
            levels, values = counts
            raise DataError(
                f"{party}: column {name!r} is text without categories: {levels:,} of its {values:,} values are distinct",
                code="E_TEXT_COLUMN",
                hint=f"say data.columns: {{{quote_key(name)}: ignore}}, or categorical to train on it all the same",
            )


def find_near_unique(column: CategoricalColumn) -> tuple[int, int] | None:
    """Number of levels and of values, if there are so many levels that they tell rows apart and say nothing of others."""
    counts = column.counts
    levels, values = int(np.count_nonzero(counts)), int(counts.sum())
    return (levels, values) if levels > MOST_UNREAD and levels > NEAR_UNIQUE * values else None


def mostly_rare(column: CategoricalColumn) -> tuple[int, int] | None:
    """Number of values that are levels of fewer than :data:`FEW_ROWS_EACH` rows, and of all values, if hardly more is learnt.

    These are nearly all values; or many of them are numbers, which others, such as ``<0.5``, have made categories.
    """
    counts = column.counts
    of_rare = np.where(counts < FEW_ROWS_EACH, counts, 0)
    rare, values = int(of_rare.sum()), int(counts.sum())
    if values < FEW_VALUES or rare <= MANY * values:
        return None
    if rare <= NEARLY_ALL * values:
        numbers = sum(of_rare[code] for code in np.flatnonzero(of_rare) if _NUMBER.fullmatch(column.levels[code]))
        if not column.detected or numbers <= MANY * values:
            return None
    return rare, values
