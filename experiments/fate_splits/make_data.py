"""Lay out three of FATE's example tables, already split between a guest (labels) and a host, for training and testing.

    breast    569 patients, 10 and 20 columns, 2 classes
    vehicle   846 silhouettes, 9 and 9 columns, 4 classes
    epsilon   5,000 rows, 20 and 80 columns, 2 classes

One row in five is held out, by scikit-learn's stratified split with seed 0; both parties have
all other rows. FATE's column `y` becomes `label`. The result is the same on every machine.

Usage: python make_data.py SHARED_DATA_FOLDER FOLDER
"""

from __future__ import annotations

import csv
import gzip
import sys
from pathlib import Path

from sklearn.model_selection import train_test_split

SOURCES = {
    "breast": ("fate_small/breast_hetero_guest.csv.gz", "fate_small/breast_hetero_host.csv.gz"),
    "vehicle": ("fate_small/vehicle_scale_hetero_guest.csv.gz", "fate_small/vehicle_scale_hetero_host.csv.gz"),
    "epsilon": ("epsilon_5k/epsilon_5k_hetero_guest.csv.gz", "epsilon_5k/epsilon_5k_hetero_host.rebuilt.csv.gz"),
}


def main(source: Path, folder: Path) -> None:
    """Write ``guest.csv`` and ``host.csv`` into ``folder/NAME/train`` and ``folder/NAME/test``."""
    for name, (guest_file, host_file) in SOURCES.items():
        (_, _, *at_guest), *guest = read(source / guest_file)  # id, y, …
        (_, *at_host), *host = read(source / host_file)
        at = {row[0]: row for row in host}
        parts = train_test_split(guest, test_size=0.2, random_state=0, stratify=[row[1] for row in guest])
        for part, rows in zip(("train", "test"), parts, strict=True):
            there = folder / name / part
            there.mkdir(parents=True, exist_ok=True)
            write(there / "guest.csv", ["id", *at_guest, "label"], [[row[0], *row[2:], row[1]] for row in rows])
            write(there / "host.csv", ["id", *at_host], [at[row[0]] for row in rows])


def read(path: Path) -> list[list[str]]:
    """The rows of a gzipped CSV file, the header first."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def write(path: Path, header: list[str], rows: list[list[str]]) -> None:
    """Write one CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    print(f"{path}: {len(rows)} rows, {len(header)} columns")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
