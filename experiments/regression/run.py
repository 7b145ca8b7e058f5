"""Regression by both parties beside scikit-learn on the same joint rows: five splits of each of three tables.

The product's own halves run in memory, aligned as by PSI. Linear regression runs under a key of 512 bits, which protects
nothing: the arithmetic is that of a key that a job may have.

    python -m experiments.regression.run --data SHARED_DATA_FOLDER --out docs/experiments

It writes ``regression.json``, all values by split, and the page ``regression.md``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.sessions import session
from experiments.regression.data import Columns, Problem, load
from vfl_node.alignment.alignment import Alignment, PeerFacts
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.engines.contract import Inline
from vfl_node.job import Evaluate
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.metrics.numbers import PredictedNumbers
from vfl_node.session.pins import MemoryPins
from vfl_node.session.toss import toss
from vfl_node.training.checkpoints import MemoryCheckpoints
from vfl_node.training.glm.decryption_log import MemoryDecryptionLog
from vfl_node.training.glm.regression import regress
from vfl_node.training.intervals import student_t
from vfl_node.training.linear.config import LinearRegression as Linear
from vfl_node.training.schedule import Schedule
from vfl_node.training.split.config import Train
from vfl_node.training.split.trainer import SplitTrainer
from vfl_node.training.trainer import TrainingData
from vfl_node.transport.memory import memory_channels, run_together

EVALUATE = Evaluate(test_fraction=0.2, metrics=("rmse", "mae", "r2", "mse"))

SPLIT: Mapping[str, dict[str, Any]] = {
    "motor": {"epochs": 100, "batch_size": 32, "learning_rate": 2e-3},
    "student": {"epochs": 30, "batch_size": 32, "weight_decay": 0.01, "bottom": [32], "active_bottom": [32], "top": [32]},
    "hdb": {"epochs": 30, "batch_size": 128, "learning_rate": 2e-3},
}
"""Data set → what is particular to its split network. Chosen once, from its number of rows; nothing is searched."""

LINEAR: dict[str, dict[str, Any]] = {"motor": {"iterations": 150}, "student": {"iterations": 100}, "hdb": {"iterations": 40}}
"""Data set → iterations, each with a learning rate of 0.3: correlated columns need more."""

SPLITS = 5

Scores = Mapping[str, Mapping[str, float | None]]
"""Model → metric → value on the rows held out."""

Numbers = NDArray[np.float64]


def seeds(split: int) -> tuple[bytes, bytes]:
    """Each party's private randomness in one split."""
    return f"{split} of the party with targets".ljust(32).encode(), f"{split} of the other party".ljust(32).encode()


def parties(problem: Problem) -> list[tuple[Table, Alignment]]:
    """Both tables and views; every row is shared."""
    rows = len(problem.target)
    ids = Identifiers.from_items(str(row).encode() for row in range(rows))

    def table(columns: Columns, target: Numbers | None) -> Table:
        return Table(ids, {name: NumericColumn(values) for name, values in columns.items()}, target)

    def view(peer: str) -> Alignment:
        return Alignment(
            ALIGNMENTS["psi"], "curve25519", np.arange(rows), rows, {peer: PeerFacts(rows, intersection=rows, missing=0)}
        )

    return [(table(problem.own, problem.target), view("lab")), (table(problem.other, None), view("clinic"))]


def held_out(rows: int, split: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows trained on and held out, as both parties toss them."""
    a, b = memory_channels("clinic", "lab")
    sessions = [session(name, {end.peer: end}, Randomness(bytes(32))) for name, end in (("clinic", a), ("lab", b))]
    own = [Randomness(seed).derive("toss") for seed in seeds(split)]
    seed, _ = run_together(*((toss(session, by), end) for session, by, end in zip(sessions, own, (a, b), strict=True)))
    return Schedule(seed, rows, 0).split(0, EVALUATE.test_fraction)


def product(
    problem: Problem, train: Train | Linear, split: int, aligned: Sequence[tuple[Table, Alignment]] | None = None
) -> Scores:
    """What the product measures: both parties, the one with targets alone, and a constant; ``aligned`` in place of all rows."""
    protocols = []
    views = aligned or parties(problem)
    sides = zip(("clinic", "lab"), memory_channels("clinic", "lab"), views, seeds(split), strict=True)
    for name, channel, (table, view), seed in sides:
        own = session(
            name,
            {channel.peer: channel},
            Randomness(seed),
            train=train,
            evaluate=EVALUATE,
            pins=MemoryPins(),
            processes=Inline(),
            clock=lambda: 0.0,
        )
        data, checkpoints = TrainingData(view, table), MemoryCheckpoints()
        if isinstance(train, Train):
            protocols.append((SplitTrainer().run(own, data, checkpoints, None), channel))
        else:
            protocols.append((regress(own, data, checkpoints, {peer: MemoryDecryptionLog() for peer in own.others}), channel))
    results = run_together(*protocols)
    for result in results:
        if isinstance(result, Exception):
            raise result
    found = results[0].results
    return {"both": found.metrics, "alone": found.alone.metrics, "constant": {**found.constant, "r2": 0.0}}


def library(problem: Problem, training: Any, testing: Any) -> Scores:
    """What scikit-learn's models reach on the same rows, with the columns of both parties, or of one."""
    own = np.column_stack(list(problem.own.values()))
    joint = np.column_stack([own, *problem.other.values()])
    penalties = np.logspace(-3, 3, 13)
    models = {
        "scikit-learn linear regression, both": (make_pipeline(StandardScaler(), LinearRegression()), joint),
        "scikit-learn ridge (penalty by cross-validation), both": (
            make_pipeline(StandardScaler(), RidgeCV(penalties)),
            joint,
        ),
        "scikit-learn boosted trees, both": (HistGradientBoostingRegressor(random_state=0), joint),
        "scikit-learn boosted trees, alone": (HistGradientBoostingRegressor(random_state=0), own),
    }
    found = {}
    for name, (model, columns) in models.items():
        said = model.fit(columns[training], problem.target[training]).predict(columns[testing])
        found[name] = PredictedNumbers(said).metrics(EVALUATE.metrics, problem.target[testing])
    return found


def measured(name: str, problem: Problem, split: int) -> Scores:
    """Every model on one split."""
    training, testing = held_out(len(problem.target), split)
    network = Train.model_validate({"task": "regression", **SPLIT[name]})
    linear = Linear(algorithm="linear", learning_rate=0.3, **LINEAR[name]).model_copy(update={"key_bits": 512})
    split_scores, linear_scores = product(problem, network, split), product(problem, linear, split)
    return {
        "the mean": split_scores["constant"],
        "split network, alone": split_scores["alone"],
        "split network, both": split_scores["both"],
        "linear, alone": linear_scores["alone"],
        "linear, both": linear_scores["both"],
        **library(problem, training, testing),
    }


ABOUT = """\
# Regression beside scikit-learn

Three tables of numbers, each split between a party with the target and one without, over the same rows. Every model is
measured on the same rows, one in five, in five splits: mean ± standard deviation. The last column has paired differences; below
zero the split network is better. Square brackets have the 95 % interval of their mean over the splits. It is by Student's t and
not corrected for the overlap of the splits, so too narrow. **Five splits, may be luck** where an
interval is near 0 or holds it. *Both* uses the columns of both parties, *alone* those
of the party with the target.

    python -m experiments.regression.run --data SHARED_DATA_FOLDER --out docs/experiments

Settings were chosen once, from the number of rows, and nothing was searched. The split network is as the script's `SPLIT` says,
else with default settings. `algorithm: linear` has a learning rate of 0.3 and the iterations of `LINEAR`. The models of
scikit-learn have their defaults, ridge a penalty by cross-validation. Linear regression ends where least squares do if it has
iterations enough; strongly correlated columns, as the motor's, need more.

"""


def page(results: Mapping[str, Any]) -> str:
    """The tables as Markdown."""
    lines = []
    for name, result in results.items():
        lines += [
            f"## {name}",
            "",
            f"{result['rows']:,} rows; {result['own']} columns beside the target, {result['other']} at the other party. RMSE "
            f"in {result['unit']}.",
            "",
            "| model | RMSE | R² | RMSE, split network less this one |",
            "|---|---|---|---|",
        ]
        ours = np.array([split["split network, both"]["rmse"] for split in result["splits"]])
        for model in result["splits"][0]:
            rmse, r2 = (np.array([split[model][metric] for split in result["splits"]]) for metric in ("rmse", "r2"))
            r2_text = "0" if model == "the mean" else f"{r2.mean():.3f} ± {r2.std(ddof=1):.3f}"
            lines.append(
                f"| {model} | {_figure(rmse.mean())} ± {_figure(rmse.std(ddof=1))} | {r2_text} | {_interval(ours - rmse)} |"
            )
        lines.append("")
    return "\n".join(lines)


def _interval(differences: Numbers) -> str:
    """Mean of paired differences and its 95 % interval over the splits."""
    if not differences.any():
        return ""
    half = student_t(0.95, len(differences) - 1) * differences.std(ddof=1) / np.sqrt(len(differences))
    mean = differences.mean()
    return f"{_figure(mean)} [{_figure(mean - half)}, {_figure(mean + half)}]"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 10 else f"{value:.3f}"


def main(chosen: argparse.Namespace) -> None:
    """Measure the chosen tables, print them, and write ``regression.json`` and ``regression-tables.md``."""
    torch.set_num_threads(1)
    chosen.out.mkdir(parents=True, exist_ok=True)
    path = chosen.out / "regression.json"
    results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}  # other tables stay
    for name in chosen.names:
        problem = load(name, chosen.data)
        about = {"rows": len(problem.target), "own": len(problem.own), "other": len(problem.other), "unit": problem.unit}
        results[name] = {**about, "splits": [measured(name, problem, split) for split in range(chosen.splits)]}
        print(page({name: results[name]}), flush=True)
        path.write_text(json.dumps(results, indent=1) + "\n")
    (chosen.out / "regression.md").write_text(ABOUT + page(results))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the shared data sets")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--names", nargs="+", choices=list(SPLIT), default=list(SPLIT))
    parser.add_argument("--splits", type=int, default=SPLITS)
    main(parser.parse_args())
