"""Boosted trees in shares beside scikit-learn's on the intersection, and what a model that is revealed tells.

Rows, owners and test rows are drawn as in :mod:`experiments.florist.experiment`: a quarter of the records is tested on; each of
the others is lacked by either party with the same chance, so that a wanted share of the union is shared. Labels and the first
half of the columns are the active party's.

*psu* and *psi*: the product's own trainer and dealer over memory channels, over the union and over the shared records, with the
splits and leaves that they open. *scikit-learn*: ``HistGradientBoostingClassifier`` on the shared records with all columns, of
the same depth, bins, trees, rate and λ. A category is a column of 0 and 1 there, as it is a candidate of its own here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier

from experiments.florist.data import Records
from experiments.florist.experiment import ACTIVE, PASSIVE, Drawn, randomness_of, records_of
from experiments.hidden.experiment import run_in_memory
from experiments.inference.experiment import Work
from vfl_node.alignment.alignment import NOT_MINE, Alignment, PeerFacts
from vfl_node.crypto.shares.ring import Ring, decode
from vfl_node.data.tables import CategoricalColumn, Table, values_of
from vfl_node.job import Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.metrics.classes import auc
from vfl_node.training.shares.binned import BinnedColumns
from vfl_node.training.trainer import Trained
from vfl_node.training.trees.config import Trees
from vfl_node.training.trees.kept import join_shares
from vfl_node.training.trees.plan import SCORE_FRACTION
from vfl_node.training.trees.section import TreesSection
from vfl_node.training.trees.trainer import TreesTrainer

DEALER = "notary"

TRAIN: dict[str, Any] = {"algorithm": "trees", "trees": 10, "depth": 4, "bins": 16, "learning_rate": 0.3, "metrics_by": "none"}
"""What is compared."""

DEFAULTS: dict[str, Any] = {"algorithm": "trees", "metrics_by": "none"}
"""The model that is attacked."""

MEMORISING: dict[str, Any] = {
    **{**DEFAULTS, "trees": 15, "depth": 6, "bins": 16},
    **{"least_rows": 1, "min_gain": 0.0, "learning_rate": 0.5, "l2": 0.1},
}
"""The control: leaves of single records."""

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class World:
    """Who has which records of the data.

    Attributes:
        records: all.
        drawn: what a seed fixes.
        columns: party → its columns.
    """

    records: Records
    drawn: Drawn
    columns: Mapping[str, Sequence[str]]

    @classmethod
    def draw(cls, records: Records, randomness: Any, share: float, rows: int = 0) -> World:
        """A world in which ``share`` of the union is shared."""
        lacks = (1 - share) / (1 + share)
        names = list(records.columns)
        half = (len(names) + 1) // 2
        drawn = Drawn.draw(randomness, len(records), alpha=lacks, beta=lacks, rows=rows)
        return cls(records, drawn, {ACTIVE: names[:half], PASSIVE: names[half:]})

    @property
    def both(self) -> Bools:
        """Which of the records that are trained on both have."""
        return np.logical_and(*self.drawn.owns.values())

    def align(self, protocol: str) -> tuple[dict[str, Table], dict[str, Alignment]]:
        """Each party's table and its view of the shared order."""
        tables, views = {}, {}
        order = np.logical_or(*self.drawn.owns.values()) if protocol == "psu" else self.both
        common = int(self.both.sum())
        for name, other in ((ACTIVE, PASSIVE), (PASSIVE, ACTIVE)):
            owns, theirs = self.drawn.owns[name], self.drawn.owns[other]
            tables[name] = self.records.table(self.drawn.trained[owns], self.columns[name], labelled=name == ACTIVE)
            facts = PeerFacts(int(theirs.sum()), intersection=common, missing=int((order & ~theirs).sum()))
            rows = np.where(owns, np.cumsum(owns) - 1, NOT_MINE)[order]
            union = len(rows) if protocol == "psu" else None
            views[name] = Alignment(
                ALIGNMENTS[protocol], "curve25519", rows, int((owns & order).sum()), {other: facts}, union=union
            )
        return tables, views


@dataclass(frozen=True, eq=False)
class Model:
    """What owners and the active party have been shown, together.

    Attributes:
        flags: uint8[trees, 2^depth − 1, W], 1 at the candidate that splits a node.
        leaves: float64[trees, 2^depth].
        columns: party → its candidates.
    """

    flags: NDArray[np.uint8]
    leaves: Floats
    columns: Mapping[str, BinnedColumns]

    @classmethod
    def open(cls, train: Trees, results: Mapping[str, Trained]) -> Model:
        """The sum of both parties' shares."""
        columns = {name: BinnedColumns.from_json(found.encoder or "") for name, found in results.items()}
        width = sum(cls._width(each) for each in columns.values())

        def added(index: int) -> list[Ring]:
            return [found.weights[f"share {index}"].numpy().view(np.uint64) for found in results.values()]

        levels = [np.bitwise_xor(*added(1 + level)) for level in range(train.depth)]
        leaves = np.add(*added(1 + train.depth))
        trees = join_shares([np.zeros(1, np.uint64), *levels, leaves], train.depth)[1]
        return cls(np.stack([tree.flags(width) for tree in trees]), decode(leaves, SCORE_FRACTION), columns)

    @staticmethod
    def _width(columns: BinnedColumns) -> int:
        return max(1, sum(len(each.left) for each in columns.columns))

    def scores(self, tables: Mapping[str, Table | None]) -> Floats:
        """The sum of leaves of each row, without what all rows begin with.

        Args:
            tables: party → its columns of the rows; None: nobody knows them, so a row is half on each side of such a node. The
                nodes that nobody splits are among these, as for whoever sees the splits of one party alone.
        """
        (rows,) = {len(table) for table in tables.values() if table is not None}
        parts = []
        for name, each in self.columns.items():
            table = tables[name]
            if table is None:
                parts.append(np.full((rows, self._width(each)), 0.5))
            else:
                parts.append(each.candidates(table, np.arange(rows)).block(0, rows).astype(np.float64))
        left, unknown = np.concatenate(parts, axis=1), any(table is None for table in tables.values())
        total = np.zeros(rows)
        for flags, leaves in zip(self.flags, self.leaves, strict=True):
            there, first = np.ones((rows, 1)), 0
            while there.shape[1] < len(leaves):
                nodes = flags[first : first + there.shape[1]]
                first += len(nodes)
                goes = left @ nodes.T.astype(np.float64) + (0.5 if unknown else 0.0) * (nodes.sum(axis=1) == 0)
                there = np.stack([there * goes, there * (1 - goes)], axis=2).reshape(rows, -1)
            total += there @ leaves
        return total


def job_of(train: Mapping[str, Any], protocol: str) -> Job:
    """The job that a user would submit."""
    return Job.model_validate(
        {
            "name": "trees",
            "parties": {"active": ACTIVE, "passive": PASSIVE, "coordinator": DEALER},
            "align": {"protocol": protocol},
            "train": dict(train),
            "evaluate": {"test_fraction": 0.0, "metrics": ["auc"]},
        }
    )


def grow(world: World, train: Mapping[str, Any], protocol: str, randomness: Any) -> tuple[Model, TreesSection]:
    """Train in shares; the model, and the active party's report."""
    job = job_of(train, protocol)
    _, results = run_in_memory(TreesTrainer(), job, *world.align(protocol), randomness.derive(protocol))
    section = results[0].section
    assert isinstance(section, TreesSection)
    return Model.open(Trees.section_of(job), dict(zip((ACTIVE, PASSIVE), results, strict=True))), section


def compare(shared: Path, *, data: str, seed: int, share: float) -> dict[str, Any]:
    """Train over the union and over the intersection in shares, and on the intersection in the clear.

    Args:
        shared: folder of the shared data sets.
        data: name of the records.
        seed: of everything that is drawn.
        share: part of the union that both have.

    Returns:
        JSON: test AUC of each way, sizes, and for each protocol megabytes that a party sent and CPU seconds of all roles.
    """
    randomness, records = randomness_of(data, seed), records_of(data, shared)
    world = World.draw(records, randomness, share)
    tested = {name: records.table(world.drawn.tested, world.columns[name], labelled=False) for name in (ACTIVE, PASSIVE)}
    truth = records.labels[world.drawn.tested] == 1
    found: dict[str, Any] = {"auc": {}, "MB": {}, "cpu s": {}}
    for protocol in ("psu", "psi"):
        began = time.process_time()
        model, section = grow(world, TRAIN, protocol, randomness)
        found["cpu s"][protocol] = round(time.process_time() - began, 1)
        found["MB"][protocol] = (section.bytes or 0) / 1e6
        found["auc"][protocol] = auc(truth, model.scores(tested))
    own = world.drawn.trained[world.both]
    plain = _fit(records, own, Trees.model_validate(TRAIN))
    found["auc"]["scikit-learn"] = auc(truth, plain.decision_function(_matrix(records, world.drawn.tested)))
    return {**found, "shared": len(own), "union": int(np.logical_or(*world.drawn.owns.values()).sum())}


def _fit(records: Records, rows: NDArray[np.int64], train: Trees) -> HistGradientBoostingClassifier:
    model = HistGradientBoostingClassifier(
        max_iter=train.trees,
        max_depth=train.depth,
        max_bins=train.bins,
        max_leaf_nodes=None,
        learning_rate=train.learning_rate,
        l2_regularization=train.l2,
        min_samples_leaf=train.least_rows,
        early_stopping=False,
    )
    return model.fit(_matrix(records, rows), records.labels[rows])


def _matrix(records: Records, rows: NDArray[np.int64]) -> Floats:
    parts: list[Floats] = []
    for column in records.columns.values():
        if isinstance(column, CategoricalColumn):
            parts.append(np.equal.outer(column.codes[rows], np.arange(len(column.levels))).astype(np.float64))
        else:
            parts.append(values_of(column)[rows][:, None].astype(np.float64))
    return np.concatenate(parts, axis=1)


def attack(shared: Path, *, data: str, seed: int, share: float, rows: int, control: bool = False) -> dict[str, Any]:
    """What the active party guesses by its splits, all leaves and its labels: which of its records are shared.

    A record that was trained on fits its label better: the guess is ±(the score that the party can compute), by the label. Of a
    node that it does not split the party knows nothing, so half of a record goes either way.

    Args:
        shared, data, seed, share: as in :func:`compare`.
        rows: records that there are.
        control: whether leaves have single records, labels are coins, and all columns but one are the active party's.

    Returns:
        JSON: the AUC of the guess, and how many records of the active party are shared.
    """
    randomness, records = randomness_of(data, seed), records_of(data, shared)
    if control:
        coins = randomness.derive("coins").uint64(len(records)) >> np.uint64(63)
        records = Records(records.columns, coins.astype(np.float32))
    world = World.draw(records, randomness, share, rows)
    if control:
        names = list(records.columns)
        world = replace(world, columns={ACTIVE: names[:-1], PASSIVE: names[-1:]})
    model, _ = grow(world, MEMORISING if control else DEFAULTS, "psu", randomness)
    owns = world.drawn.owns[ACTIVE]
    own = records.table(world.drawn.trained[owns], world.columns[ACTIVE], labelled=True)
    assert own.labels is not None
    guess = np.where(own.labels == 1, 1.0, -1.0) * model.scores({ACTIVE: own, PASSIVE: None})
    member = world.both[owns]
    return {"auc": auc(member, guess), "own": len(member), "shared": int(member.sum())}


SHARES = (0.25, 0.5, 0.75)
ATTACKED: dict[str, Any] = {"share": 0.3, "rows": 4000}
CONTROL: dict[str, Any] = {"share": 0.3, "rows": 400, "control": True}
"""Leaves have single records where there are fewer of these than leaves of all trees."""


@dataclass(frozen=True)
class Plan:
    """Which trainings there are.

    Attributes:
        names: of the tables.
        seeds: of each training.
    """

    names: Sequence[str]
    seeds: int

    def compared(self, data: str, share: float) -> list[Work]:
        """One for each seed."""
        return [Work(compare, {"data": data, "seed": seed, "share": share}) for seed in range(self.seeds)]

    def attacked(self, data: str, *, control: bool = False) -> list[Work]:
        """One for each seed."""
        return [Work(attack, {"data": data, "seed": seed, **(CONTROL if control else ATTACKED)}) for seed in range(self.seeds)]

    @property
    def works(self) -> list[Work]:
        """All of these, seed after seed, attacks first."""
        each = [*(self.compared(data, share) for data in self.names for share in SHARES)]
        by_seed = [work for works in zip(*each, strict=True) for work in works]
        attacked = [work for works in zip(*map(self.attacked, reversed(self.names)), strict=True) for work in works]
        return [*self.attacked(self.names[-1], control=True), *attacked, *by_seed]
