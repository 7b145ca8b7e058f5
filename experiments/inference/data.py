"""The tables of the experiments, cut over parties, read where they lie and never copied; and two that are made up.

================  ======  ==================================  ==========================================  ================
name              rows    active party                        passive parties                             attacked
================  ======  ==================================  ==========================================  ================
adult             8,000   the last 7 columns, income          the first 7 columns                         occupation
default_credit    8,000   PAY_6, 12 amounts, default          LIMIT_BAL, SEX, … AGE, PAY_0 to PAY_5       LIMIT_BAL
location30        5,010   the first 223 flags, place (of 30)  the last 223 flags                          all flags
location30-three  5,010   the first 148 flags, place          149 flags each                              all flags
location30-one    5,010   the same                            the first of these two alone                all flags
location30-other  5,010   the same                            the second of them alone                    all flags
made_up           900     4 numbers, label                    3 numbers, a category of 6 values           kind
made_up_flags     900     12 flags, label of 4 classes        12 flags                                    all flags
made_up_three     900     8 flags, label of 4 classes         8 flags each; or one of them                all flags
================  ======  ==================================  ==========================================  ================

Of ``adult`` and ``default_credit`` each seed draws its own 8,000 rows. Source of the cut: arXiv 2104.14383, table 1, "all
attributes are split evenly across the clients".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.florist.data import Records, adult, default_credit
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import CategoricalColumn, Column, NumericColumn, Table, values_of

ACTIVE, VICTIMS = "attacker", ("victim", "other")
MOST_ROWS = 8_000

Rows = NDArray[np.int64]
Columns = Mapping[str, Column]


@dataclass(frozen=True, eq=False)
class Split:
    """n records over an active party, which has the labels, and passive ones; row i is the same record everywhere.

    Attributes:
        tables: party → its table, the active party first.
        attacked: the columns of the passive parties that are attacked.
        classes: of the label.
    """

    tables: Mapping[str, Table]
    attacked: tuple[str, ...]
    classes: int

    @property
    def passive(self) -> tuple[str, ...]:
        """Names of the passive parties."""
        return tuple(name for name in self.tables if name != ACTIVE)

    def __len__(self) -> int:
        return len(self.tables[ACTIVE])

    def attacked_of(self, party: str) -> tuple[str, ...]:
        """The attacked columns that a party has."""
        return tuple(name for name in self.attacked if name in self.tables[party].columns)

    def features(self, party: str) -> NDArray[np.float64]:
        """All columns of a party side by side, float64[n, c]: categories as codes. Rows that are equal here are duplicates."""
        return np.column_stack([values_of(column) for column in self.tables[party].columns.values()])


def _cut(records: Records, rows: Rows, cut: Mapping[str, tuple[str, ...]], attacked: tuple[str, ...]) -> Split:
    tables = {party: records.table(rows, columns, labelled=party == ACTIVE) for party, columns in cut.items()}
    return Split(tables, attacked, int(records.labels.max()) + 1)


def _draw(records: Records, seed: int) -> Rows:
    order = Randomness(bytes(32)).derive(f"inference rows {seed}").permutation(len(records))
    return np.sort(order[:MOST_ROWS])


def _adult(shared: Path, seed: int) -> Split:
    records = _read("adult", shared)
    names = tuple(records.columns)
    return _cut(records, _draw(records, seed), {ACTIVE: names[7:], VICTIMS[0]: names[:7]}, ("occupation",))


def _default_credit(shared: Path, seed: int) -> Split:
    records = _read("default_credit", shared)
    names = tuple(records.columns)
    return _cut(records, _draw(records, seed), {ACTIVE: names[10:], VICTIMS[0]: names[:10]}, ("LIMIT_BAL",))


def _location30(shared: Path, seed: int) -> Split:
    return _flags(_read("location30", shared), 223, 223)


def _location30_three(shared: Path, seed: int) -> Split:
    return _flags(_read("location30", shared), 148, 149, 149)


def _location30_one(shared: Path, seed: int) -> Split:
    return _flags(_read("location30", shared), 148, 149, 149, only=VICTIMS[0])


def _location30_other(shared: Path, seed: int) -> Split:
    return _flags(_read("location30", shared), 148, 149, 149, only=VICTIMS[1])


def _flags(records: Records, *sizes: int, only: str = "") -> Split:
    """Flags over parties, so many for each; or the same with one of the passive parties ``only``."""
    parts = np.split(np.array(list(records.columns)), np.cumsum(sizes)[:-1])
    cut = {party: tuple(part.tolist()) for party, part in zip((ACTIVE, *VICTIMS), parts, strict=False)}
    cut = {party: names for party, names in cut.items() if party in (ACTIVE, only) or not only}
    attacked = tuple(name for party, names in cut.items() if party != ACTIVE for name in names)
    return _cut(records, np.arange(len(records)), cut, attacked)


def made_up(shared: Path, seed: int) -> Split:
    """A table that needs no file: a category that the attacker's own columns tell little of, and a label of both parties."""
    rng = np.random.default_rng(2104)
    x, noise = rng.normal(size=(900, 7)), rng.normal(size=(2, 900))
    kind = np.digitize(0.5 * x[:, 0] + noise[0], [-1.2, -0.6, 0.0, 0.6, 1.2])
    score = x[:, 1] + x[:, 5] + 0.5 * kind + noise[1]
    columns: dict[str, Column] = {f"x{column}": NumericColumn(x[:, column]) for column in range(7)}
    columns["kind"] = CategoricalColumn(kind, tuple("abcdef"))
    records = Records(columns, (score > np.median(score)).astype(np.float32))
    names = tuple(columns)
    return _cut(records, np.arange(len(records)), {ACTIVE: names[:4], VICTIMS[0]: names[4:]}, ("kind",))


def made_up_flags(shared: Path, seed: int) -> Split:
    """Flags that need no file: each is more frequent in some classes than in others, as visits to places are."""
    return _flags(_made_up_flags(), 12, 12)


def made_up_three(shared: Path, seed: int, only: str = "") -> Split:
    """The same flags over three parties, or two of these."""
    return _flags(_made_up_flags(), 8, 8, 8, only=only)


def _made_up_flags() -> Records:
    rng = np.random.default_rng(30)
    labels = rng.integers(0, 4, 900)
    often = rng.choice([0.05, 0.15, 0.6], p=[0.5, 0.3, 0.2], size=(4, 24))
    flags = rng.random((900, 24)) < often[labels]
    return Records({f"f{at}": NumericColumn(flags[:, at].astype(float)) for at in range(24)}, labels.astype(np.float32))


SPLITS: Mapping[str, Callable[[Path, int], Split]] = {
    "adult": _adult,
    "default_credit": _default_credit,
    "location30": _location30,
    "location30-three": _location30_three,
    "location30-one": _location30_one,
    "location30-other": _location30_other,
    "made_up": made_up,
    "made_up_flags": made_up_flags,
    "made_up_three": made_up_three,
    "made_up_one": partial(made_up_three, only=VICTIMS[0]),
    "made_up_other": partial(made_up_three, only=VICTIMS[1]),
}
"""Name → the split, given the folder of shared data sets and the seed of a trial."""


def _read_location30(shared: Path) -> Records:
    """5,010 people of Foursquare: 446 flags of places and regions that they visited; 30 clusters of them as label."""
    import pyarrow.parquet as parquet

    table = parquet.read_table(shared / "location30" / "location30.parquet")
    cells = {name: table[name].to_numpy().astype(np.float64) for name in table.schema.names}
    labels = cells.pop("label") - 1
    return Records({name: NumericColumn(values) for name, values in cells.items()}, labels.astype(np.float32))


@cache
def _read(name: str, shared: Path) -> Records:
    return {"adult": adult, "default_credit": default_credit, "location30": _read_location30}[name](shared)
