"""Columns cut into bins: intervals of numbers or dates, levels of categories, and one more bin for what is missing."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from vfl_node.configuration.models import Frozen
from vfl_node.data.encoded import EncodedColumn
from vfl_node.data.tables import CategoricalColumn, Column, DateColumn, ListColumn, NumericColumn, Table, values_of
from vfl_node.data.transforms import Finite
from vfl_node.errors import DataError


class Cuts(Frozen):
    """A column of numbers, or of dates in seconds.

    Bin k has those above ``cuts[k − 1]`` and up to ``cuts[k]``; the last one has missing ones. A candidate is "up to a cut",
    and where some are missing also "up to it, or missing", and "missing".

    Attributes:
        holds: what the column has.
        cuts: ascending.
        left: the bins that go left under each candidate.
    """

    kind: Literal["cuts"] = "cuts"
    name: str
    holds: Literal["numeric", "date"]
    cuts: tuple[Finite, ...]
    left: tuple[tuple[Annotated[int, Field(ge=0)], ...], ...]

    method: ClassVar[None] = None
    part: ClassVar[None] = None

    @property
    def count(self) -> int:
        """Bins, the one of missing numbers included."""
        return len(self.cuts) + 2

    def bins_of(self, column: Column) -> NDArray[np.uint16]:
        """The bin of each row, uint16[n]."""
        assert isinstance(column, NumericColumn | DateColumn)
        values = column.values if isinstance(column, NumericColumn) else column.seconds
        found = np.searchsorted(np.array(self.cuts), values, side="left")
        return np.where(np.isnan(values), len(self.cuts) + 1, found).astype(np.uint16)

    def describe(self, candidate: int) -> str:
        """The candidate in words."""
        bins, missing = set(self.left[candidate]), len(self.cuts) + 1
        if bins == {missing}:
            return f"{self.name} is missing"
        below = f"{self.name} ≤ {self._ends(6)[max(bins - {missing})]}"
        return f"{below}, or missing" if missing in bins else below

    def describe_bins(self) -> tuple[str, ...]:
        """All bins in words."""
        ends = self._ends(4)
        between = [f"{low} to {high}" for low, high in pairwise(ends)]
        return (f"≤ {ends[0]}", *between, f"> {ends[-1]}", "missing") if ends else ("any", "missing")

    def _ends(self, digits: int) -> list[str]:
        """All cuts in words: moments in UTC, or numbers with so many significant digits, or more where two would look equal."""
        if self.holds == "date":
            seconds = np.floor(self.cuts).astype(np.int64)  # whole seconds are cut, so the same ones are below
            unit: Literal["s", "m", "D"] = "s" if (seconds % 60).any() else "m" if (seconds % 86_400).any() else "D"
            moments: NDArray[np.datetime64] = seconds.astype("datetime64[s]")
            return [str(text).replace("T", " ") for text in np.datetime_as_string(moments, unit)]
        texts = ([_number_text(cut, more) for cut in self.cuts] for more in range(digits, 17))
        return next((each for each in texts if len(set(each)) == len(each)), [f"{cut:.17g}" for cut in self.cuts])


class Sorts(Frozen):
    """A column of categories.

    Bin k has ``levels[k]``, the next one all others, and the last one missing ones. A candidate is one bin against the rest.

    Attributes:
        levels: sorted.
        left: as of :class:`Cuts`.
    """

    kind: Literal["sorts"] = "sorts"
    name: str
    levels: tuple[str, ...]
    left: tuple[tuple[Annotated[int, Field(ge=0)], ...], ...]

    holds: ClassVar[Literal["categorical"]] = "categorical"
    method: ClassVar[None] = None
    part: ClassVar[None] = None

    @property
    def count(self) -> int:
        """Bins."""
        return len(self.levels) + 2

    def bins_of(self, column: Column) -> NDArray[np.uint16]:
        """The bin of each row, uint16[n]."""
        assert isinstance(column, CategoricalColumn)
        place = {level: number for number, level in enumerate(self.levels)}
        table = np.array([*(place.get(level, len(self.levels)) for level in column.levels), len(self.levels) + 1], np.uint16)
        return table[column.codes]  # −1 is the last one

    def describe(self, candidate: int) -> str:
        """The candidate in words."""
        (place,) = self.left[candidate]
        if place == len(self.levels) + 1:
            return f"{self.name} is missing"
        return f"{self.name} = {self.levels[place]}" if place < len(self.levels) else f"{self.name} is another level"

    def describe_bins(self) -> tuple[str, ...]:
        """All bins in words."""
        return (*self.levels, "another level", "missing")


def _number_text(value: float, digits: int) -> str:
    """With so many significant digits, and whole numbers in full."""
    text = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e+" in text and abs(value) < 1e15 else text


Bins = Annotated[Cuts | Sorts, Field(discriminator="kind")]


def column_of(read: Cuts | Sorts, table: Table) -> Column:
    """The column of ``table`` that is cut.

    Raises:
        DataError: there is none, or one of another kind (``E_COLUMN``).
    """
    column = table.columns.get(read.name)
    kinds = {"numeric": NumericColumn, "date": DateColumn, "categorical": CategoricalColumn}
    if column is not None and isinstance(column, kinds[read.holds]):
        return column
    raise DataError(
        f"the model reads a {read.holds} column {read.name!r}, and this table has none",
        code="E_COLUMN",
        hint="give a table with the columns the model was trained on; declare their kinds in data.columns",
    )


def describe_column(name: str, column: Column, read: Cuts | Sorts | None) -> EncodedColumn:
    """What is made of a column; ``read``: its bins, None where it is left out."""
    if isinstance(column, ListColumn):
        return EncodedColumn(name, "list", None, 0, 0, (), int(np.count_nonzero(column.lengths == 0)))
    if isinstance(column, CategoricalColumn):
        own, present = len(read.levels) if isinstance(read, Sorts) else 0, int(np.count_nonzero(column.counts))
        return EncodedColumn(name, "categorical", None, own, present - own, (), int(np.count_nonzero(column.codes < 0)))
    kind: Literal["date", "numeric"] = "date" if isinstance(column, DateColumn) else "numeric"
    missing = int(np.count_nonzero(np.isnan(values_of(column))))
    return EncodedColumn(name, kind, "cuts" if read else None, None, None, (), missing)
