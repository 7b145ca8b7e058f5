"""A regression over the union beside one over the intersection: the same records of a table, given out anew in each draw.

Half of the records are at both parties, a quarter at one of them alone, and a quarter at the other. Over ``psi`` the split
network is trained on the shared half. Over ``psu`` it is trained on all records, with rows and targets made up where a party
lacks a record. Each is measured as the active party's report has it: on its own held-out records, one in five of those aligned.
The product's own halves run in memory, as in :mod:`experiments.regression.run`.

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
import torch
from numpy.typing import NDArray

from experiments.regression.data import Columns, Problem, load
from experiments.regression.run import product
from vfl_node.alignment.alignment import NOT_MINE, Alignment, PeerFacts
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.training.split.config import Train

PROTOCOLS = ("psi", "psu")

SPLIT: Mapping[str, dict[str, Any]] = {
    "motor": {"epochs": 40, "batch_size": 32, "learning_rate": 5e-3},
    "hdb": {"epochs": 20, "batch_size": 128, "learning_rate": 5e-3},
}
"""Data set → what is particular to its split network: fewer and longer steps than in :mod:`experiments.regression.run`."""

DRAWS = 8

SHOWN = (("psi", "both"), ("psu", "both"), ("psu", "alone"))
"""Protocol and model of the first columns of the page."""

ABOUT = """\
# Regression over a union

How much a regression loses where rows and targets are made up. Half of the records of a table are at both parties, a quarter at
one of them alone, and a quarter at the other. They were given out anew in each draw. Each time the same split network was
trained over `psi` and over `psu`. R² is that of the active party's report, on its own held-out records: mean ± standard
deviation, least to most. The gain is that of the network over `psu` over the active party alone, paired by draw.

    python -m experiments.regression.union --data SHARED_DATA_FOLDER --out docs/experiments

Settings were chosen once, and nothing was searched. Tables are those of [regression beside scikit-learn](regression.md).
Strategies for missing rows are the default ones, without calibration. Over `psu`, half as many records again are measured: of
these the passive party has no row, and makes one up. Draws of one table overlap. So the deviations are too small for other
records. Two tables say little of a third.

| table | draws | R² over `psi` | R² over `psu` | active party alone, its rows of `psu` | gain over `psu` |
|---|---|---|---|---|---|
"""


def give_out(problem: Problem, draw: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which rows of the table the active and the passive party have."""
    rows = len(problem.target)
    order = np.random.default_rng(draw).permutation(rows)
    return np.sort(order[rows // 4 :]), np.sort(order[: rows - rows // 4])


def align(problem: Problem, protocol: str, draw: int) -> list[tuple[Table, Alignment]]:
    """Table and view of both parties, as an alignment by ``protocol`` makes them."""
    own, others = give_out(problem, draw)
    both = np.intersect1d(own, others)
    order = np.random.default_rng(draw).permutation(both if protocol == "psi" else np.union1d(own, others))

    def side(
        columns: Columns, mine: NDArray[np.int64], peer: str, theirs: NDArray[np.int64], labels: Any
    ) -> tuple[Table, Alignment]:
        ids = Identifiers.from_items(str(row).encode() for row in mine.tolist())
        table = Table(ids, {name: NumericColumn(values[mine]) for name, values in columns.items()}, labels)
        place = np.full(len(problem.target), NOT_MINE, dtype=np.int64)
        place[mine] = np.arange(len(mine))
        missing = len(order) - len(np.intersect1d(order, theirs))
        facts = PeerFacts(len(theirs), intersection=len(both), missing=missing)
        view = Alignment(ALIGNMENTS[protocol], "curve25519", place[order], len(mine), {peer: facts})
        return table, view

    return [side(problem.own, own, "lab", others, problem.target[own]), side(problem.other, others, "clinic", own, None)]


def measure(name: str, problem: Problem, draw: int) -> dict[str, dict[str, float]]:
    """Protocol → R² of the joint model, and of the active party alone."""
    network = Train.model_validate({"task": "regression", **SPLIT[name]})
    found = {}
    for protocol in PROTOCOLS:
        scores = product(problem, network, draw, align(problem, protocol, draw))
        found[protocol] = {model: float(scores[model]["r2"] or 0.0) for model in ("both", "alone")}
    return found


def page(results: Mapping[str, Any]) -> str:
    """The table as Markdown."""

    def cell(values: NDArray[np.float64]) -> str:
        return f"{values.mean():.3f} ± {values.std(ddof=1):.3f}, {values.min():.3f} to {values.max():.3f}"

    lines = []
    for name, draws in results.items():
        psi, psu, alone = (np.array([draw[protocol][model] for draw in draws]) for protocol, model in SHOWN)
        cells = " | ".join(map(cell, (psi, psu, alone, psu - alone)))
        lines.append(f"| {name} | {len(draws)} | {cells} |\n")
    return ABOUT + "".join(lines)


def main(chosen: argparse.Namespace) -> None:
    """Measure the chosen tables, each draw that is not there yet, and write what was found after each."""
    torch.set_num_threads(1)
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
    parser.add_argument("--names", nargs="+", choices=list(SPLIT), default=list(SPLIT))
    parser.add_argument("--draws", type=int, default=DRAWS)
    main(parser.parse_args())
