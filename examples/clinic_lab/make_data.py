"""Cut scikit-learn's breast-cancer table into a clinic's and a laboratory's file, and make up an insurer's.

The clinic holds the diagnosis and four measures, the laboratory the other 26. The
insurer's four columns are drawn: they are not in the table. Each holds a random 90 %
of the 569 patients, so that some are known to all, some to one only, and a few to
none. The result is the same on every machine.

Usage: python make_data.py FOLDER
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from sklearn.datasets import load_breast_cancer

from vfl_node.crypto.randomness import Randomness

AT_CLINIC = ("mean_texture", "mean_smoothness", "mean_symmetry", "mean_fractal_dimension")
SHARE = 0.9
AT_INSURER = ("age", "region", "visits_last_year", "claims_last_year")
REGIONS = ("north", "east", "south", "west")


def main(folder: Path) -> None:
    """Write ``clinic.csv``, ``lab.csv`` and ``insurer.csv`` into ``folder``."""
    table = load_breast_cancer()
    columns = [name.replace(" ", "_") for name in table.feature_names]
    at_clinic = [columns.index(name) for name in AT_CLINIC]
    at_lab = [index for index in range(len(columns)) if index not in at_clinic]
    malignant = 1 - table.target  # scikit-learn's 0 is malignant

    randomness = Randomness(b"clinic and laboratory, version 1")
    ids = patient_ids(len(malignant), randomness.derive("ids"))
    folder.mkdir(parents=True, exist_ok=True)
    write(
        folder / "clinic.csv",
        ["id", *AT_CLINIC, "label"],
        [[ids[row], *table.data[row, at_clinic], malignant[row]] for row in some(len(ids), randomness.derive("clinic"))],
    )
    write(
        folder / "lab.csv",
        ["id", *(columns[index] for index in at_lab)],
        [[ids[row], *table.data[row, at_lab]] for row in some(len(ids), randomness.derive("lab"))],
    )
    insured = insurers_cells(malignant.tolist(), randomness.derive("insured"))
    write(
        folder / "insurer.csv",
        ["id", *AT_INSURER],
        [[ids[row], *insured[row]] for row in some(len(ids), randomness.derive("insurer"))],
    )


def patient_ids(count: int, randomness: Randomness) -> list[str]:
    """``count`` different medical record numbers."""
    ids: dict[str, None] = {}
    while len(ids) < count:
        ids[f"MRN-{randomness.draw_below(10**8):08d}"] = None
    return list(ids)


def insurers_cells(malignant: list[int], randomness: Randomness) -> list[list[object]]:
    """Made-up values of each patient: the ill are older, visit and claim more; the region says nothing."""
    drawn = randomness.derive("values").normal((len(malignant), 3)).tolist()
    rows: list[list[object]] = []
    for ill, (age, visits, claims) in zip(malignant, drawn, strict=True):
        region = REGIONS[randomness.draw_below(len(REGIONS))]
        visited = max(0, round(3 + 3 * ill + 2 * visits))
        rows.append([max(18, round(46 + 12 * ill + 11 * age)), region, visited, round(500 * 3 ** (ill + claims))])
    return rows


def some(count: int, randomness: Randomness) -> list[int]:
    """A random :data:`SHARE` of ``count`` rows, in random order."""
    return randomness.permutation(count)[: round(SHARE * count)].tolist()


def write(path: Path, header: list[str], rows: list[list[object]]) -> None:
    """Write one CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    print(f"{path}: {len(rows)} patients, {len(header)} columns")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
