"""How exactly a peer would locate a party's own records, in a simulation that needs nothing of the peer.

No party can try an attack on its own records, as that needs the peer's keys. So records that are made up take the place of the
peer's: they are spread as this party's own are, and as dense as the true ones; in a large table only those around each judged
record. An active party judges the sets of candidates (``cells``). A passive one judges the similarities of its records
(``multilateration``) and whose candidates they are (``membership``), and what locates better counts. If the peer's records lie
closer together than these, or it knows more, it locates better.

What is drawn here is no secret, and the seed is always the same: so the same records give the same figures in every job.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.nearest.search import hamming
from vfl_node.crypto.randomness import Randomness
from vfl_node.privacy.linkage import cells, multilateration
from vfl_node.privacy.linkage.space import Floats, KeySpace

MOST = 1024
"""Records that are simulated as a whole; of more only those around each judged one."""

_DRAWN = 1 << 20  # records that are made up at most
_JUDGED, _JUDGED_CLOSELY = 200, 32
_GRID, _ZOOMS = 225, (1, 5)  # points of the grids around a judged record, and how much finer the second one is
_USES, _BEACONS = 256, 32  # of how many records one is a candidate, and how many of these beacons are, at most
_FILTER_BYTES, _GRID_MOST = 1 << 28, 20_000
_SEED = Randomness(b"records made up for an audit".ljust(32))


def active_errors(own: Floats, others: int, candidates: int, space: KeySpace) -> Mapping[str, float]:
    """How far from the truth the passive party places the active party's records: key → median error.

    Args:
        own: float64[n, axes], the active party's records.
        others: how many records the passive party has.
        candidates: K.
        space: of the job's keys.

    Returns:
        In the unit of each key, days for a date, metres for a place.

    Cost: some 20,000 filters, and their distances to up to 1,024 others: about 1 s with filters of 2 kB.
    """
    made_up, seed = _bootstrap(own, min(others, _DRAWN), space), _SEED.derive("filters")
    width = space.filters(own[:1], seed).shape[1]
    if others <= MOST:
        judged = _sample(own, _JUDGED)
        rows = _candidates(judged, made_up, candidates, space)
        points = min(_GRID_MOST, _FILTER_BYTES // width)
        return space.errors(cells.locate(rows, made_up, space, seed, most=points), judged)
    around = max(64, 4 * candidates)
    judged = _sample(own, min(_JUDGED_CLOSELY, max(4, _FILTER_BYTES // (width * (2 * _GRID + 3 * around)))))
    guesses = np.empty_like(judged)
    for record, guess in zip(judged, guesses, strict=True):
        near = _nearest(made_up, record, around, space)
        rows = _candidates(record[None], near, candidates, space)
        guess[:] = near[rows[0]].mean(axis=0)
        for zoom in _ZOOMS:
            half = near.std(axis=0) / zoom
            window = np.clip(np.stack([guess - half, guess + half], axis=1), *space.bounds.T[:, :, None])
            guess[:] = cells.locate(rows, near, space, seed, most=_GRID, within=window)[0]
    return space.errors(guesses, judged)


def passive_errors(own: Floats, uses: int, candidates: int, sigma: float, space: KeySpace) -> Mapping[str, float]:
    """How far from the truth the active party places the passive party's records: key → median error.

    Args:
        own: float64[n, axes], the passive party's records.
        uses: of how many of the active party's records one of these is a candidate.
        candidates: K.
        sigma: σ.
        space: of the job's keys.

    Returns:
        As :func:`active_errors`, the smaller error of both attacks.

    Cost: some 12,000 filters, and their distances to up to 1,024 others.
    """
    some = min(uses, _USES)
    made_up = _bootstrap(own, min(_DRAWN, max(1, round(some * len(own) / candidates))), space)
    seed, users, judged = _SEED.derive("filters"), list[Floats](), list[Floats]()
    for record in _sample(own, _JUDGED_CLOSELY):
        around = _nearest(made_up, record, 4 * some, space)  # beyond, the candidates are others
        distances = space.expected_distances(around, _nearest(own, record, max(64, 16 * candidates), space))
        farthest = np.partition(distances, candidates - 1, axis=1)[:, candidates - 1]
        using = around[space.expected_distances(around, record[None])[:, 0] <= farthest]
        if len(using):
            users.append(using)
            judged.append(record)
    truth = np.array(judged)
    by_members = space.errors(np.array([using.mean(axis=0) for using in users]), truth)
    beacons = [using[_SEED.derive("beacons").permutation(len(using))[:_BEACONS]] for using in users]
    filters = space.filters(np.concatenate(beacons), seed)
    counts = np.array([len(beacon) for beacon in beacons])
    mine = np.repeat(np.arange(len(truth)), counts)[None] == np.arange(len(truth))[:, None]
    apart = np.where(mine, hamming(space.filters(truth, seed), filters), np.nan)
    deviation = max(float(np.nanstd(apart)), 1.0)
    noise = sigma * _SEED.derive("noise").normal(apart.shape) * np.sqrt(counts / np.maximum(counts, uses))[:, None]
    guess = multilateration.locate(noise - apart / deviation, filters, 0.0, deviation, space, seed)
    return {name: min(error, by_members[name]) for name, error in space.errors(guess, truth).items()}


def _sample(own: Floats, most: int) -> Floats:
    return own[_SEED.derive("judged").permutation(len(own))[:most]]


def _candidates(records: Floats, made_up: Floats, count: int, space: KeySpace) -> NDArray[np.int64]:
    """The nearest made-up ones of each record, by filters: int64[records, count]."""
    seed = _SEED.derive("filters")
    distances = hamming(space.filters(records, seed), space.filters(made_up, seed))
    return np.argpartition(distances, count - 1, axis=1)[:, :count].astype(np.int64)


def _nearest(points: Floats, record: Floats, most: int, space: KeySpace) -> Floats:
    """At most so many ``points`` around a record."""
    if len(points) <= most:
        return points
    return points[np.argpartition(space.expected_distances(record[None], points)[0], most - 1)[:most]]


def _bootstrap(own: Floats, count: int, space: KeySpace) -> Floats:
    """Points that are spread as ``own`` are: float64[count, axes], a smoothed bootstrap.

    Half as smooth as by Silverman's rule, which is for one hill, and keys have several.
    """
    width = 0.5 * len(own) ** (-1 / (own.shape[1] + 4)) * own.std(axis=0)
    drawn = own[_SEED.derive("whose").choices(len(own), count)]
    drawn = drawn + width * _SEED.derive("where").normal(drawn.shape)
    return np.clip(drawn, space.bounds[:, 0], space.bounds[:, 1])
