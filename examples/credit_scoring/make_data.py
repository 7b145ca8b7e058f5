"""Cut the table of credit-card customers into a lender's and a credit bureau's file.

The bureau (strong) has ten columns of 30,000 people. The lender (weak) has thirteen columns of
3,000 of them and knows who missed the next payment. Columns are split as in FATE's examples
and come with a mean of 0 and a standard deviation of 1 from there; they are given their names
of the original table (UCI, default of credit card clients). The other 27,000 people's rows, with
labels, go to others.csv, to measure models on. The result is the same on every machine.

Usage: python make_data.py DEFAULT_CREDIT_FOLDER FOLDER
"""

from __future__ import annotations

import csv
import gzip
import sys
from pathlib import Path

from vfl_node.crypto.randomness import Randomness

AT_LENDER = ("pay_6", *(f"bill_{month}" for month in range(1, 7)), *(f"paid_{month}" for month in range(1, 7)))
AT_BUREAU = ("limit", "sex", "education", "marriage", "age", "pay_0", "pay_2", "pay_3", "pay_4", "pay_5")
CUSTOMERS = 10
"""One person in so many is the lender's customer."""


def main(source: Path, folder: Path) -> None:
    """Write ``lender.csv``, ``bureau.csv`` and ``others.csv`` into ``folder``."""
    guest = read(source / "default_credit_hetero_guest.csv.gz")  # id, y, …
    host = read(source / "default_credit_hetero_host.csv.gz")  # id, …
    people = [[row[0], *row[2:], row[1]] for row in guest]
    order = Randomness(b"lender and bureau, version 1.0.0").derive("customers").permutation(len(people)).tolist()
    head = ["id", *AT_LENDER, "label"]
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "bureau.csv", ["id", *AT_BUREAU], host)
    write(folder / "lender.csv", head, [people[row] for row in order[: len(people) // CUSTOMERS]])
    write(folder / "others.csv", head, [people[row] for row in order[len(people) // CUSTOMERS :]])


def read(path: Path) -> list[list[str]]:
    """The rows of a gzipped CSV file, without its header."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.reader(file))[1:]


def write(path: Path, header: list[str], rows: list[list[str]]) -> None:
    """Write one CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    print(f"{path}: {len(rows)} people, {len(header)} columns")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
