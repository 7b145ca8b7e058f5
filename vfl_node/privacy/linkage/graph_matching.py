"""Records' texts from distances alone, with a public list: both are graphs, and the coordinator lays one over the other.

Two texts with common groups of letters have common ones in their filters, whatever the seed is: about as many of them as
two filters of the same texts under any other seed. So the coordinator encodes a public list, of names for example, under a seed
of its own. How much any two records have in common, and any two entries, are the edges of two graphs; it looks for the
assignment of records to entries under which these agree best. It needs no record that it knows, and no seed.

1. What two filters have in common is (|a| + |b| − Hamming) / 2, less the mean of all pairs, in deviations. Below the mean is
   evidence too: so it is not cut at 0, by which far fewer are found if the list is longer than the table.
2. The signature of a node is its ones, its 25 largest edges, and their mean. Signatures give a first assignment.
3. Frank and Wolfe's method climbs from there, from the middle of all assignments, and from two between them, by the agreement
   of edges and by how alike the numbers of ones are (which tell how long a text is). The best end counts.

Who attacks: the coordinator, which follows the protocol, and has a list in which many of the records' texts stand.

Source: Vogelstein et al. 2015 ("Fast approximate quadratic programming for graph matching"); of encoded names Vidanage et al.
2020 ("A graph matching attack on privacy-preserving record linkage").
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from vfl_node.crypto.nearest.search import hamming
from vfl_node.crypto.rows import Rows
from vfl_node.privacy.linkage.space import Floats

_LARGEST = 25  # edges in a signature
_STARTS = (0.0, 0.5, 0.75, 1.0)  # how much of the middle there is in them
_STEPS, _SMALL = 40, 1e-3
_ONES = 1.0  # so much of all edges of a node counts a deviation of ones


class _Graph(NamedTuple):
    """Ones of the nodes, float64[n], and edges, float64[n, n] with 0 in the diagonal; both less their mean, in deviations."""

    ones: Floats
    edges: Floats

    @classmethod
    def from_filters(cls, filters: Rows) -> _Graph:
        ones = np.unpackbits(filters, axis=1).sum(axis=1).astype(np.float64)
        common = (ones[:, None] + ones - hamming(filters, filters)) / 2
        np.fill_diagonal(common, 0.0)
        others = ~np.eye(len(ones), dtype=np.bool_)
        common[others] = _standardise(common[others])
        return cls(_standardise(ones), common)

    def signatures(self, largest: int) -> Floats:
        return np.column_stack([self.ones, -np.sort(-self.edges, axis=1)[:, :largest], self.edges.mean(axis=1)])


def recognise(filters: Rows, listed: Rows) -> NDArray[np.int64]:
    """Which entry of the list each record has, int64[n]; −1 for some if there are more different records than entries.

    Every record gets an entry, also one whose text is not in the list.

    Args:
        filters: uint8[n, w], of the records; of one text each, as the job's public terms say where it lies in a filter.
        listed: uint8[m, w], of entries that differ, under a seed of the attacker's own.

    Cost: four times up to 40 steps with n·m·(n + m) multiplications and an assignment each: 1 to 8 s with n = 300 and
    m = 600. Memory: 8·(n + m)² bytes, a few times.
    """
    different, which = np.unique(filters, axis=0, return_inverse=True)
    records, entries = _Graph.from_filters(different), _Graph.from_filters(listed)
    first = _match_signatures(records, entries)
    middle = np.full(first.shape, 1 / max(first.shape))
    alike = -np.abs(records.ones[:, None] - entries.ones) * _ONES * (records.edges**2).sum() / len(different)
    ends = [_climb((1 - share) * first + share * middle, records.edges, entries.edges, alike) for share in _STARTS]
    chosen, _ = max(ends, key=lambda end: end[1])
    return chosen[which.ravel()]


def _standardise(values: Floats) -> Floats:
    return (values - values.mean()) / (values.std() or 1.0)


def _match_signatures(records: _Graph, entries: _Graph) -> Floats:
    """The assignment of like signatures, float64[n, m] of 0 and 1."""
    largest = min(_LARGEST, len(records.ones) - 1, len(entries.ones) - 1)
    own, theirs = records.signatures(largest), entries.signatures(largest)
    scale = np.concatenate([own, theirs]).std(axis=0)
    scale[scale == 0] = 1.0
    assigned = np.zeros((len(own), len(theirs)))
    assigned[linear_sum_assignment(cdist(own / scale, theirs / scale))] = 1.0
    return assigned


def _climb(start: Floats, records: Floats, entries: Floats, alike: Floats) -> tuple[NDArray[np.int64], float]:
    """The assignment int64[n] at the end of the climb from ``start``, −1 for none, and how good it is."""
    mixed = start
    for _ in range(_STEPS):
        slope = 2 * records @ mixed @ entries + alike
        towards = -mixed
        towards[linear_sum_assignment(slope, maximize=True)] += 1.0
        rise, bend = float((slope * towards).sum()), float((records @ towards @ entries * towards).sum())
        step = 1.0 if bend >= 0 else min(1.0, -rise / (2 * bend))
        mixed = mixed + step * towards
        if step * np.abs(towards).sum() < _SMALL * len(mixed):
            break
    rows, columns = linear_sum_assignment(mixed, maximize=True)
    chosen = np.full(len(mixed), -1, dtype=np.int64)
    chosen[rows] = columns
    agreed = records[np.ix_(rows, rows)] * entries[np.ix_(columns, columns)]
    return chosen, float(agreed.sum() + alike[rows, columns].sum())
