"""Cut the Adult census table into two parties' files.

The passive party ("census") gets the first seven columns, the active one ("bank") the
other seven and the label, income above 50,000 dollars. Each holds a random 80 % of the
32,561 people. The table is the UCI one, a CSV with a header line (``adult.data.gz``).
The result is the same on every machine.

Usage: python make_data.py ADULT_DATA_GZ FOLDER
"""

from __future__ import annotations

import csv
import gzip
import sys
from pathlib import Path

from vfl_node.crypto.randomness import Randomness

AT_CENSUS = 7
SHARE = 0.8


def main(source: Path, folder: Path) -> None:
    """Write ``bank.csv`` and ``census.csv`` into ``folder``."""
    with gzip.open(source, "rt", encoding="utf-8", newline="") as file:
        header, *rows = filter(None, csv.reader(file, skipinitialspace=True))
    names = [name.replace("-", "_") for name in header[:-1]]
    people = [["" if value == "?" else value for value in row[:-1]] for row in rows]
    rich = [int(row[-1].startswith(">50K")) for row in rows]

    randomness = Randomness(b"census and a bank, version 1.0.0")
    ids = randomness.derive("ids").permutation(9 * len(people)).tolist()  # more numbers than people: gaps tell nothing
    folder.mkdir(parents=True, exist_ok=True)
    write(
        folder / "bank.csv",
        ["id", *names[AT_CENSUS:], "label"],
        [[ids[row], *people[row][AT_CENSUS:], rich[row]] for row in some(len(people), randomness.derive("bank"))],
    )
    write(
        folder / "census.csv",
        ["id", *names[:AT_CENSUS]],
        [[ids[row], *people[row][:AT_CENSUS]] for row in some(len(people), randomness.derive("census"))],
    )


def some(count: int, randomness: Randomness) -> list[int]:
    """A random :data:`SHARE` of ``count`` rows, in random order."""
    return randomness.permutation(count)[: round(SHARE * count)].tolist()


def write(path: Path, header: list[str], rows: list[list[object]]) -> None:
    """Write one CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    print(f"{path}: {len(rows)} people, {len(header)} columns")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
