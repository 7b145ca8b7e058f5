"""What many jobs under ``randomised-labels`` tell of labels, and what it costs.

    python -m experiments.fedads.answers --data SHARED_DATA_FOLDER --seeds 5 --jobs 10

A judge who is not the product's meter: the other party puts the gradients of all its jobs over the same records side by side.

* ``adult``: it adds up, over jobs, where the mean gradient of a row lies along the leading direction, and which of two clusters
  its embedding is nearer to.
* ``four`` classes: the clusters of normalised gradients of all jobs vote.
* ``numbers``: it adds up where the gradients of the first epoch, whose residuals are the targets, lie along the leading
  direction.

Signs and names of clusters are matched from job to job, and with the truth at the end. Each row of each table takes part in
about four of five jobs. The node's secret is the same in all jobs of a seed.

``adult``: AUC of gradients, and joined with embeddings. ``four``: share of labels that are right. ``numbers``: |Spearman|.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import rankdata, spearmanr

from experiments.fedads.data import ACTIVE, Cut, cut_of
from experiments.fedads.data import adult as adult_of
from experiments.fedads.training import TRAIN, Done, train
from experiments.florist.data import Records
from experiments.inference.experiment import interval, mean, table
from vfl_node.data.tables import Column, NumericColumn
from vfl_node.metrics.classes import auc
from vfl_node.privacy.labels.shown import two_clusters
from vfl_node.privacy.labels.spectrum import leading
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2

ROWS, TRAINED = 5_000, 4_000
RANGE = (-6.0, 6.0)
"""Range of the made-up numbers, whose standard deviation is about 2.5."""

Floats = NDArray[np.float64]

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "adult": {},
    "four": {"classes": 4},
    "numbers": {"task": "regression"},
}
METRIC = {"adult": "auc", "four": "accuracy", "numbers": "r2"}


def cut(shared: Path, name: str, seed: int) -> Cut:
    """``adult``, or a made-up table whose labels need four columns of each party."""
    if name == "adult":
        whole = adult_of(shared, seed, ROWS)
        return Cut(whole.tables, 1 - TRAINED / ROWS)
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROWS, 8))
    if name == "numbers":
        labels = x @ rng.normal(size=8) * 0.7 + np.sin(2 * x[:, 0]) + rng.normal(size=ROWS)
    else:
        odds = x @ rng.normal(size=(8, 4)) + rng.gumbel(size=(ROWS, 4))
        labels = odds.argmax(axis=1)
    columns: dict[str, Column] = {f"x{number}": NumericColumn(x[:, number]) for number in range(8)}
    names = tuple(columns)
    return cut_of(Records(columns, labels.astype(np.float32)), np.arange(ROWS), names[:4], names[4:], TRAINED)


def seen(done: Done, epochs: int) -> tuple[NDArray[np.int64], torch.Tensor, torch.Tensor]:
    """Rows trained on, sums of the gradients of their own loss over the first ``epochs``, and their last embeddings."""
    messages = [entry.message for entry in done.recorder.entries]
    gradients, embeddings = (
        [codec.decode(m.tensor, dtype=torch.float32, shape=tuple(m.tensor.shape)) for m in messages if isinstance(m, kind)]
        for kind in (training_pb2.Gradient, training_pb2.Embedding)
    )
    rows = np.unique(np.concatenate(done.steps))
    sums, last = (torch.zeros(len(rows), gradients[0].shape[1]) for _ in range(2))
    early = len(done.steps) * epochs // TRAIN["epochs"]
    for number, positions in enumerate(done.steps):
        places = torch.from_numpy(np.searchsorted(rows, positions))
        if number < early:
            sums[places] += gradients[number] * len(positions)
        last[places] = embeddings[number]
    return rows, sums, last


class Side:
    """A number for each row, added up over jobs up to its sign."""

    def __init__(self) -> None:
        self.sums = np.zeros(ROWS)

    def add(self, rows: NDArray[np.int64], scores: Floats) -> None:
        """Add what one job shows of ``rows``."""
        scores = (scores - scores.mean()) / (scores.std() or 1.0)
        self.sums[rows] += scores * (1 if scores @ self.sums[rows] >= 0 else -1)


class Votes:
    """A cluster of each row, by votes of jobs."""

    def __init__(self, classes: int = 4) -> None:
        self.votes = np.zeros((ROWS, classes))

    def add(self, rows: NDArray[np.int64], gradients: torch.Tensor) -> None:
        """Let one job vote on ``rows``."""
        from sklearn.cluster import KMeans  # loads for a second

        points = torch.nn.functional.normalize(gradients, dim=1).numpy()
        found = np.eye(self.votes.shape[1])[KMeans(self.votes.shape[1], n_init=10, random_state=0).fit_predict(points)]
        _, order = linear_sum_assignment(-self.votes[rows].T @ found)
        self.votes[rows] += found[:, order]

    def right(self, rows: NDArray[np.int64], labels: NDArray[np.int64]) -> float:
        """Share of ``rows`` whose label is what the votes say, by the best names of the clusters."""
        table = np.zeros((self.votes.shape[1],) * 2)
        np.add.at(table, (self.votes[rows].argmax(axis=1), labels), 1)
        found, true = linear_sum_assignment(-table)
        return float(table[found, true].sum() / len(rows))


def told(name: str, side: Side, joined: Side, votes: Votes, rows: NDArray[np.int64], labels: NDArray[Any]) -> dict[str, float]:
    """What the judge reads of the labels of ``rows`` now."""
    if name == "four":
        return {"gradients": votes.right(rows, labels[rows].astype(np.int64))}
    if name == "numbers":
        return {"gradients": abs(float(spearmanr(side.sums[rows], labels[rows]).statistic))}
    found = {}
    for what, read in (("gradients", side), ("joined", joined)):
        value = auc(labels[rows] == 1, rankdata(read.sums[rows]))
        found[what] = 0.5 if value is None else value
    return {what: max(value, 1 - value) for what, value in found.items()}


def jobs(shared: Path, name: str, defences: Sequence[Mapping[str, Any]], seed: int, count: int) -> dict[str, Any]:
    """``count`` jobs over one table: the metric of each, and what the judge reads after the first and after all."""
    tables = cut(shared, name, seed)
    labels = tables.tables[ACTIVE].labels
    assert labels is not None
    side, joined, votes, met = Side(), Side(), Votes(), np.empty(0, np.int64)
    metrics, reads = [], []
    for number in range(count):
        done = train(
            tables,
            1000 * seed + number,
            settings=SETTINGS[name],
            defences=defences,
            recorded=True,
            metrics=(METRIC[name],),
            remembered=seed,
        )
        metrics.append(done.results.metrics[METRIC[name]])
        rows, gradients, embeddings = seen(done, 1 if name == "numbers" else TRAIN["epochs"])
        met = np.union1d(met, rows)
        if name == "four":
            votes.add(rows, gradients)
        else:
            one, other = (gradients @ leading(gradients)).double().numpy(), two_clusters(embeddings).double().numpy()
            side.add(rows, one)
            if name == "adult":
                one, other = ((values - values.mean()) / values.std() for values in (one, other))
                joined.add(rows, one + other * (1 if one @ other >= 0 else -1))
        if number in (0, count - 1):
            reads.append(told(name, side, joined, votes, met, labels))
    return {"metric": metrics, "reads": reads}


def main(chosen: argparse.Namespace) -> None:
    """Measure, and print a table."""
    torch.set_num_threads(1)
    lines = []
    for name in chosen.tables:
        more = {"target_range": RANGE} if name == "numbers" else {}
        every = {"none": [], **{f"ε {e:g}": [{"name": "randomised-labels", "epsilon": e, **more}] for e in chosen.epsilons}}
        plain: list[Floats] = []
        for what, defences in every.items():
            found = [jobs(chosen.data, name, defences, seed, chosen.jobs) for seed in range(chosen.seeds)]
            metric = [np.array(outcome["metric"]) for outcome in found]
            plain = plain or metric
            loss = [float((one - other).mean()) for one, other in zip(plain, metric, strict=True)]
            for key in found[0]["reads"][0]:
                first, last = (mean([outcome["reads"][at][key] for outcome in found]) for at in (0, -1))
                spread = [outcome["reads"][-1][key] for outcome in found]
                low, high = min(spread), max(spread)
                level = mean([float(curve.mean()) for curve in metric])
                row = [name, what, f"{level:.3f}", interval(loss), key, f"{first:.3f}", f"{last:.3f} ({low:.3f}–{high:.3f})"]
                lines.append(row)
                print(" | ".join(row), flush=True)
    head = ["table", "labels", METRIC_HEAD, "loss of it", "judge", "first job", f"{chosen.jobs} jobs (lowest–highest seed)"]
    print("\n".join(table(head, lines)))


METRIC_HEAD = "AUC, accuracy or R²"

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the shared data sets; read in place")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--tables", nargs="+", choices=list(METRIC), default=list(METRIC))
    parser.add_argument("--epsilons", nargs="+", type=float, default=[2.0, 1.0])
    main(parser.parse_args())
