"""The tables of the experiments, read where they lie and never copied, and one that is made up.

Every table is binary and unbalanced, as the paper's are. All columns are the passive party's,
labels the active one's. A category of fewer than :data:`LEAST` rows becomes ``rare``: it would
have an embedding of its own, and be learnt by heart.

``made_up`` needs no file, for the tests and for a first look (``--small``), nor does ``continuous``.
"""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.missing_words import MISSING
from vfl_node.data.tables import CategoricalColumn, Column, NumericColumn, Table, rows_of, values_of

LEAST = 20
KEPT_NEGATIVES = 10
"""One in so many of talkingdata's negatives is kept: 227 of 100,000 rows are positive."""

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Records:
    """Columns of n records, and a label float32[n] of each."""

    columns: dict[str, Column]
    labels: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.labels)

    def table(self, rows: Rows, columns: Iterable[str], *, labelled: bool) -> Table:
        """A party's: the records ``rows`` with ``columns``, a record's number being its id."""
        return Table(
            Identifiers.from_items(b"%d" % row for row in rows.tolist()),
            {name: rows_of(self.columns[name], rows) for name in columns},
            self.labels[rows] if labelled else None,
        )


def adult(folder: Path) -> Records:
    """Census of 32,561 people; 24 % earn above 50,000 dollars."""
    header, *rows = _read(folder / "adult" / "adult.data.gz", skipinitialspace=True)
    numeric = {"age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"}
    cells = _columns(header[:-1], rows)
    return _records(cells, numeric, [row[-1].startswith(">50K") for row in rows])


def default_credit(folder: Path) -> Records:
    """30,000 credit cards; 22 % of their owners missed the next payment."""
    header, *rows = _read(folder / "default_credit" / "UCI_Credit_Card.csv.gz")
    cells = _columns(header[1:-1], [row[1:] for row in rows])
    return _records(cells, set(cells) - {"SEX", "EDUCATION", "MARRIAGE"}, [row[-1] == "1" for row in rows])


def criteo(folder: Path) -> Records:
    """The first 10,000 lines of Criteo's click log: 13 counts, as log(1 + x), and 26 categories; 22 % were clicked."""
    rows = _read(folder / "criteo_10k" / "criteo_10k.tsv.gz", delimiter="\t")
    counts, categories = [f"I{i}" for i in range(1, 14)], [f"C{i}" for i in range(1, 27)]
    records = _records(_columns(["label", *counts, *categories], rows), {"label", *counts}, [row[0] == "1" for row in rows])
    del records.columns["label"]
    for name in counts:
        values = values_of(records.columns[name])  # −1 and −2 occur
        records.columns[name] = NumericColumn(np.sign(values) * np.log1p(np.abs(values)))
    return records


def talkingdata(folder: Path) -> Records:
    """Clicks on advertisements for apps: all 227 that led to a download, and one in ten of the others; 2.2 % positive."""
    header, *rows = _read(folder / "talkingdata_100k" / "train_sample.csv.gz")
    positive = np.array([row[-1] == "1" for row in rows])
    others = np.flatnonzero(~positive)
    order = Randomness(bytes(32)).derive("talkingdata").permutation(len(others))
    kept = np.sort(np.concatenate([np.flatnonzero(positive), others[order[: len(others) // KEPT_NEGATIVES]]]))
    some = [rows[row] for row in kept.tolist()]
    cells = _columns(header[:5], some) | {"hour": [row[5].split(" ")[1].split(":")[0] for row in some]}
    return _records(cells, {"hour"}, positive[kept])  # attributed_time would give the label away


def made_up(folder: Path) -> Records:
    """4,000 records of five numbers and two categories, on which a label depends; 20 % positive."""
    rng = np.random.default_rng(2106)
    x, kind, place = rng.normal(size=(4000, 5)), rng.integers(0, 4, 4000), rng.integers(0, 8, 4000)
    score = 1.5 * x[:, 0] - x[:, 1] + x[:, 2] * x[:, 3] + 0.6 * kind + 0.4 * (place % 3) + rng.logistic(size=4000)
    columns: dict[str, Column] = {f"x{column}": NumericColumn(x[:, column]) for column in range(5)}
    columns |= {name: CategoricalColumn(codes, tuple("abcdefgh")) for name, codes in (("kind", kind), ("place", place))}
    return Records(columns, (score > np.quantile(score, 0.8)).astype(np.float32))


def continuous(folder: Path) -> Records:
    """12,000 records of 16 numbers with two decimals near a surface of five dimensions, six of them skewed; 20 % positive."""
    rng = np.random.default_rng(11)
    hidden = rng.normal(size=(12_000, 5)) + 2.0 * rng.integers(0, 3, (12_000, 1)) * np.array([1, 0, -1, 0, 0.5])
    x = hidden @ rng.normal(size=(5, 16)) + 0.5 * rng.normal(size=(12_000, 16))
    x[:, 10:] = np.exp(x[:, 10:] / 3)
    score = hidden[:, 0] - hidden[:, 1] * hidden[:, 2] + rng.logistic(size=12_000)
    columns: dict[str, Column] = {f"x{column}": NumericColumn(np.round(x[:, column], 2)) for column in range(16)}
    return Records(columns, (score > np.quantile(score, 0.8)).astype(np.float32))


def scoring(folder: Path) -> Records:
    """12,000 loans with the columns that credit scoring has: late payments, debts, incomes that are missing; 7 % went bad."""
    rng, n = np.random.default_rng(45), 12_000
    risk = rng.normal(size=n)
    late = [rng.poisson(np.exp(0.9 * risk - shift)) for shift in (1.6, 2.6, 3.0)]
    income = np.exp(8.6 - 0.25 * risk + 0.6 * rng.normal(size=n))
    x: dict[str, NDArray[np.float64]] = {
        "utilisation": np.clip(np.exp(0.8 * risk + rng.normal(size=n) - 1.2), 0, 50).round(4),
        "age": np.clip(52 - 4 * risk + 13 * rng.normal(size=n), 21, 99).round(),
        "late": late[0].astype(float),
        "debt_ratio": np.exp(rng.normal(size=n) - 1).round(4),
        "income": np.where(rng.random(n) < 0.2, np.nan, income.round()),
        "open_lines": rng.poisson(8, n).astype(float),
        "very_late": late[1].astype(float),
        "real_estate": rng.poisson(1, n).astype(float),
        "quite_late": late[2].astype(float),
        "dependents": np.where(rng.random(n) < 0.03, np.nan, rng.poisson(0.8, n)),
    }
    x["debt_ratio"] = np.where(np.isnan(x["income"]), 2000 * x["debt_ratio"], x["debt_ratio"])
    score = 1.3 * risk + 0.4 * (x["debt_ratio"] > 0.6) - 0.015 * (x["age"] - 50) + rng.logistic(size=n)
    columns: dict[str, Column] = {name: NumericColumn(values) for name, values in x.items()}
    return Records(columns, (score > np.quantile(score, 0.93)).astype(np.float32))


SOURCES: dict[str, Callable[[Path], Records]] = {
    "adult": adult,
    "default_credit": default_credit,
    "criteo": criteo,
    "talkingdata": talkingdata,
    "made_up": made_up,
    "scoring": scoring,
    "continuous": continuous,
}
"""Name → its records, given the folder of shared data sets."""


def _read(path: Path, **form: object) -> list[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return list(filter(None, csv.reader(file, **form)))  # type: ignore[arg-type]


def _columns(names: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def _records(cells: dict[str, list[str]], numeric: set[str], positive: Sequence[bool] | NDArray[np.bool_]) -> Records:
    columns: dict[str, Column] = {
        name: _numbers(cells_) if name in numeric else _categories(cells_) for name, cells_ in cells.items()
    }
    return Records(columns, np.asarray(positive, np.float32))


def _numbers(cells: Sequence[str]) -> NumericColumn:
    return NumericColumn(np.array([np.nan if cell in MISSING else float(cell) for cell in cells]))


def _categories(cells: Sequence[str]) -> CategoricalColumn:
    """Absent cells are a category of their own, as in the paper."""
    frequent = {cell for cell, count in Counter(cells).items() if count >= LEAST}
    levels, codes = np.unique([cell if cell in frequent else "rare" for cell in cells], return_inverse=True)
    return CategoricalColumn(codes.astype(np.int64), tuple(levels.tolist()))
