"""What a peer has learnt of labels in several trainings: standardised scores of rows, added up over repeats and jobs.

Noise of mean zero vanishes from a sum, whatever was drawn anew. A row's sum divided by the root of the number of its scores is
again of unit scale where nothing is told, and grows with every training where something is.

Within a job a row is named by its shared position. What is kept of a job names it by a keyed digest of the record, so that the
same record counts in every set that it is in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.errors import StateError
from vfl_node.privacy.attacks.attack import Positions
from vfl_node.privacy.labels.shown import standardised
from vfl_node.session.counted import told_of_labels
from vfl_node.session.memory import Memory

MOST_ROWS = 1 << 14
"""Rows that are remembered of a table, those with the smallest names."""

MOST_JOBS = 16
"""Jobs that are remembered apart, so that one that is repeated does not count twice; older ones are one sum."""

EARLIER = ""
"""Stands for these."""

SERVED = "served "
"""Before the name of a model whose predictions a partner got: what is kept are scores as they are."""

Names = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Sums of scores.

    Attributes:
        names: uint64[n], of rows, ascending: shared positions, or digests of records.
        sums: float32[n, c], of their standardised scores; c is 1, or a number of classes.
        counts: int32[n], of how many.
    """

    names: Names
    sums: NDArray[np.float32]
    counts: NDArray[np.int32]

    @classmethod
    def none(cls, columns: int) -> Evidence:
        """Nothing yet."""
        return cls(np.zeros(0, np.uint64), np.zeros((0, columns), np.float32), np.zeros(0, np.int32))

    @classmethod
    def of(cls, names: Names, score: Tensor) -> Evidence:
        """One training's ``score``, float32[n] or float32[n, c], of rows with distinct ``names``."""
        order = np.argsort(names)
        sums = standardised(score.reshape(len(names), -1)).numpy()[order]
        return cls(names[order], sums, np.ones(len(names), np.int32))

    def plus(self, other: Evidence) -> Evidence:
        """Both added: this one with the sign, or order of groups, with which it goes along with ``other`` on common rows."""
        names = np.union1d(self.names, other.names)
        sums, counts = np.zeros((len(names), self.sums.shape[1]), np.float32), np.zeros(len(names), np.int32)
        for each, of in ((self._along(other), self), (other.sums, other)):
            places = np.searchsorted(names, of.names)
            sums[places] += each
            counts[places] += of.counts
        return Evidence(names[:MOST_ROWS], sums[:MOST_ROWS], counts[:MOST_ROWS])

    def replaced_by(self, other: Evidence) -> Evidence:
        """With the rows of ``other`` in place of the same ones here."""
        kept = ~np.isin(self.names, other.names)
        names = np.concatenate([self.names[kept], other.names])
        order = np.argsort(names)[:MOST_ROWS]
        sums, counts = (
            np.concatenate([mine[kept], new]) for mine, new in ((self.sums, other.sums), (self.counts, other.counts))
        )
        return Evidence(names[order], sums[order], counts[order])

    def renamed(self, names: Names) -> Evidence:
        """With ``names``, uint64[m], of the rows at shared positions in place of these."""
        called = names[self.names.astype(np.int64)]
        order = np.argsort(called)
        return Evidence(called[order], self.sums[order], self.counts[order])

    def scores(self, names: Names) -> Tensor:
        """float32[k] or float32[k, c], of rows with ``names``; 0 where there is nothing."""
        found = np.zeros((len(names), self.sums.shape[1]), np.float32)
        places = np.searchsorted(self.names, names).clip(max=max(len(self.names) - 1, 0))
        if len(self.names):
            known = self.names[places] == names
            found[known] = self.sums[places[known]] / np.sqrt(self.counts[places[known]])[:, None]
        return torch.from_numpy(found if found.shape[1] > 1 else found[:, 0])

    def _along(self, other: Evidence) -> NDArray[np.float32]:
        """The sums, turned as :meth:`plus` says."""
        _, mine, theirs = np.intersect1d(self.names, other.names, assume_unique=True, return_indices=True)
        likeness = self.sums[mine].T.astype(np.float64) @ other.sums[theirs]
        if len(likeness) == 1:
            return -self.sums if likeness[0, 0] < 0 else self.sums
        from scipy.optimize import linear_sum_assignment  # loads scipy, which a node needs only here

        order = np.empty(len(likeness), np.int64)
        groups, wanted = linear_sum_assignment(-likeness)
        order[wanted] = groups
        return self.sums[:, order]


class History:
    """The evidence of one attack that one partner has, of all jobs over one table. It is on the disk when a method returns.

    Args:
        memory: of the partner.
        table: this party's, by its name in the settings.
        attack: its name.
        columns: of its score.
        job_id: of the job under way, which does not count as an earlier one.
        names: uint64[m], of the records at its shared positions, by :func:`record_names`.

    Raises:
        StateError: what there was is lost (``E_STATE_LOST``) or damaged (``E_STATE_CORRUPT``).
    """

    def __init__(self, memory: Memory, table: str, attack: str, columns: int, job_id: str, names: Names) -> None:
        self._memory, self._job_id, self._names, self.attack = memory, job_id, names, attack
        what = told_of_labels(f"{table} {attack} {columns}", job_id)
        self._name = f"labels-{what.name}"
        data = memory.recall(self._name)
        number = memory.count(what)
        if data is None and number > 1:
            raise StateError(
                "what was told of this table's labels in earlier jobs is gone from state/partners",
                code="E_STATE_LOST",
                hint="put the newest copy of state/partners back; without it nobody can say what all trainings told together",
                for_peer="it has lost what it remembers of earlier jobs",
            )
        self._jobs = {EARLIER: Evidence.none(columns)} if data is None else _read(data, columns)
        self._columns = columns
        if data is None:
            self._write()

    @property
    def earlier(self) -> Evidence:
        """Of all jobs but this one."""
        found = Evidence.none(self._columns)
        for job_id, of in self._jobs.items():
            if job_id != self._job_id and len(of.names):
                found = found.plus(Evidence.of(of.names, torch.from_numpy(of.sums)) if job_id.startswith(SERVED) else of)
        return found

    @property
    def own(self) -> Evidence:
        """Of this job, as it was kept."""
        return self._jobs.get(self._job_id, Evidence.none(self._columns))

    @property
    def trainings(self) -> int:
        """How many times a row was trained on in them, at most."""
        return int(self.earlier.counts.max(initial=0))

    def with_job(self, told: Evidence, positions: Positions) -> Tensor:
        """The scores of the rows at ``positions`` by all jobs, this one with what it has ``told`` by shared position."""
        return self.earlier.plus(told.renamed(self._names)).scores(self._names[positions])

    def keep_at(self, told: Evidence) -> None:
        """Remember what this job has ``told`` so far, by shared position, in place of what was remembered of it."""
        self.keep(told.renamed(self._names))

    def keep(self, told: Evidence) -> None:
        """The same, by names of records."""
        self._jobs = {**self._jobs, self._job_id: told}
        apart = [job_id for job_id in self._jobs if job_id != EARLIER and not job_id.startswith(SERVED)]
        for job_id in apart[:-MOST_JOBS]:
            self._jobs[EARLIER] = self._jobs[EARLIER].plus(self._jobs.pop(job_id))
        self._write()

    def _write(self) -> None:
        head = {job_id: len(of.names) for job_id, of in self._jobs.items()}
        parts = [part.tobytes() for of in self._jobs.values() for part in (of.names, of.sums, of.counts)]
        self._memory.replace(self._name, json.dumps(head).encode() + b"\n" + b"".join(parts))


def served_by(model: str) -> str:
    """What stands for the predictions by ``model`` among jobs."""
    return SERVED + model


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


def _read(data: bytes, columns: int) -> dict[str, Evidence]:
    head, _, rest = data.partition(b"\n")
    sizes: Mapping[str, int] = json.loads(head)
    raw = bytearray(rest)  # arrays over bytes cannot be written to
    found, at = {}, 0
    for job_id, rows in sizes.items():
        names = np.frombuffer(raw, np.uint64, rows, at)
        sums = np.frombuffer(raw, np.float32, rows * columns, at := at + names.nbytes).reshape(rows, columns)
        counts = np.frombuffer(raw, np.int32, rows, at := at + sums.nbytes)
        at += counts.nbytes
        found[job_id] = Evidence(names, sums, counts)
    return found
