"""Three tables of numbers, each split between a party with the target and one without, on the same rows.

motor     800 measurements of a motor: its speed and 4 columns of temperatures, beside 7 of currents and voltages (FATE)
student   395 pupils: their mark and 6 columns, beside 7 (FATE)
hdb       addresses of flats sold in Singapore in 2015 and 2016: mean price a square metre and what was sold, beside where
the block stands and what it is like
"""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Columns = Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True)
class Problem:
    """One table of n rows.

    Attributes:
        target: float64[n].
        own: columns of the party with the target, float64[n] each.
        other: columns of the other party.
        unit: of the target.
    """

    target: NDArray[np.float64]
    own: Columns
    other: Columns
    unit: str


def load(name: str, shared: Path) -> Problem:
    """The table called ``name`` from the folder of shared data sets."""
    if name == "hdb":
        return _hdb(shared / "hdb_schools")
    target, unit = {"motor": ("motor_speed", "deviations"), "student": ("y", "points")}[name]
    guest, host = (_numbers(shared / "fate_small" / f"{name}_hetero_{side}.csv.gz") for side in ("guest", "host"))
    (key, ids), *_ = guest.items()
    place = {identifier: row for row, identifier in enumerate(host[key].tolist())}
    order = np.array([place[identifier] for identifier in ids.tolist()])
    own = {column: values for column, values in guest.items() if column not in (key, target)}
    return Problem(guest[target], own, {column: values[order] for column, values in host.items() if column != key}, unit)


def _hdb(folder: Path) -> Problem:
    """One row an address that has coordinates and a description of its block."""
    (sold,) = folder.glob("resale-flat-prices-*.csv.gz")
    sales: dict[str, list[dict[str, str]]] = defaultdict(list)
    for sale in _rows(sold):
        sales[f"{sale['block']} {sale['street_name']}"].append(sale)
    places = {row["address"]: row for row in reversed(_rows(folder / "flat_coordinates_clean.csv.gz"))}  # the first of each
    blocks = {f"{row['blk_no']} {row['street']}": row for row in _rows(folder / "hdb-property-information.csv.gz")}
    addresses = sorted(sales.keys() & places.keys() & blocks.keys())
    kinds = sorted({sale["flat_type"] for some in sales.values() for sale in some})

    def mean(sales: list[dict[str, str]], column: str) -> float:
        return float(np.mean([float(sale[column]) for sale in sales]))

    def storey(sales: list[dict[str, str]]) -> float:
        return float(np.mean([float(sale["storey_range"].split(" TO ")[0]) for sale in sales]))

    each = [sales[address] for address in addresses]
    own = {
        "area": np.array([mean(some, "floor_area_sqm") for some in each]),
        "lease": np.array([mean(some, "lease_commence_date") for some in each]),
        "storey": np.array([storey(some) for some in each]),
        **{kind: np.array([np.mean([sale["flat_type"] == kind for sale in some]) for some in each]) for kind in kinds},
    }
    described = ("max_floor_lvl", "year_completed", "total_dwelling_units", *(f"{rooms}room_sold" for rooms in (2, 3, 4, 5)))
    other = {
        **{axis: np.array([float(places[address][axis]) for address in addresses]) for axis in ("LATITUDE", "LONGITUDE")},
        **{column: np.array([float(blocks[address][column]) for address in addresses]) for column in described},
    }
    price = [np.mean([float(sale["resale_price"]) / float(sale["floor_area_sqm"]) for sale in some]) for some in each]
    return Problem(np.array(price), own, other, "S$ a square metre")


def _rows(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _numbers(path: Path) -> dict[str, NDArray[np.float64]]:
    rows = _rows(path)
    return {column: np.array([float(row[column]) for row in rows]) for column in rows[0]}
