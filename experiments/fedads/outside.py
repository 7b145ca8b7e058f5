"""Which trainings Table 3 is made of: each method of ``train.unaligned`` at each share of aligned rows.

============  =======  ============  ==============================  ==============================  =========
table         pool     held out      label party                     other party                     positives
============  =======  ============  ==============================  ==============================  =========
adult         10,000   1,800         the last 7 columns, income      the first 7 columns             24 %
credit        10,000   1,800         limit, person, old payments      last payment, bills, amounts    22 %
criteo        8,000    2,000 last    the 26 categories, the click    the 13 counts                   22 %
generator     20,000   10,000 last   16 columns of clicks, purchase  7 columns of the same clicks    5 %
============  =======  ============  ==============================  ==============================  =========

Of the pool a share is aligned: the other party has these rows, and those held out. Each seed draws pool, aligned rows and first
weights; ``criteo`` and ``generator`` are in the order of time, and their last rows are held out. Those of ``criteo``, whose log
is a given one, are the same for each seed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.fedads.data import ACTIVE, Cut, clicks, cut_of
from experiments.fedads.resampling import Said, resampled
from experiments.fedads.training import Settings, part, train
from experiments.florist.data import SOURCES, Records
from experiments.inference.experiment import Work
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import CategoricalColumn, Table
from vfl_node.job.unaligned import METHODS

Rows = NDArray[np.int64]


FILES: Mapping[str, tuple[str, Sequence[int], Sequence[int], int, int]] = {
    "adult": ("adult", range(7, 14), range(7), 10_000, 1_800),
    "credit": ("default_credit", [*range(5), *range(6, 11)], [5, *range(11, 23)], 10_000, 1_800),
    "criteo": ("criteo", range(13, 39), range(13), 8_000, 2_000),
}
"""Table → its file, columns of the label party, those of the other one, rows of the pool, rows held out."""

MARKETS: Mapping[str, int] = {"generator": 30_000, "small": 1_800}
"""Table of made-up clicks → rows, of which a third is held out."""

USER = "l_u_fea_1"

METHOD_KEYS: Mapping[str, Settings] = {
    "none": {},
    "heuristic": {},
    "jpl": {},
    "diffusion": {"steps": 200},
    "fedcvt": {},
    "ssl": {},
    "mpd": {},
    "fedhssl": {},
}
"""Method → its keys, where these are not the defaults."""

TRAIN: Settings = {
    "bottom": [32, 8],
    "active_bottom": [64, 32],
    "top": [],
    "epochs": 30,
    "batch_size": 128,
    "learning_rate": 0.003,
}
"""Settings of all methods alike."""

OF_TABLE: Mapping[str, Settings] = {"criteo": {"epochs": 6}, "generator": {"epochs": 6}}
"""Table → what differs: with many categories, Vanilla and Oracle learn rows by heart in 30 epochs."""

SHARES: Mapping[str, Sequence[float]] = {
    "adult": (0.02, 0.05, 0.2),
    "credit": (0.02, 0.05, 0.2),
    "criteo": (0.05, 0.2),
    "generator": (0.2,),
    "small": (0.1,),
}
"""Table → shares of the pool that are aligned."""

MORE_SEEDS: Mapping[tuple[str, float], int] = {("adult", 0.02): 20, ("credit", 0.02): 10, ("criteo", 0.05): 10}
"""(table, share) → seeds, where words rest on a difference whose five seeds say too little of how far it varies."""

ORACLE = "oracle"
"""All rows of the pool are aligned."""

LOCAL_ALIGNED, LOCAL_ALL = "none", "jpl"
"""Methods whose trainings tell what the label party has alone: by the aligned rows, and by the whole pool."""


@dataclass(frozen=True)
class RowsPlan:
    """How much is done.

    Attributes:
        seeds: of each trial, but for those of :data:`MORE_SEEDS`.
        small: on one small made-up table, for tests and for a first look.
    """

    seeds: int = 5
    small: bool = False

    @property
    def cells(self) -> tuple[tuple[str, float], ...]:
        """(table, share of aligned rows)."""
        tables = ("small",) if self.small else ("adult", "credit", "criteo", "generator")
        return tuple((name, share) for name in tables for share in SHARES[name])

    def seeds_of(self, table: str, share: float) -> range:
        """The seeds of a cell; of every method in it the same, so that all differences are paired."""
        return range(max(self.seeds, MORE_SEEDS.get((table, share), 0)))

    def methods(self, table: str) -> tuple[str, ...]:
        """What is run on a table: users are known in clicks alone."""
        return tuple(name for name in METHOD_KEYS if name in METHODS and (name != "heuristic" or table in WITH_USERS))


WITH_USERS = ("generator", "small")

RESAMPLED = ("criteo",)
"""Tables whose rows held out are the same in every trial."""


def trial(table: str, share: float, method: str, seed: int) -> Work:
    """A training; ``method`` may be :data:`ORACLE`, whose share is 1."""
    return Work(learnt, {"table": table, "share": share, "method": method, "seed": seed})


def learnt(shared: Path, *, table: str, share: float, method: str, seed: int) -> Any:
    """The work of a :func:`trial`.

    Returns:
        ``auc`` and ``nll`` on the rows held out, ``constant``, the NLL of the rate of positives, and ``alone``, AUC of the
        label party's own model: by the aligned rows for ``none``, whose label party has these only, else by the whole pool.
        Of tables that are :data:`RESAMPLED` also ``resampled``, those AUCs on resamples of the rows held out; ``alone`` once.
    """
    cut, aligned = split(shared, table, share, seed)
    if method == "none":  # what it does is the same without the rows that it does not use
        tables = {party: taken(table, aligned) for party, table in cut.tables.items()}
        cut, aligned = Cut(tables, cut.tested / len(aligned)), np.arange(len(aligned))
    keys = {"method": "none" if method == ORACLE else method, **METHOD_KEYS.get(method, {})}
    settings, scored = {**TRAIN, **OF_TABLE.get(table, {}), "unaligned": keys}, table in RESAMPLED
    done = train(cut, seed, settings=settings, aligned=aligned, scored=scored)
    results = done.results
    assert results.alone is not None
    values = {name: results.metrics[name] for name in ("auc", "nll")}
    values |= {"constant": results.constant["nll"], "alone": results.alone.metrics["auc"]}
    outcome: dict[str, Any] = {name: round(float(value), 5) for name, value in values.items() if value is not None}
    if done.said is not None:
        outcome["resampled"] = score_resamples(cut, done.said, alone=method in (LOCAL_ALIGNED, LOCAL_ALL))
    return outcome


def score_resamples(cut: Cut, said: Said, *, alone: bool) -> dict[str, list[float]]:
    """AUCs of the joint model, ``auc``, and where asked of the label party's own, ``alone``, each on the same resamples."""
    labels = cut.tables[ACTIVE].labels
    assert labels is not None
    assert np.array_equal(said.labels, labels[-cut.tested :])  # else the resamples would not be paired
    scores = {"auc": said.joint} | ({"alone": said.alone} if alone else {})
    return {name: resampled(said.labels, score) for name, score in scores.items()}


def split(shared: Path, table: str, share: float, seed: int) -> tuple[Cut, Rows]:
    """The tables of a seed, and the rows that both have: a ``share`` of the pool, and those held out, which are last."""
    cut = made(shared, table, seed)
    pool = len(cut) - cut.tested
    draws = Randomness(bytes(32)).derive(f"fedads aligned {table} {seed}")
    few = np.sort(draws.permutation(pool)[: round(share * pool)])  # those of a smaller share are among those of a larger one
    return cut, np.concatenate([few, np.arange(pool, len(cut))])


def made(shared: Path, table: str, seed: int) -> Cut:
    """Both parties' tables with the pool before the rows held out; users are groups where there are any."""
    if table in MARKETS:
        count = MARKETS[table]
        cut = clicks(shared, seed, positives=0.05, rows=count, trained=count - count // 3)
        users = cut.tables[ACTIVE].columns[USER]
        assert isinstance(users, CategoricalColumn)
        return ordered(cut, groups=users.codes)
    source, active, passive, pool, held_out = FILES[table]
    records = _records(source, shared)
    names, size = tuple(records.columns), pool + held_out
    rows = np.arange(size)  # of criteo, whose log has no more
    if len(records) > size:
        rows = Randomness(bytes(32)).derive(f"fedads pool {seed}").permutation(len(records))[:size]
    own, other = (tuple(names[place] for place in places) for places in (active, passive))
    return ordered(cut_of(records, rows, own, other, pool))


def ordered(cut: Cut, groups: Rows | None = None) -> Cut:
    """The rows held out come last in the order of the label party."""
    order = (np.arange(len(cut)) >= len(cut) - cut.tested).astype(np.float64)
    tables = dict(cut.tables)
    tables[ACTIVE] = dataclasses.replace(tables[ACTIVE], order=order, groups=groups)
    return Cut(tables, cut.held_out)


def taken(table: Table, rows: Rows) -> Table:
    """The ``rows`` of a table, with what a training reads of them."""
    order = None if table.order is None else table.order[rows]
    groups = None if table.groups is None else table.groups[rows]
    return dataclasses.replace(part(table, rows), order=order, groups=groups)


@cache
def _records(source: str, shared: Path) -> Records:
    return SOURCES[source](shared)


def works(plan: RowsPlan) -> list[Work]:
    """Everything that has to be run."""
    every = []
    seeds = {cell: plan.seeds_of(*cell) for cell in plan.cells}
    for seed in range(max(map(len, seeds.values()))):  # all of a seed together: a run that is cut off has whole seeds
        cells = [cell for cell, wanted in seeds.items() if seed in wanted]
        for table, share in cells:
            every += [trial(table, share, method, seed) for method in plan.methods(table)]
        every += [trial(table, 1.0, ORACLE, seed) for table in dict.fromkeys(name for name, _ in cells)]
    return every
