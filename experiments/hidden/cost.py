"""What whole trainings cost between nodes: processes of this machine, connected by mutual TLS."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from experiments.florist.experiment import ACTIVE, PASSIVE, Drawn, Trial, randomness_of, records_of
from experiments.hidden.experiment import Union, job_of, train_of
from vfl_node import run
from vfl_node.data.tables import CategoricalColumn, Column, NumericColumn, Table

WAYS = ("hidden", "FLORIST", "psi")


def between_nodes(shared: Path, *, data: str, seed: int, ratio: float) -> dict[str, dict[str, float]]:
    """Way → seconds of training, megabytes between the data parties both ways, and megabytes from the dealer to both.

    *hidden* and *FLORIST* are over the union of the trial with this seed and ratio, *psi* is FLORIST's network over the
    intersection. Alignment is not counted.
    """
    randomness, records = randomness_of(data, seed), records_of(data, shared)
    union = Union.from_records(records, Drawn.draw(randomness, len(records), alpha=ratio, beta=ratio))
    tables, train = union.tables, train_of(int(union.both.sum()))
    codes = [name for name, column in tables[PASSIVE].columns.items() if isinstance(column, CategoricalColumn)]
    settings = {PASSIVE: {"data": {"columns": dict.fromkeys(codes, "categorical")}}}
    split = Trial(data, seed, ratio, ratio, calibration="train").train.model_dump(mode="json")
    split["missing"].pop("shares")  # which the alignment tells
    jobs = {"hidden": job_of(data, train), "FLORIST": job_of(data, split), "psi": job_of(data, split, "psi")}
    frames = {name: arrow(table) for name, table in tables.items()}
    found = {}
    for way, job in jobs.items():
        given = {"active": frames[ACTIVE], "passive": frames[PASSIVE]}
        result = run(job, **given, settings=settings, processes=True, seed=seed, progress=False)
        epochs = result.report.figures["training"]["epochs"]
        dealt = [result.reports[name].figures["training"].get("hidden") for name in (ACTIVE, PASSIVE)]
        found[way] = {
            "s": sum(epoch["seconds"] for epoch in epochs),
            "MB": sum(epoch["bytes"] for epoch in epochs) / 1e6,
            "MB dealt": sum(figures["dealer_bytes"] for figures in dealt if figures) / 1e6,
        }
    return found


def arrow(table: Table) -> pa.Table:
    """As its owner would have it."""
    columns = {"id": pa.array([id_.decode() for id_ in table.ids])}
    columns |= {name: _cells(column) for name, column in table.columns.items()}
    if table.labels is not None:
        columns["label"] = pa.array(table.labels.astype(int))
    return pa.table(columns)


def _cells(column: Column) -> pa.Array:
    if isinstance(column, NumericColumn):
        return pa.array(column.values, from_pandas=True)
    assert isinstance(column, CategoricalColumn)
    return pa.array([column.levels[code] for code in column.codes])
