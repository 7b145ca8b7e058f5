"""The tables of the experiment, cut over a party with labels and one without; row i is the same record at both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.fedads.data import Cut, cut_of
from experiments.florist.data import Records
from experiments.florist.data import adult as read_adult
from experiments.florist.data import default_credit as read_default_credit
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import CategoricalColumn, NumericColumn, Table

ROWS, TRAINED = 5_000, 4_000
"""Rows of a trial, and those of them that each repeat trains on."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """One trial's tables and task.

    Attributes:
        cut: the tables.
        classes: of labels; 0: numbers.
        metric: of the joint model, the higher the better.
    """

    cut: Cut
    classes: int
    metric: str


def read_file(records: Records, seed: int, active: tuple[str, ...], passive: tuple[str, ...]) -> Problem:
    """Rows of a real table."""
    drawn = np.sort(Randomness(bytes(32)).derive(f"meters rows {seed}").permutation(len(records))[:ROWS])
    return Problem(cut_of(records, drawn, active, passive, TRAINED), 2, "auc")


def adult(shared: Path, seed: int) -> Problem:
    """People, and who earns more than 50,000 dollars."""
    names = tuple(_adult(shared).columns)
    return read_file(_adult(shared), seed, names[7:], names[:7])


def default_credit(shared: Path, seed: int) -> Problem:
    """Credit cards, and who did not pay."""
    names = tuple(_credit(shared).columns)
    return read_file(_credit(shared), seed, names[: len(names) // 2], names[len(names) // 2 :])


def four_classes(shared: Path, seed: int) -> Problem:
    """Made up: the largest of four noisy linear functions of 8 columns at each party."""
    columns, rng = _columns(seed)
    said = columns @ rng.normal(size=(16, 4)) / 2 + rng.gumbel(size=(ROWS, 4))
    return Problem(_made_up(columns, np.argmax(said, axis=1)), 4, "accuracy")


def numbers(shared: Path, seed: int) -> Problem:
    """Made up: a linear function of 8 columns at each party, a product of two of them, and noise."""
    columns, rng = _columns(seed)
    said = columns @ rng.normal(size=16) / 2 + columns[:, 0] * columns[:, 8] + rng.normal(size=ROWS)
    return Problem(_made_up(columns, said), 0, "r2")


def values(table: Table) -> Floats:
    """float64[n, c], the columns as an attacker outside has them: categories as numbers."""
    columns = (
        column.values if isinstance(column, NumericColumn) else column.codes if isinstance(column, CategoricalColumn) else None
        for column in table.columns.values()
    )
    return np.nan_to_num(np.stack([np.asarray(column, dtype=np.float64) for column in columns if column is not None], axis=1))


def _columns(seed: int) -> tuple[Floats, np.random.Generator]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(ROWS, 16)), rng


def _made_up(columns: Floats, labels: NDArray[Any]) -> Cut:
    records = Records({f"c{number:02d}": NumericColumn(values) for number, values in enumerate(columns.T)}, labels)
    names = tuple(records.columns)
    return cut_of(records, np.arange(ROWS), names[:8], names[8:], TRAINED)


@cache
def _adult(shared: Path) -> Records:
    return read_adult(shared)


@cache
def _credit(shared: Path) -> Records:
    return read_default_credit(shared)


TABLES: Mapping[str, Callable[[Path, int], Problem]] = {
    "adult": adult,
    "default_credit": default_credit,
    "four classes": four_classes,
    "numbers": numbers,
}
"""Name → the trial's tables, given the folder of shared data sets and a seed."""
