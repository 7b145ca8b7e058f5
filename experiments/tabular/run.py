"""A split network with default settings beside scikit-learn's boosted trees, on four public tables.

Both parties have all rows, aligned by PSI, and a job says nothing but the protocol. The trees read the joint columns of the
same rows, also with their defaults; rows held out are those that the job held out. *Alone* is what the party with the labels
reaches without the other one.

    python -m experiments.tabular.run --data SHARED_DATA_FOLDER --out docs/experiments

It writes ``tabular.json``, all values by seed, and the page ``tabular.md``; about 20 minutes on two cores.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from experiments.tabular.data import SOURCES, write_tables
from vfl_node import run
from vfl_node.data.reading import read_table
from vfl_node.settings.node import Data
from vfl_node.training.boosted_tree import design
from vfl_node.training.intervals import student_t

DEFAULT: Mapping[str, Any] = {"align": {"protocol": "psi"}, "train": {}}
STOPPED: Mapping[str, Any] = {**DEFAULT, "evaluate": {"validation_fraction": 0.1}}

SEEDS = 5

MODELS = ("split network", "split network, validation", "boosted trees, joint", "alone", "boosted trees, alone")

Scores = dict[str, float]


def declared(name: str, files: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    """Role → private settings: what each owner says of columns whose numbers are codes."""
    headers = {role: next(csv.reader(file.open(encoding="utf-8"))) for role, file in files.items()}
    return {
        role: {"data": {"columns": {column: "categorical" for column in SOURCES[name].categorical if column in header}}}
        for role, header in headers.items()
    }


def measured(name: str, files: Mapping[str, Path], seed: int) -> Scores:
    """AUC of every model on the rows that the job holds out under this seed."""
    settings, active, passive = declared(name, files), files["active"], files["passive"]
    result = run(DEFAULT, active, passive, settings=settings, seed=seed, predictions=True, progress=False)
    stopped = run(STOPPED, active, passive, settings=settings, seed=seed, progress=False)
    predictions = result.predictions
    kinds = zip(predictions["id"].to_pylist(), predictions["rows"].to_pylist(), strict=True)
    return {
        "split network": result.metrics["auc"],
        "split network, validation": stopped.metrics["auc"],
        "boosted trees, joint": joint_trees(files, settings, {id_: kind == "held_out" for id_, kind in kinds}),
        "alone": result.local_metrics["auc"],
        "boosted trees, alone": result.boosted_tree_metrics["auc"],
    }


def joint_trees(files: Mapping[str, Path], settings: Mapping[str, Any], held_out: Mapping[str, bool]) -> float:
    """AUC of scikit-learn's boosted trees over both parties' columns."""
    tables = [
        read_table(Data(path=path, **settings[role]["data"]), id_form="text", needs_label=role == "active", party=role)
        for role, path in files.items()
    ]
    ids = [id_.decode().removeprefix("text:") for id_ in tables[0].ids]
    tested = np.array([held_out[id_] for id_ in ids])
    labels = tables[0].labels
    assert labels is not None
    parts = [design(table, np.flatnonzero(~tested)) for table in tables]  # both files have the same rows in the same order
    cells, categorical = np.column_stack([part for part, _ in parts]), [kind for _, kinds in parts for kind in kinds]
    trees = HistGradientBoostingClassifier(categorical_features=categorical, random_state=0)
    said = trees.fit(cells[~tested], labels[~tested]).predict_proba(cells[tested])[:, 1]
    return float(roc_auc_score(labels[tested], said))


def interval(values: Sequence[float]) -> str:
    """Mean and 95 % interval over seeds (Student's t)."""
    half = student_t(0.95, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):+.4f} [{np.mean(values) - half:+.4f}, {np.mean(values) + half:+.4f}]"


def page(results: Mapping[str, Sequence[Scores]]) -> str:
    """The tables of the page."""
    results = {name: results[name] for name in SOURCES if name in results}
    lines = [f"| | {' | '.join(results)} |", f"|---|{'---|' * len(results)}"]
    for model in MODELS:
        values = [[figures[model] for figures in each] for each in results.values()]
        cells = (f"{np.mean(each):.4f} ± {np.std(each, ddof=1):.4f}" for each in values)
        lines.append(f"| {model} | {' | '.join(cells)} |")
    for title, one, other in (
        ("network − joint trees", "split network", "boosted trees, joint"),
        ("network with validation − joint trees", "split network, validation", "boosted trees, joint"),
        ("network − alone", "split network", "alone"),
        ("network − trees alone", "split network", "boosted trees, alone"),
    ):
        cells = (interval([figures[one] - figures[other] for figures in each]) for each in results.values())
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return ABOUT + "\n".join(lines) + "\n"


ABOUT = """\
# Default settings beside boosted trees

Four public tables, each cut between a party with labels and one without, over the same rows (experiments/tabular/data.py). AUC
on the fifth of the rows that each run holds out: mean ± standard deviation, and paired differences with the 95 % interval of
their mean (Student's t). **Five seeds, may be luck** where an interval is near 0 or holds it. `talkingdata` has 227 positives
in 100,000 rows, so its figures depend on some 45 rows.

    python -m experiments.tabular.run --data SHARED_DATA_FOLDER --out docs/experiments

*Split network*: a job that says `align.protocol: psi` and nothing else; *validation* adds `evaluate.validation_fraction: 0.1`,
which leaves a tenth of the rows out of training to stop in time. *Boosted trees*: scikit-learn's HistGradientBoostingClassifier
with its defaults over the columns of both parties, which no two organisations can train so. *Alone*: networks and trees over
the columns of the party with labels, as its report shows them.

"""


def main(chosen: argparse.Namespace) -> None:
    """Run all tables, and write values and page."""
    results: dict[str, list[Scores]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in chosen.tables:
            files = write_tables(chosen.data, name, Path(scratch) / name)
            results[name] = []
            for seed in range(chosen.seeds):
                results[name].append(measured(name, files, seed))
                print(name, seed, {model: round(auc, 4) for model, auc in results[name][-1].items()}, flush=True)
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "tabular.json").write_text(json.dumps(results, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    (chosen.out / "tabular.md").write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the shared data sets")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tables", nargs="+", choices=list(SOURCES), default=list(SOURCES))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    main(parser.parse_args())
