"""What ε costs in accuracy, through the whole product: alignment, training in shares with noise, predictions of held-out rows.

    python -m experiments.hidden.bounded SHARED            # about half an hour; a table as docs/guides/train-hidden.md has it

SHARED is the folder of the shared data sets. Columns are split between two parties as the data sets are known for:
*default_credit* as FATE ships it, *adult* with the last seven columns and the label at the active party, *hdb* (prices of
flats, as logarithms) with the place at the active party and the flat itself at the other. Both have every record, aligned by
psu, so noise is that of worlds that differ in two records. A figure is the mean of five seeds, each with another sample,
split and noise; the area, or R², is exact and over all rows held out, by the predictions of the trained model. *Alone* is the
active party's own model without noise, on the same rows.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.metrics import r2_score, roc_auc_score

from vfl_node import run

SEEDS = range(5)

FLATS = {"target_range": [12.2, 13.6]}
"""Everybody knows that a flat costs between 200,000 and 800,000; these are logarithms."""


@dataclass(frozen=True)
class Tables:
    """Both parties' columns of all records, and the label or target.

    Attributes:
        active: name → values.
        passive: likewise.
        label: of all.
        task: of the job.
    """

    active: Mapping[str, Sequence[Any]]
    passive: Mapping[str, Sequence[Any]]
    label: np.ndarray
    task: str = "classification"


def rows_of(path: Path) -> list[list[str]]:
    """Rows of a CSV file under gzip."""
    with gzip.open(path) as packed:
        return list(csv.reader(io.TextIOWrapper(packed, "utf8"), skipinitialspace=True))


def default_credit(shared: Path) -> Tables:
    """30,000 clients of a bank."""
    (head, *guest), (other, *host) = (
        rows_of(shared / "default_credit" / f"default_credit_hetero_{name}.csv.gz") for name in ("guest", "host")
    )
    by_id = {row[0]: row[1:] for row in host}
    guest = [row for row in guest if row[0] in by_id]
    mine = {name: [float(row[at]) for row in guest] for at, name in enumerate(head) if at > 1}
    theirs = {f"h{name}": [float(by_id[row[0]][at]) for row in guest] for at, name in enumerate(other[1:])}
    return Tables(mine, theirs, np.array([int(float(row[1])) for row in guest]))


def adult(shared: Path) -> Tables:
    """48,842 people of a census."""
    each = [row for part in ("data", "test") for row in rows_of(shared / "adult" / f"adult.{part}.gz") if len(row) == 15]
    each = [row for row in each if row[0].isdigit()]
    columns = [list(column) for column in zip(*each, strict=True)]
    typed = {
        f"c{at}": [float(cell) for cell in columns[at]] if at in (0, 2, 4, 10, 11, 12) else columns[at] for at in range(14)
    }
    mine, theirs = ({f"c{at}": typed[f"c{at}"] for at in some} for some in (range(7, 14), range(7)))
    return Tables(mine, theirs, np.array([row[14].startswith(">50K") for row in each], np.int64))


def hdb(shared: Path) -> Tables:
    """37,153 flats that were sold."""
    name = "resale-flat-prices-based-on-registration-date-from-jan-2015-to-dec-2016.csv.gz"
    head, *sales = rows_of(shared / "hdb_schools" / name)
    sales = [row for row in sales if len(row) == len(head)]
    column = dict(zip(head, map(list, zip(*sales, strict=True)), strict=True))
    numbers = ("floor_area_sqm", "lease_commence_date", "remaining_lease")
    typed = {name: [float(cell) for cell in cells] if name in numbers else cells for name, cells in column.items()}
    mine = {name: typed[name] for name in ("town", "flat_type", "storey_range")}
    theirs = {name: typed[name] for name in ("flat_model", *numbers) if name in typed}
    return Tables(mine, theirs, np.log(np.array(column["resale_price"], float)), "regression")


DATA = {"default_credit": default_credit, "adult": adult, "hdb": hdb}


def trained(tables: Tables, records: int, seed: int, protocol: str = "psu", **train: Any) -> tuple[float, float | None]:
    """Area, or R², of the model on held-out rows; and that of the active party's own one.

    Args:
        tables: of all records.
        records: to train on; as many more as there are, up to nine times as many, are held out.
        seed: of the sample, of the split and of all noise.
        protocol: of the alignment.
        train: keys of the job's section.
    """
    count = min(len(tables.label), 10 * records)
    some = np.sort(np.random.default_rng(seed).permutation(len(tables.label))[:count])
    ids = pa.array([f"{at:06d}" for at in some])

    def table(columns: Mapping[str, Sequence[Any]], **more: Any) -> pa.Table:
        return pa.table({"id": ids, **{name: [values[at] for at in some] for name, values in columns.items()}, **more})

    numbers = tables.task == "regression"
    metric = "r2" if numbers else "auc"
    job = {
        "name": "bounded",
        "parties": {"active": "active", "passive": "passive", "coordinator": "dealer"},
        "align": {"protocol": protocol},
        "train": {"algorithm": "hidden", "task": tables.task, "metrics_by": "none", **(FLATS if numbers else {}), **train},
        "evaluate": {"test_fraction": round(1 - records / count, 6), "metrics": [metric]},
    }
    result = run(
        job,
        active=table(tables.active, label=tables.label[some]),
        passive=table(tables.passive),
        seed=seed,
        predictions=True,
        progress=False,
    )
    predictions = result.predictions
    assert predictions is not None
    held_out = predictions.filter(pa.compute.equal(predictions["rows"], "held_out"))
    truth = held_out["label"].to_numpy()
    said = held_out["prediction" if numbers else "probability"].to_numpy()
    alone = result.local_metrics[metric] if result.local_metrics else None
    return float(r2_score(truth, said) if numbers else roc_auc_score(truth, said)), alone


def mean(tables: Tables, records: int, *, seeds: Sequence[int] = SEEDS, **train: Any) -> tuple[float, float]:
    """Means of several seeds: the model's and the active party's own."""
    each = [trained(tables, records, seed, **train) for seed in seeds]
    return float(np.mean([area for area, _ in each])), float(np.mean([own for _, own in each if own is not None]))


def short(value: float) -> str:
    """Three digits behind the point."""
    return f"{value:.3f}".replace("0.", ".", 1)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared", type=Path)
    parser.add_argument("--only", default=",".join(DATA))
    arguments = parser.parse_args()
    print("| | s = 1,000: ε 1, 2 | s = 10,000: ε 1, 2, 4 | `psi`, ε 1 | active party alone |\n|---|--:|--:|--:|--:|")
    for name in arguments.only.split(","):
        tables = DATA[name](arguments.shared)
        few = 2_000 if tables.task == "regression" else 1_000
        for columns in ("plain", "bins"):
            small = [mean(tables, few, columns=columns, epsilon=epsilon)[0] for epsilon in (1, 2)]
            large = [mean(tables, 10_000, columns=columns, epsilon=epsilon) for epsilon in (1, 2, 4)]
            known = mean(tables, 10_000, columns=columns, epsilon=1, protocol="psi")[0]
            cells = " | ".join(", ".join(map(short, areas)) for areas in (small, [area for area, _ in large]))
            print(f"| {name}, `columns: {columns}` | {cells} | {short(known)} | {short(large[0][1])} |", flush=True)


if __name__ == "__main__":
    main()
