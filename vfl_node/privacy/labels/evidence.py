"""What a peer has learnt of labels in several trainings: standardised scores of rows, added up over repeats and jobs.

Noise of mean zero vanishes from a sum, whatever was drawn anew. A score counts by how well it goes along with the labels, so
that a training that tells nothing takes nothing back; a peer finds out that much by a few known labels. How well it does so for
one half of the rows is taken from the other half: scores at chance stay at chance, however many are added.

Within a job a row is named by its shared position. What is kept of a job names it by a keyed digest of the record, so that the
same record counts in every set that it is in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from hashlib import blake2b

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.privacy.attacks.attack import Positions
from vfl_node.privacy.labels.shown import standardise
from vfl_node.session.memory import Memory, change_total

MOST_ROWS = 1 << 14
"""Rows that are remembered of a table, those with the smallest names."""

MOST_JOBS = 16
"""Jobs that are remembered apart, so that one that is repeated does not count twice; older ones are one sum.

Beside them all trials of the sweep under way: by halving any of them may go on.
"""

EARLIER = ""
"""Stands for these."""

Names = NDArray[np.uint64]

Columns = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Sums of scores, each times its weight.

    Attributes:
        names: uint64[n], of rows, ascending: shared positions, or digests of records.
        sums: float32[n, c]; c is 1, or a number of classes.
        squares: float32[n, c], sums of the squares of these weights.
        counts: int32[n], of how many scores.
    """

    names: Names
    sums: Columns
    squares: Columns
    counts: NDArray[np.int32]

    @classmethod
    def empty(cls, columns: int) -> Evidence:
        """Nothing yet."""
        nothing = np.zeros((0, columns), np.float32)
        return cls(np.zeros(0, np.uint64), nothing, nothing, np.zeros(0, np.int32))

    @classmethod
    def from_scores(cls, names: Names, score: Tensor, targets: Tensor, *, trainings: int = 1) -> Evidence:
        """One training's ``score``, float32[n] or float32[n, g], of rows with distinct ``names``.

        Args:
            names: uint64[n].
            score: of each row, or of each row for each of g unnamed groups.
            targets: float32[n, c], its label as a column, or a column for each class.
            trainings: how many it is of; 0: of predictions.
        """
        order = np.argsort(names)
        sums, squares = _weigh(score.reshape(len(names), -1), targets)
        return cls(names[order], sums[order], squares[order], np.full(len(names), trainings, np.int32))

    def add(self, other: Evidence) -> Evidence:
        """Both added."""
        names = np.union1d(self.names, other.names)
        shape, counts = (len(names), self.sums.shape[1]), np.zeros(len(names), np.int32)
        sums, squares = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        for evidence in (self, other):
            places = np.searchsorted(names, evidence.names)
            sums[places] += evidence.sums
            squares[places] += evidence.squares
            counts[places] += evidence.counts
        return Evidence(names[:MOST_ROWS], sums[:MOST_ROWS], squares[:MOST_ROWS], counts[:MOST_ROWS])

    def replace_rows(self, names: Names, sums: Columns) -> Evidence:
        """With ``sums``, float32[k, c], of the rows with ``names``, uint64[k], ascending, in place of the same ones here."""
        new, counts = np.ones_like(sums), np.zeros(len(names), np.int32)
        kept = ~np.isin(self.names, names)
        order = np.argsort(np.concatenate([self.names[kept], names]))
        parts = ((self.names, names), (self.sums, sums), (self.squares, new), (self.counts, counts))
        return Evidence(*(np.concatenate([mine[kept], new])[order] for mine, new in parts))

    def select(self, places: Positions) -> Evidence:
        """The rows at these places, ascending."""
        return Evidence(self.names[places], self.sums[places], self.squares[places], self.counts[places])

    def rename(self, names: Names) -> Evidence:
        """With ``names``, uint64[m], of the rows at shared positions in place of these."""
        called = names[self.names.astype(np.int64)]
        order = np.argsort(called)
        return Evidence(called[order], self.sums[order], self.squares[order], self.counts[order])

    def scores(self, names: Names) -> Tensor:
        """float32[k] or float32[k, c], of rows with ``names``; 0 where nothing is known, and of unit scale elsewhere."""
        found = np.zeros((len(names), self.sums.shape[1]), np.float32)
        if len(self.names):
            places = np.searchsorted(self.names, names).clip(max=len(self.names) - 1)
            known = self.names[places] == names
            scale = np.sqrt(np.maximum(self.squares[places[known]], 1e-12))
            found[known] = self.sums[places[known]] / scale
        return torch.from_numpy(found if found.shape[1] > 1 else found[:, 0])


def _weigh(score: Tensor, targets: Tensor) -> tuple[Columns, Columns]:
    """Scores times their weights, and the squares of these, float32[n, c]: see the module."""
    z, t = standardise(score).double(), standardise(targets).double()
    sums, squares = torch.zeros(t.shape, dtype=torch.float64), torch.zeros(t.shape, dtype=torch.float64)
    half = torch.arange(len(z)) % 2 == 0
    for used, fitted in ((half, ~half), (~half, half)):
        along = z[fitted].T @ t[fitted] / max(int(fitted.sum()), 1)  # (g, c)
        groups, classes = _match(along)
        weights = along[groups, classes]
        sums[used.nonzero()[:, :1], classes] = z[used][:, groups] * weights
        squares[used.nonzero()[:, :1], classes] = weights.square().expand(int(used.sum()), -1)
    return sums.float().numpy(), squares.float().numpy()


def _match(along: Tensor) -> tuple[Tensor, Tensor]:
    """Which group is which class, by how well they go along."""
    if along.numel() == 1:
        return torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    from scipy.optimize import linear_sum_assignment  # loads scipy, which a node needs only here

    groups, classes = linear_sum_assignment(-along.numpy())
    return torch.from_numpy(groups), torch.from_numpy(classes)


class History:
    """The evidence of one attack that one partner has, of all jobs over one table's labels. It is on the disk at once.

    Args:
        memory: of the partner.
        about: the labels, and the attack.
        columns: of its score.
        job_id: of the job under way, which does not count as an earlier one.
        names: uint64[m], of the records at its shared positions, by :func:`record_names`.

    Raises:
        StateError: what there was is lost (``E_STATE_LOST``) or damaged (``E_STATE_CORRUPT``).
    """

    def __init__(self, memory: Memory, about: str, columns: int, job_id: str, names: Names) -> None:
        self._memory, self._columns, self._job_id, self._names = memory, columns, job_id, names
        self._name = f"labels-{hashlib.sha256(f'{about} {columns}'.encode()).hexdigest()[:32]}"
        self._known: bytes | None = None
        self._earlier = Evidence.empty(columns)
        self._change(lambda jobs: jobs)

    @property
    def earlier(self) -> Evidence:
        """Evidence of all jobs but this one, as they are now: another may be under way. Costs 5 ms a job after a change."""
        if (data := self._memory.recall(self._name)) != self._known:
            jobs = self._read(data)
            jobs.pop(self._job_id, None)
            self._known, self._earlier = data, reduce(Evidence.add, jobs.values(), Evidence.empty(self._columns))
        return self._earlier

    @property
    def trainings(self) -> int:
        """How many times a row was trained on in them, at most."""
        return int(self.earlier.counts.max(initial=0))

    @property
    def own(self) -> Evidence:
        """The evidence of this job, as it was kept."""
        return self._read(self._memory.recall(self._name)).get(self._job_id, Evidence.empty(self._columns))

    def score_with_job(self, told: Evidence, positions: Positions) -> Tensor:
        """The scores of the rows at ``positions`` by all jobs, this one with what it has ``told`` by shared position."""
        return self.earlier.add(told.rename(self._names)).scores(self._names[positions])

    def keep_at(self, told: Evidence) -> None:
        """Remember what this job has ``told`` so far, by shared position, in place of what was remembered of it."""
        self.keep(told.rename(self._names))

    def keep(self, told: Evidence) -> None:
        """The same, by names of records."""
        self.change_own(lambda own: told)

    def change_own(self, change: Callable[[Evidence], Evidence]) -> None:
        """Put what ``change`` makes of what was remembered of this job in its place; what it raises changes nothing."""

        def replace_own(jobs: dict[str, Evidence]) -> dict[str, Evidence]:
            own = change(jobs.pop(self._job_id, Evidence.empty(self._columns)))
            past = [job_id for job_id in jobs if job_id != EARLIER and _sweep_name(job_id) != _sweep_name(self._job_id)]
            for job_id in past[: 1 - MOST_JOBS]:
                jobs[EARLIER] = self._fold(jobs[EARLIER], jobs.pop(job_id))
            return {**jobs, self._job_id: own}

        self._change(replace_own)

    def _fold(self, earlier: Evidence, job: Evidence) -> Evidence:
        """The sum of older jobs with one more."""
        return earlier.add(job)

    def _change(self, change: Callable[[dict[str, Evidence]], dict[str, Evidence]]) -> None:
        what = "what was told of this table's labels in earlier jobs"
        change_total(self._memory, self._name, lambda data: _serialise(change(self._read(data))), what=what)

    def _read(self, data: bytes | None) -> dict[str, Evidence]:
        return {EARLIER: Evidence.empty(self._columns)} if data is None else _read(data, self._columns)


class Said(History):
    """Predictions as they were said, by model: no sum, so that older ones are dropped. What they tell is in the others."""

    def _fold(self, earlier: Evidence, job: Evidence) -> Evidence:
        return earlier


def _sweep_name(job_id: str) -> str:
    """The job that a trial ``JOB.t001`` is of, as trials are counted; of another job the job itself."""
    return job_id.partition(".")[0]


def labels_key(table: str, column: str, classes: int) -> str:
    """What stands for the labels of a table: its name in the settings, their column, and how many classes; 0: numbers."""
    return f"{table} {column} {classes}"


def predictions_by(model: str) -> str:
    """What stands for the predictions by ``model`` among jobs."""
    return f"served {model}"


def record_names(secret: Randomness, ids: Identifiers, rows: NDArray[np.int64], positions: Positions) -> Names:
    """uint64[m], names of the records at shared ``positions``, and 0 elsewhere; under one secret always the same.

    Args:
        secret: of the memory of a partner.
        ids: of this party's table.
        rows: int64[m], its rows at the shared positions.
        positions: of those that it owns.

    Costs a microsecond for each.
    """
    key = secret.derive("names of records").bytes(32)
    digests = b"".join([blake2b(id_, digest_size=8, key=key).digest() for id_ in ids.take(rows[positions])])
    names = np.zeros(len(rows), np.uint64)
    names[positions] = np.frombuffer(digests, np.uint64)
    return names


def _serialise(jobs: Mapping[str, Evidence]) -> bytes:
    head = {job_id: len(evidence.names) for job_id, evidence in jobs.items()}
    parts = [
        part.tobytes()
        for evidence in jobs.values()
        for part in (evidence.names, evidence.sums, evidence.squares, evidence.counts)
    ]
    return json.dumps(head).encode() + b"\n" + b"".join(parts)


def _read(data: bytes, columns: int) -> dict[str, Evidence]:
    head, _, rest = data.partition(b"\n")
    sizes: Mapping[str, int] = json.loads(head)
    raw = bytearray(rest)  # arrays over bytes cannot be written to
    found, at = {}, 0
    for job_id, rows in sizes.items():
        names = np.frombuffer(raw, np.uint64, rows, at)
        sums = np.frombuffer(raw, np.float32, rows * columns, at := at + names.nbytes).reshape(rows, columns)
        squares = np.frombuffer(raw, np.float32, rows * columns, at := at + sums.nbytes).reshape(rows, columns)
        counts = np.frombuffer(raw, np.int32, rows, at := at + squares.nbytes)
        at += counts.nbytes
        found[job_id] = Evidence(names, sums, squares, counts)
    return found
