"""The tables that are linked: one of each party, the keys of both, and what is known without a linkage.

=======  ======================  ==================================  =============================  ======================
name     active party            passive party                       keys                           target
=======  ======================  ==================================  =============================  ======================
made_up  6,000 rows, 13 columns  the same 6,000, 13 other columns    4 informative numbers, noisy   one of two classes
hdb      8,000 sales of flats    165 schools with vacancies          place of flat and of school    price, k$
games    6,000 games on Steam    2,000 best known games of RAWG      title                          above 20,000 owners
=======  ======================  ==================================  =============================  ======================

``made_up`` is scikit-learn's ``make_classification`` with the class, cluster and separation arguments of FedSim's code: 20
informative columns and 10 redundant ones, 3 clusters a class, ``class_sep`` .7. Keys are no columns of either party; the other
26 are halved at random. Each seed draws its own rows.
"""

from __future__ import annotations

import csv
import gzip
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_classification

from vfl_node.crypto.filters.groups import normalise
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import CategoricalColumn, Column, NumericColumn, Table, rows_of

ACTIVE, PASSIVE, COORDINATOR = "agency", "owner", "linker"

Settings = Mapping[str, Any]

KEYS, BOUND = 4, 5.0
"""Keys of ``made_up``: how many keys, and where they end, in standard deviations."""

ROWS: Mapping[str, int] = {"made_up": 6_000, "hdb": 8_000, "games": 6_000, "small": 400}
"""Table → records of the active party."""

ENCODINGS: Mapping[str, Settings] = {
    "made_up": {"epsilon": 0.1, "delta": 0.05},
    "hdb": {"epsilon": 0.06, "delta": 0.05},
    "games": {"delta": 0.05},
}
"""Table → the job's ``align.encoding``; ``small`` has that of ``made_up``."""


@dataclass(frozen=True, eq=False)
class Case:
    """Two tables to link.

    Attributes:
        active: with labels; ``Table.keys`` has the keys.
        passive: likewise, without labels.
        keys: the job's ``align.keys``.
        encoding: the job's ``align.encoding``.
        task: of the training.
        metrics: that are kept, the first is compared.
        more: name of a control → columns that the active party has in it besides.
    """

    active: Table
    passive: Table
    keys: Settings
    encoding: Settings
    task: str
    metrics: tuple[str, ...]
    more: Mapping[str, Mapping[str, Column]] = field(default_factory=dict)

    def permute(self, seed: int) -> Case:
        """The passive party's columns stand beside other records: keys and candidates stay as they are."""
        order = Randomness(bytes(32)).derive(f"fedsim permuted {seed}").permutation(len(self.passive))
        columns = {name: rows_of(column, order) for name, column in self.passive.columns.items()}
        return replace(self, passive=replace(self.passive, columns=columns))

    def wider(self, control: str) -> Case:
        """The active party has the columns of ``more[control]``, too."""
        return replace(self, active=replace(self.active, columns={**self.active.columns, **self.more[control]}))


def made_up(_: Path, seed: int, *, scatter: float = 0.1, rows: int = ROWS["made_up"]) -> Case:
    """The same records at both parties, with noise of deviation ``scatter`` on the passive party's keys."""
    values, labels = make_classification(
        rows,
        n_features=30,
        n_informative=20,
        n_redundant=10,
        n_clusters_per_class=3,
        class_sep=0.7,
        shuffle=False,
        random_state=seed,
    )
    values = (values - values.mean(axis=0)) / values.std(axis=0)
    draws = Randomness(bytes(32)).derive(f"fedsim made up {seed}")
    keys = values[:, draws.permutation(20)[:KEYS]]  # the first 20 columns are the informative ones
    rest = np.flatnonzero(~(values[:, :, None] == keys[:, None]).all(axis=0).any(axis=1))
    rest = rest[draws.permutation(len(rest))]
    halves = [{f"x{column}": NumericColumn(values[:, column]) for column in half} for half in np.array_split(rest, 2)]
    noisy = keys + scatter * draws.normal(keys.shape)
    order = draws.permutation(rows)  # in which the passive party has them
    other = {name: NumericColumn(column.values[order]) for name, column in halves[1].items()}
    number = {"kind": "number", "low": -BOUND, "high": BOUND, "reach": 1.0}
    return Case(
        Table(ids_of(rows), halves[0], labels.astype(np.float32), keys=_numbers(keys)),
        Table(ids_of(rows), other, keys=_numbers(noisy[order])),
        {f"k{column}": number for column in range(KEYS)},
        ENCODINGS["made_up"],
        "classification",
        ("accuracy", "auc"),
        {"combine": halves[1]},
    )


def _numbers(keys: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    return {f"k{column}": np.clip(keys[:, column], -BOUND, BOUND).astype(np.float64) for column in range(KEYS)}


def hdb(shared: Path, seed: int, *, rows: int = ROWS["hdb"]) -> Case:
    """Sales without town and street, and primary schools; of the schools' columns, four are constants."""
    sales, places, schools = _hdb(shared / "hdb_schools")
    drawn = np.sort(Randomness(bytes(32)).derive(f"fedsim sales {seed}").permutation(len(sales))[:rows])
    chosen, where = [sales[row] for row in drawn], places[drawn]
    own: dict[str, Column] = {
        "flat_type": category([sale["flat_type"] for sale in chosen]),
        "flat_model": category([sale["flat_model"] for sale in chosen]),
        "storey": numbers([sale["storey_range"][:2] for sale in chosen]),
        "month": numbers([12 * int(sale["month"][:4]) + int(sale["month"][5:]) for sale in chosen]),
        **{
            name: numbers([sale[name] for sale in chosen])
            for name in ("floor_area_sqm", "lease_commence_date", "remaining_lease")
        },
    }
    price = np.array([float(sale["resale_price"]) / 1000 for sale in chosen])
    columns = [name for name in schools[0] if name not in ("school_name", "lat", "lon")]
    return Case(
        Table(ids_of(rows), own, price, keys={"at": where}),
        Table(
            ids_of(len(schools)),
            {name: numbers([school[name] for school in schools]) for name in columns},
            keys={"at": np.array([(float(school["lat"]), float(school["lon"])) for school in schools])},
        ),
        {"at": {"kind": "place", "south": 1.2, "north": 1.5, "west": 103.6, "east": 104.1, "reach": 5500}},
        ENCODINGS["hdb"],
        "regression",
        ("rmse", "r2"),
        {"key": {"lat": NumericColumn(where[:, 0].copy()), "lon": NumericColumn(where[:, 1].copy())}},
    )


@cache
def _hdb(folder: Path) -> tuple[list[dict[str, str]], NDArray[np.float64], list[dict[str, str]]]:
    """Sales with coordinates, these, and schools."""
    (sold,) = folder.glob("resale-flat-prices-*.csv.gz")
    first: dict[str, tuple[float, float]] = {}  # some addresses have several coordinates
    for row in records(folder / "flat_coordinates_clean.csv.gz"):
        first.setdefault(row["address"], (float(row["LATITUDE"]), float(row["LONGITUDE"])))
    sales = [sale for sale in records(sold) if f"{sale['block']} {sale['street_name']}" in first]
    places = np.array([first[f"{sale['block']} {sale['street_name']}"] for sale in sales])
    return sales, places, records(folder / "fedsim_school_clean.csv.gz")


def games(shared: Path, seed: int, *, rows: int = ROWS["games"]) -> Case:
    """Games on Steam, and whether more than 20,000 people own one; RAWG has the 2,000 best known ones."""
    folder = shared / "steam_rawg"
    steam, rawg = (
        [one for one in records(folder / file) if len(normalise(one[title])) > 1]
        for file, title in (("steam_video_games.csv.gz", "game"), ("rawg_top2000.csv.gz", "name"))
    )
    drawn = np.sort(Randomness(bytes(32)).derive(f"fedsim games {seed}").permutation(len(steam))[:rows])
    chosen = [steam[row] for row in drawn]
    own = {
        "year": numbers([game["release_date"][-4:] for game in chosen]),
        **{name: numbers([game[name] for game in chosen]) for name in ("price", "average_playtime", "metascore")},
    }
    owned = [game["owners"].replace("\u00a0", " ") for game in chosen]
    genres = [game["genres"].split(", ") for game in rawg]
    other: dict[str, Column] = {
        "released": numbers([game["released"][:4] for game in rawg]),
        **{name: numbers([game[name] for game in rawg]) for name in ("rating", "ratings_count", "metacritic", "playtime")},
        "genre": category([genre[0] for genre in genres]),
        "platforms": numbers([len(game["platforms"].split(", ")) for game in rawg]),
    }
    known = {plain(game["name"]) for game in rawg}
    matched = np.array([float(plain(game["game"]) in known) for game in chosen])
    return Case(
        Table(
            ids_of(rows),
            own,
            np.array([not one.startswith("0 .. ") for one in owned], dtype=np.float32),
            keys={"title": tuple(game["game"] for game in chosen)},
        ),
        Table(ids_of(len(rawg)), other, keys={"title": tuple(game["name"] for game in rawg)}),
        {"title": {"kind": "text", "length": 20}},
        ENCODINGS["games"],
        "classification",
        ("accuracy", "auc"),
        {"flag": {"matched": NumericColumn(matched)}},
    )


CASES: Mapping[str, Callable[..., Case]] = {
    "made_up": made_up,
    "hdb": hdb,
    "games": games,
    "small": partial(made_up, rows=ROWS["small"]),
}
"""Name → what makes its tables, of the folder of shared data sets and a seed."""


def records(path: Path, separator: str = ",") -> list[dict[str, str]]:
    """The rows of a table."""
    limit = csv.field_size_limit(sys.maxsize)  # of the whole process: the product's readers keep theirs
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file, delimiter=separator, skipinitialspace=True))
    finally:
        csv.field_size_limit(limit)


def ids_of(count: int) -> Identifiers:
    """Ids of records that are not joined by them."""
    return Identifiers.from_items(b"%d" % row for row in range(count))


def plain(text: str) -> str:
    """Letters and digits alone, without case."""
    return "".join(letter for letter in normalise(text) if letter.isalnum())


def numbers(cells: Sequence[Any]) -> NumericColumn:
    """Missing where a cell is no number."""
    return NumericColumn(np.array([_number(cell) for cell in cells]))


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except ValueError:
        return float("nan")


def category(cells: Sequence[str]) -> CategoricalColumn:
    """Categories."""
    levels, codes = np.unique(np.array(cells), return_inverse=True)
    return CategoricalColumn(codes.astype(np.int64), tuple(map(str, levels)))
