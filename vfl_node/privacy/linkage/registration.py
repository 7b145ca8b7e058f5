"""Records' places from distances alone, with a public list of places: the coordinator lays one map over the other.

Where the bits of an axis stand in a filter is public, and how distances along it grow. So distances of one party's filters
alone give the positions of its records along each axis, but for where it begins and in which direction it runs. What is left is
to lay this map over a public one, of all addresses of a country for example: records are where addresses are. It needs no
record that it knows, no seed, and not even that the records stand in the list.

1. Along an axis records farther apart than the reach are joined by others between them: the shortest way from an extreme record
   to all others. Then each record is put where its near neighbours on both sides say (majorisation, as of Guttman).
2. For each direction of each axis, and a few beginnings, the map is moved until the records lie closest to places of the list
   (iterated nearest neighbours). The best fit counts.

Who attacks: the coordinator, which follows the protocol.

Source: our own; step 2 is Besl and McKay 1992 ("A method for registration of 3-D shapes"), without rotations.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components, dijkstra
from scipy.spatial import cKDTree

from vfl_node.crypto.rows import Rows
from vfl_node.privacy.linkage.space import Floats, KeySpace

_BEGINNINGS = (0.1, 0.5, 0.9)  # shares of records, and of the list, that are laid over each other at first
_PASSES, _MOVES = 30, 60
_NEAREST = 0.8  # the share of records that counts in a fit; others may be far from all places of the list
_EXACT = 0.85  # of two reaches: farther apart, a distance may have been cut


def locate(filters: Rows, listed: Floats, space: KeySpace) -> Floats:
    """Where each record lies, float64[n, axes]; NaN for those that no chain of neighbours joins with most others.

    Args:
        filters: uint8[n, w], of records of one party, or of both.
        listed: float64[m, axes], places of the list.
        space: of the job's keys; of one axis or two, more give 3^axes·2^axes fits.

    Cost: n² distances of filters, and their shortest ways; 36 fits of up to 60 searches each for two axes.
    """
    own = np.stack([_positions(apart, reach) for apart, reach in space.axis_distances(filters)], axis=1)
    joined = ~np.isnan(own).any(axis=1)
    found = np.full(own.shape, np.nan)
    if joined.sum() > 1:
        # an axis of the list in units of its reach, so that all count alike
        scale = np.array(space.reaches)
        found[joined] = _register(own[joined] / scale, listed / scale) * scale
    return found


def _positions(apart: Floats, reach: float) -> Floats:
    """Along an axis, from an end and in either direction: float64[n]; NaN beside the largest part that is joined."""
    near = apart < 2 * reach * _EXACT
    np.fill_diagonal(near, False)
    joined = csr_matrix(np.where(near, np.maximum(apart, 1e-9 * reach), 0.0))
    _, part = connected_components(joined, directed=False)
    inside = np.flatnonzero(part == np.bincount(part).argmax())
    ways = joined[inside][:, inside]
    end = int(dijkstra(ways, indices=0).argmax())
    at = dijkstra(ways, indices=end)
    weights = near[np.ix_(inside, inside)].astype(np.float64)
    lengths, counts = apart[np.ix_(inside, inside)] * weights, np.maximum(weights.sum(axis=1), 1.0)
    for _ in range(_PASSES):
        at = (weights @ at + (lengths * np.sign(at[:, None] - at)).sum(axis=1)) / counts
    found = np.full(len(apart), np.nan)
    found[inside] = at
    return found


def _register(own: Floats, listed: Floats) -> Floats:
    """The map of ``own`` records over that of the list: float64[n, axes]."""
    places, axes = cKDTree(listed), own.shape[1]
    best, least = own, np.inf
    for signs in product((1.0, -1.0), repeat=axes):
        for shares in product(_BEGINNINGS, repeat=axes):
            turned = own * signs
            moved = turned + [
                np.quantile(listed[:, axis], share) - np.quantile(turned[:, axis], share) for axis, share in enumerate(shares)
            ]
            for _ in range(_MOVES):
                apart, nearest = places.query(moved)
                close = apart <= np.quantile(apart, _NEAREST)
                shift = (listed[nearest[close]] - moved[close]).mean(axis=0)
                moved = moved + shift
                if np.abs(shift).max() < 1e-5:
                    break
            apart, _ = places.query(moved)
            misfit = float(np.sort(apart)[: max(1, round(_NEAREST * len(apart)))].mean())
            if misfit < least:
                best, least = moved, misfit
    return best
