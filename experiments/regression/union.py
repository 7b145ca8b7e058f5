"""A regression over the union beside one over the intersection: the same records of a table, given out five times.

Half of the records are at both parties, a quarter at one of them alone, and a quarter at the other. Over ``psi`` the split
network is trained on the shared half. Over ``psu`` it is trained on all records, with rows and targets made up where a party
lacks a record. Each is measured as the active party's report has it: on its own held-out records, one in five of those aligned.

    python -m experiments.regression.union --data SHARED_DATA_FOLDER --out docs/experiments

It writes ``regression-union.json`` and the page ``regression-union.md``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from experiments.regression.data import Columns, Problem, load
from experiments.regression.run import SPLIT, SPLITS
from vfl_node import run

ALIGNMENTS = ("psi", "psu")

NAMES = ("motor", "hdb")

ABOUT = """\
# Regression over a union

How much a regression loses where rows and targets are made up. Half of the records of a table are at both parties, a quarter at
one of them alone, and a quarter at the other. This was drawn five times, and each time the same split network was trained over
`psi` and over `psu`. R² is that of the active party's report, on its own held-out records: mean ± standard deviation.

    python -m experiments.regression.union --data SHARED_DATA_FOLDER --out docs/experiments

Settings are those of [regression beside scikit-learn](regression.md). Strategies for missing rows are the default ones, without
calibration. Over `psu`, half as many records again are measured: of these the passive party has no row, and makes one up.
**Five draws, may be luck.**

| table | R² over `psi` | R² over `psu` | active party alone, `psu` |
|---|---|---|---|
"""


def give_out(problem: Problem, draw: int) -> tuple[pa.Table, pa.Table]:
    """The tables of the active and the passive party."""
    rows = len(problem.target)
    order = np.random.default_rng(draw).permutation(rows)
    quarter = rows // 4

    def table(columns: Columns, mine: Any) -> pa.Table:
        return pa.table({"id": [str(row) for row in mine], **{name: values[mine] for name, values in columns.items()}})

    active = table({**problem.own, "label": problem.target}, order[quarter:])
    return active, table(problem.other, order[: rows - quarter])


def measure(name: str, problem: Problem, draw: int) -> dict[str, dict[str, float]]:
    """Alignment → metrics of the joint model, and of the active party alone."""
    active, passive = give_out(problem, draw)
    found = {}
    for alignment in ALIGNMENTS:
        job = {"align": {"protocol": alignment}, "train": {"task": "regression", **SPLIT[name]}}
        result = run(job, active=active, passive=passive, seed=draw, progress=False)
        found[alignment] = {"r2": result.metrics["r2"], "alone": result.local_metrics["r2"]}
    return found


def page(results: Mapping[str, Any]) -> str:
    """The table as Markdown."""

    def cell(draws: list[Any], alignment: str, metric: str) -> str:
        values = np.array([draw[alignment][metric] for draw in draws])
        return f"{values.mean():.3f} ± {values.std(ddof=1):.3f}"

    lines = [
        f"| {name} | {cell(draws, 'psi', 'r2')} | {cell(draws, 'psu', 'r2')} | {cell(draws, 'psu', 'alone')} |\n"
        for name, draws in results.items()
    ]
    return ABOUT + "".join(lines)


def main(chosen: argparse.Namespace) -> None:
    """Measure the chosen tables, each draw that is not there yet, and write what was found after each."""
    path = chosen.out / "regression-union.json"
    results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for name in chosen.names:
        problem, draws = load(name, chosen.data), results.setdefault(name, [])
        for draw in range(len(draws), chosen.draws):
            draws.append(measure(name, problem, draw))
            path.write_text(json.dumps(results, indent=1) + "\n")
    (chosen.out / "regression-union.md").write_text(page(results))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the shared data sets")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--names", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--draws", type=int, default=SPLITS)
    main(parser.parse_args())
