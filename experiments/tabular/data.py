"""Four public tables, each cut into the files of two parties as their settings would name them.

    adult            48,842 people, 7 + 7 columns, income above 50,000 dollars (23.9 %)
    default_credit   30,000 credit cards, 13 + 10 columns, default next month (22.1 %)
    criteo           10,000 advertisements, 26 + 13 columns, clicked (21.8 %)
    talkingdata      100,000 clicks, 3 + 3 columns, application installed (0.23 %)

The first number counts the columns of the active party, which has the labels. Both parties have all rows, in the same order,
under ids that mean nothing. The result is the same on every machine.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Row = Sequence[str]


@dataclass(frozen=True)
class Source:
    """Where a table comes from and how it is cut.

    Attributes:
        files: below the folder of shared data sets.
        cut: header and rows of all files → names and rows of the active party (with the label as its last column), then
            of the passive one.
        categorical: columns whose numbers are codes, which an owner would declare.
        delimiter: between cells of the files.
    """

    files: tuple[str, ...]
    cut: Callable[[Sequence[Sequence[Row]]], tuple[list[Row], list[Row]]]
    categorical: tuple[str, ...] = field(default=())
    delimiter: str = ","


def _adult(tables: Sequence[Sequence[Row]]) -> tuple[list[Row], list[Row]]:
    (header, *rows), (_, *more) = tables
    names = [name.replace("-", "_") for name in header[:-1]]
    people = [["" if cell == "?" else cell for cell in row] for row in (*rows, *more)]
    labels = [str(int(row[-1].startswith(">50K"))) for row in people]
    active: list[Row] = [[*row[7:14], label] for row, label in zip(people, labels, strict=True)]
    return [[*names[7:], "label"], *active], [names[:7], *(row[:7] for row in people)]


def _default_credit(tables: Sequence[Sequence[Row]]) -> tuple[list[Row], list[Row]]:
    guest, host = tables
    of_host = {row[0]: row[1:] for row in host[1:]}
    active: list[Row] = [[*guest[0][2:], "label"], *([*row[2:], row[1]] for row in guest[1:])]
    return active, [[f"h{name}" for name in host[0][1:]], *(of_host[row[0]] for row in guest[1:])]


def _criteo(tables: Sequence[Sequence[Row]]) -> tuple[list[Row], list[Row]]:
    (rows,) = tables
    active: list[Row] = [[*(f"C{k}" for k in range(1, 27)), "label"], *([*row[14:40], row[0]] for row in rows)]
    return active, [[f"I{k}" for k in range(1, 14)], *(row[1:14] for row in rows)]


def _talkingdata(tables: Sequence[Sequence[Row]]) -> tuple[list[Row], list[Row]]:
    (header, *rows) = tables[0]
    at = {name: place for place, name in enumerate(header)}

    def columns(*names: str) -> list[Row]:
        return [names, *([row[at[name]] for name in names] for row in rows)]

    active = columns("app", "channel", "click_time", "is_attributed")  # attributed_time would tell the label
    return [[*active[0][:-1], "label"], *active[1:]], columns("ip", "device", "os")


SOURCES = {
    "adult": Source(("adult/adult.data.gz", "adult/adult.test.gz"), _adult),
    "default_credit": Source(
        ("default_credit/default_credit_hetero_guest.csv.gz", "default_credit/default_credit_hetero_host.csv.gz"),
        _default_credit,
    ),
    "criteo": Source(("criteo_10k/criteo_10k.tsv.gz",), _criteo, tuple(f"C{k}" for k in range(1, 27)), delimiter="\t"),
    "talkingdata": Source(("talkingdata_100k/train_sample.csv.gz",), _talkingdata, ("app", "channel", "ip", "device", "os")),
}


def read_parts(shared: Path, name: str) -> tuple[list[Row], list[Row]]:
    """Names and rows of the active party (the label is its last column), then of the passive one."""
    source = SOURCES[name]
    return source.cut([list(_read(shared / file, source.delimiter)) for file in source.files])


def write_tables(shared: Path, name: str, folder: Path) -> dict[str, Path]:
    """Write both parties' CSV files into ``folder``. Returns role → file."""
    parts = read_parts(shared, name)
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for role, ((header, *rows)) in zip(("active", "passive"), parts, strict=True):
        files[role] = folder / f"{role}.csv"
        with files[role].open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("id", *header), *((f"row-{place}", *row) for place, row in enumerate(rows))])
    return files


def _read(path: Path, delimiter: str) -> Iterator[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        yield from filter(None, csv.reader(file, delimiter=delimiter, skipinitialspace=delimiter == ","))
