"""What several trainings over one alignment tell of which rows are synthetic: with other ones in each, and with the same.

The alignment is used again, so a position stands for the same record in each training. Weights, batches and noise are others.
A row that has not changed keeps its neighbours in whatever space each training places it; one that was made up anew does not.
That needs no knowledge of the weights, and no columns of one's own.

``python -m experiments.florist.again`` prints the table of docs/explanations/privacy/repeated-jobs.md.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.florist.experiment import ACTIVE, PASSIVE, Training, Trial
from vfl_node.metrics.classes import auc

NEAR = 30
"""Neighbours of a row that are compared."""

MOST = 8
"""Trainings over one alignment."""

AT_ACTIVE = {"made_up": 4, "continuous": 8, "adult": 7, "default_credit": 11}
"""Table → how many of its columns are the active party's, about half."""

Floats = NDArray[np.float64]


def changed_neighbours(trainings: Sequence[Floats]) -> Floats:
    """How much the neighbours of each row change between trainings; larger: more likely made up anew.

    Args:
        trainings: what was received of each row in each of them, float64[n, d].
    """
    met = np.zeros((len(trainings[0]), len(trainings[0])))
    for received in trainings:
        distances = _distances(received)
        nearest = np.argpartition(distances, NEAR, axis=1)[:, :NEAR]
        met[np.arange(len(met))[:, None], nearest] += 1
    return -np.square(met).sum(axis=1)


def twins(trainings: Sequence[Floats]) -> Floats:
    """How near the nearest other row is, in all trainings together; larger: nearer, so more likely a copy."""
    together = np.sqrt(sum(np.square(_distances(received) / received.std()) for received in trainings))
    return -np.asarray(together).min(axis=1)


def _distances(received: Floats) -> Floats:
    """Euclidean ones, float64[n, n]; a row is infinitely far from itself."""
    squares = np.square(received).sum(axis=1)
    found = np.sqrt(np.maximum(squares[:, None] + squares - 2 * received @ received.T, 0))
    np.fill_diagonal(found, np.inf)
    return np.asarray(found)


COMPARED = ("neighbours, 2", "neighbours, 8", "twins, 1", "twins, 8")
"""Attack that compares rows, and after how many trainings."""

JOINT = ("joint, 1", "joint, 1 again", "joint, 8")
"""The same of the joint attack. ``again``: as often as there are trainings, with other draws of the attacker."""


def attack(trial: Trial, folder: Path, attacker: str, columns: Sequence[str] = COMPARED) -> dict[str, float | None]:
    """AUC of the attacks of one party on the rows that it owns, after one training like ``trial`` or several.

    Args:
        trial: the first training.
        folder: of the shared data sets.
        attacker: a party.
        columns: :data:`COMPARED` or :data:`JOINT`. The latter cost 15 fits of 50 trees for each training, and as many again.
    """
    trainings = [_train(replace(trial, training=number), folder) for number in range(MOST)]
    secret, shown = zip(*(training.received(attacker) for training in trainings), strict=True)
    if columns == COMPARED:
        scores = [changed_neighbours(shown[:2]), changed_neighbours(shown), twins(shown[:1]), twins(shown)]
    else:
        found = [training.joint_scores(attacker) for training in trainings]
        again = [trainings[0].joint_scores(attacker, attempt=number) for number in range(MOST)]
        scores = [found[0], _sum_ranks(again), _sum_ranks(found)]
    return {name: auc(secret[0], score) for name, score in zip(columns, scores, strict=True)}


def _train(trial: Trial, folder: Path) -> Training:
    training = Training(trial, folder)
    for _ in training.steps():
        pass
    return training


def _sum_ranks(scores: Sequence[Floats]) -> Floats:
    return np.argsort(np.argsort(scores, axis=1), axis=1).sum(axis=0).astype(float)


def lines(data: Sequence[str], features: Sequence[str], columns: Sequence[str], seeds: int, folder: Path) -> Iterator[str]:
    """The table, a line for each table, strategy, attacker and kind of synthetic rows: mean and deviation over seeds."""
    yield f"| table | rows | attacker | synthetic rows | {' | '.join(columns)} |"
    yield "|---|---|---|---|" + "---|" * len(columns)
    shares: dict[str, Any] = {"alpha": 0.3, "beta": 0.2, "rows": 1500, "epochs": 4, "attacked": (4,), "labels": "random-pos"}
    for name, strategy, attacker, kept in product(data, features, (ACTIVE, PASSIVE), (False, True)):
        trial = Trial(name, 0, **shares, features=strategy, at_active=AT_ACTIVE[name], kept=kept)
        found = [attack(replace(trial, seed=seed), folder, attacker, columns) for seed in range(seeds)]
        cells = " | ".join(_cell([each[column] or 0.5 for each in found]) for column in columns)
        role = "active" if attacker == ACTIVE else "passive"
        yield f"| `{name}` | `{strategy}` | {role} | {'kept' if kept else 'anew'} | {cells} |"


def _cell(values: Sequence[float]) -> str:
    return f"{np.mean(values):.2f} ± {np.std(values):.2f}"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--data", nargs="+", choices=AT_ACTIVE, default=[*AT_ACTIVE])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--features", nargs="+", choices=("smoothed", "sampling"), default=["smoothed", "sampling"])
    parser.add_argument("--joint", action="store_true", help="the joint attack: some minutes a line")
    root = Path(__file__).parents[2].parent / "shared" / "data"
    parser.add_argument("--folder", type=Path, default=Path(os.environ.get("VFL_SHARED_DATA", root)))
    options = parser.parse_args()
    columns = JOINT if options.joint else COMPARED
    for line in lines(options.data, options.features, columns, options.seeds, options.folder):
        print(line, flush=True)


if __name__ == "__main__":
    main()
