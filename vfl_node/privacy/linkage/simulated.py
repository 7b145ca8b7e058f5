"""How exactly a peer would locate a party's own records, in a simulation that needs nothing of the peer.

No party can try an attack on its own records, as that needs the peer's keys. So records that are made up take the place of the
peer's: they are spread as this party's own are. An active party judges the sets of candidates (``cells``), a
passive one the similarities of its records (``multilateration``). If the peer's records lie closer together than these, or it
knows more, it locates better.

What is drawn here is no secret, and the seed is always the same: so the same records give the same figures in every job.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vfl_node.crypto.nearest.search import hamming
from vfl_node.crypto.randomness import Randomness
from vfl_node.privacy.linkage import cells, multilateration
from vfl_node.privacy.linkage.space import Floats, KeySpace

MOST = 1024
"""Records that are made up at most; where the peer has more, it locates more exactly."""

_JUDGED_ACTIVE, _JUDGED_PASSIVE = 200, 40
_FEWEST = 8  # records around a judged one, so that there is something on each side
_GRID_BYTES, _GRID_MOST = 1 << 28, 20_000
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

    Cost: up to 20,000 filters, and their distances to 1,024 others: about 1 s with filters of 2 kB.
    """
    made_up = _like(own, min(others, MOST), space)
    judged = own[_SEED.derive("judged").permutation(len(own))[:_JUDGED_ACTIVE]]
    count = max(1, round(candidates * len(made_up) / others))
    seed = _SEED.derive("filters")
    filters = space.filters(made_up, seed)
    distances = hamming(space.filters(judged, seed), filters)
    rows = np.argpartition(distances, count - 1, axis=1)[:, :count].astype(np.int64)
    points = min(_GRID_MOST, _GRID_BYTES // filters.shape[1])
    return space.errors(cells.located(rows, made_up, space, seed, most=points), judged)


def passive_errors(own: Floats, others: int, uses: int, sigma: float, space: KeySpace) -> Mapping[str, float]:
    """How far from the truth the active party places the passive party's records: key → median error.

    Args:
        own: float64[n, axes], the passive party's records.
        others: how many records the active party has.
        uses: of how many of these a record is a candidate: the nearest ones are taken.
        sigma: σ.
        space: of the job's keys.

    Returns:
        As :func:`active_errors`.

    Cost: some 10,000 filters, and their distances to up to 1,024 others.
    """
    made_up = _like(own, min(others, MOST), space)
    judged = own[_SEED.derive("judged").permutation(len(own))[:_JUDGED_PASSIVE]]
    seed = _SEED.derive("filters")
    filters = space.filters(made_up, seed)
    distances = hamming(space.filters(judged, seed), filters).astype(np.float64)
    around = min(len(made_up), max(_FEWEST, round(uses * len(made_up) / others)))
    near = np.argsort(distances, axis=1, kind="stable")[:, :around]
    apart = np.take_along_axis(distances, near, axis=1)
    deviation = max(float(apart.std()), 1.0)
    noise = sigma * _SEED.derive("noise").normal(apart.shape) * np.sqrt(around / uses)  # of as many similarities as there are
    similarities = np.full_like(distances, np.nan)
    np.put_along_axis(similarities, near, noise - apart / deviation, axis=1)
    return space.errors(multilateration.located(similarities, filters, 0.0, deviation, space, seed), judged)


def _like(own: Floats, count: int, space: KeySpace) -> Floats:
    """Points that are spread as ``own`` are: float64[count, axes], a smoothed bootstrap (Silverman's rule)."""
    width = len(own) ** (-1 / (own.shape[1] + 4)) * own.std(axis=0)
    drawn = own[_SEED.derive("whose").choices(len(own), count)]
    drawn = drawn + width * _SEED.derive("where").normal(drawn.shape)
    return np.clip(drawn, space.bounds[:, 0], space.bounds[:, 1])
