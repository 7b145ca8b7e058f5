"""The tables of the experiment, cut over a party with labels and one without; row i is the same record at both.

=============  =======  ==========  ==============================  ================================
name           rows     positives   label party                     other party
=============  =======  ==========  ==============================  ================================
adult          16,000   24 %        the last 7 columns, income      the first 7 columns
generator-5    20,000   5 %         16 columns of clicks, purchase  7 columns of the same clicks
generator-1    20,000   1 %         the same                        the same
=============  =======  ==========  ==============================  ================================

4,000 rows are trained on. The others are held out: with 1 % positives an AUC of fewer rows says nothing. Each seed draws its
own rows of ``adult``, and makes its own clicks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np

from experiments.fedads.generator import IDS, LABEL_PARTY, OTHER_PARTY, Clicks, Market
from experiments.florist.data import Records
from experiments.florist.data import adult as read_adult
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import CategoricalColumn, Column, NumericColumn, Table

ACTIVE, PASSIVE = "advertiser", "publisher"

TRAINED = 4_000
"""Rows trained on."""


@dataclass(frozen=True, eq=False)
class Cut:
    """n records at both parties.

    Attributes:
        tables: party → its table, the active party first.
        held_out: share of the rows that is not trained on.
    """

    tables: Mapping[str, Table]
    held_out: float

    @property
    def tested(self) -> int:
        """How many rows are held out."""
        return round(self.held_out * len(self))

    def __len__(self) -> int:
        return len(self.tables[ACTIVE])


def adult(shared: Path, seed: int, rows: int = 16_000) -> Cut:
    """People, and who earns more than 50,000 dollars."""
    records = _adult(shared)
    drawn = np.sort(Randomness(bytes(32)).derive(f"fedads rows {seed}").permutation(len(records))[:rows])
    names = tuple(records.columns)
    return cut_of(records, drawn, names[7:], names[:7], TRAINED)


def clicks(shared: Path, seed: int, positives: float, rows: int = 20_000, trained: int = TRAINED) -> Cut:
    """Clicks that need no file."""
    made = Market(positives, users=rows, items=rows // 10, seed=seed).table(rows)
    return cut_of(records_of(made), np.arange(rows), LABEL_PARTY, OTHER_PARTY, trained)


def records_of(made: Clicks) -> Records:
    """Clicks as columns of the product: ids as categories, bins as numbers."""
    return Records({name: _column(name, values) for name, values in made.columns.items()}, made.labels)


def _column(name: str, values: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Column:
    if name not in IDS:
        return NumericColumn(values.astype(np.float64))
    levels, codes = np.unique(values, return_inverse=True)
    width = len(str(levels[-1]))  # levels are sorted as text
    return CategoricalColumn(codes.astype(np.int64), tuple(f"{level:0{width}d}" for level in levels.tolist()))


def cut_of(records: Records, rows: np.ndarray, active: tuple[str, ...], passive: tuple[str, ...], trained: int) -> Cut:
    """``rows`` of ``records`` with so many ``trained`` on, and each party's columns."""
    tables = {
        ACTIVE: records.table(rows, active, labelled=True),
        PASSIVE: records.table(rows, passive, labelled=False),
    }
    return Cut(tables, 1 - trained / len(rows))


@cache
def _adult(shared: Path) -> Records:
    return read_adult(shared)


TABLES: Mapping[str, Callable[[Path, int], Cut]] = {
    "adult": adult,
    "generator-5": partial(clicks, positives=0.05),
    "generator-1": partial(clicks, positives=0.01),
    "small": partial(clicks, positives=0.1, rows=2_400, trained=1_200),
}
"""Name → the table, given the folder of shared data sets and the seed of a trial."""

SHARES = {"adult": 0.24, "generator-5": 0.05, "generator-1": 0.01, "small": 0.1}
"""Name → share of positives, about."""
