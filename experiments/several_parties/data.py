"""Adult's columns, cut into the files of three parties over the same people.

    bank      income above 50,000 dollars (the label), age, hours per week, race, native country
    employer  class of work, education (twice), occupation, sampling weight
    census    marital status, relationship, sex, capital gain and loss

The result is the same on every machine.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.tabular.data import read_parts

ACTIVE, PASSIVE = "bank", ("employer", "census")

Columns = Mapping[str, Sequence[str]]
"""Party → its columns without id and label."""

COLUMNS: Columns = {
    "bank": ("age", "hours_per_week", "race", "native_country"),
    "employer": ("workclass", "education", "education_num", "occupation", "fnlwgt"),
    "census": ("marital_status", "relationship", "sex", "capital_gain", "capital_loss"),
}

Person = Mapping[str, str]
"""Column → cell."""


def read_people(shared: Path, count: int) -> list[Person]:
    """``count`` of the 48,842 people, evenly spread over the table, from the folder of shared data sets."""
    (header, *ours), (names, *theirs) = read_parts(shared, "adult")
    everybody = [dict(zip((*header, *names), (*a, *b), strict=True)) for a, b in zip(ours, theirs, strict=True)]
    return [everybody[place * len(everybody) // count] for place in range(count)]


def write_tables(people: Sequence[Person], columns: Columns, folder: Path) -> dict[str, Path]:
    """Write the CSV file of each party into ``folder``; one without columns has a constant. Returns party → file."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for party, own in columns.items():
        names = [*own, "label"] if party == ACTIVE else own
        files[party] = folder / f"{party}.csv"
        with files[party].open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["id", *(names or ["constant"])])
            for place, person in enumerate(people):
                writer.writerow([f"person-{place}", *([person[name] for name in names] or ["1"])])
    return files
