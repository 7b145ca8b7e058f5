"""Make up a housing agency's sales, a school office's schools, and two tables to judge the result by.

Nothing here is measured. Sales and schools lie at random places of a town of about 33 by 33 kilometres. A price, in
thousands, depends on the flat's area and age, which the agency knows, and on the exam results of the five schools nearest to
it, which only the school office knows. The agency's table has the place of each sale and the office's that of each school,
and the two have no identifier in common. The result is the same on every machine.

``schools_mixed.csv`` has the same schools, each with the columns of another one: over it a linkage can gain nothing but what
places alone tell. ``sales_with_place.csv`` has the place among the columns that the agency trains on, too.

Usage: python make_data.py FOLDER
"""

from __future__ import annotations

import csv
import math
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness

SALES, SCHOOLS, NEAREST = 3000, 400, 5
SOUTH, WEST, DEGREES = 1.2, 103.6, 0.3
"""The town's south-west corner, and how far it reaches to the north and to the east."""


def main(folder: Path) -> None:
    """Write the four tables into ``folder``."""
    randomness = Randomness(b"agency and schools, version 1.00")
    sold, taught = (places(count, randomness.derive(name)) for name, count in (("sales", SALES), ("schools", SCHOOLS)))
    drawn = randomness.derive("schools' columns").normal((SCHOOLS, 2)).astype(float)
    results = np.clip(np.round(60 + 15 * drawn[:, 0], 1), 0, 100)
    pupils = np.round(600 + 150 * drawn[:, 1])
    area, age, chance = randomness.derive("sales' columns").normal((3, SALES)).astype(float)
    area, age = np.round(np.clip(90 + 25 * area, 30, 200)), np.round(np.clip(20 + 10 * age, 0, 60))
    near = results[nearest(sold, taught)].mean(axis=1)
    price = np.round(100 + 2 * area - 1.5 * age + 8 * (near - 60) + 20 * chance, 1)

    folder.mkdir(parents=True, exist_ok=True)
    ids = [f"S{number:05d}" for number in randomness.derive("ids").permutation(10 * SALES)[:SALES].tolist()]
    cells = [area.astype(int), age.astype(int)]
    write(folder / "sales.csv", ["id", "lat", "lon", "area", "age", "price"], [ids, *degrees(sold), *cells, price])
    header = ["id", "lat", "lon", "area", "age", "north", "east", "price"]
    write(folder / "sales_with_place.csv", header, [ids, *degrees(sold), *cells, *degrees(sold), price])
    codes = [f"school-{number:03d}" for number in range(SCHOOLS)]
    mixed = randomness.derive("mixed").permutation(SCHOOLS)
    for name, order in (("schools.csv", np.arange(SCHOOLS)), ("schools_mixed.csv", mixed)):
        columns = [results[order], pupils[order].astype(int)]
        write(folder / name, ["id", "lat", "lon", "results", "pupils"], [codes, *degrees(taught), *columns])


def places(count: int, randomness: Randomness) -> NDArray[np.float64]:
    """Degrees north and east of :data:`SOUTH` and :data:`WEST`, float64[count, 2]."""
    return np.round(DEGREES * randomness.uniform((count, 2)), 5)


def nearest(sold: NDArray[np.float64], taught: NDArray[np.float64]) -> NDArray[np.int64]:
    """The schools nearest to each sale, int64[SALES, NEAREST]."""
    apart = (sold[:, None] - taught) * [1, math.cos(math.radians(SOUTH + DEGREES / 2))]
    return np.argsort((apart**2).sum(axis=2), axis=1, kind="stable")[:, :NEAREST]


def degrees(offsets: NDArray[np.float64]) -> list[list[str]]:
    """Latitudes and longitudes as they are written."""
    return [[f"{corner + offset:.5f}" for offset in of] for corner, of in zip((SOUTH, WEST), offsets.T.tolist(), strict=True)]


def write(path: Path, header: list[str], columns: list[list[str] | NDArray[np.float64]]) -> None:
    """Write one CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *zip(*columns, strict=True)])
    print(f"{path}: {len(columns[0])} rows, {len(header)} columns")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
