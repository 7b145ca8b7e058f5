"""Keys of a job as points, for attacks that look for where a record lies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.filters.encoding import encode
from vfl_node.crypto.filters.values import DAY_S, KeyValues, bounds, numbers_of
from vfl_node.crypto.nearest.search import hamming
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.rows import Rows
from vfl_node.job.keys import DateKey, Encoding, Key, PlaceKey, TextKey

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class KeySpace:
    """Points float64[n, axes] of keys that are numbers (one axis), dates (one, in days) or places (two, in degrees).

    Axes follow each other by the names of the keys.

    Args:
        keys: of the job, without texts.
        encoding: of the job.

    Raises:
        ValueError: a key is a text, which lies nowhere; or there are none.
    """

    keys: Mapping[str, Key]
    encoding: Encoding

    def __post_init__(self) -> None:
        if not self.keys or any(isinstance(key, TextKey) for key in self.keys.values()):
            raise ValueError("only numbers, dates and places are points")

    @property
    def bounds(self) -> Floats:
        """Least and greatest value of each axis, float64[axes, 2]."""
        return np.concatenate([bounds(key) for _, key in sorted(self.keys.items())])

    def points(self, columns: Mapping[str, KeyValues]) -> Floats:
        """Those of records with these columns of keys."""
        return np.concatenate([numbers_of(key, columns[name]) for name, key in sorted(self.keys.items())], axis=1)

    def filters(self, points: Floats, seed: Randomness) -> Rows:
        """The filters of points, as who knows the seed makes them: uint8[n, bits/8]."""
        columns, axis = dict[str, KeyValues](), 0
        for name, key in sorted(self.keys.items()):
            if isinstance(key, PlaceKey):
                columns[name] = points[:, axis : axis + 2]
                axis += 2
            else:
                columns[name] = points[:, axis] * (DAY_S if isinstance(key, DateKey) else 1)
                axis += 1
        return np.concatenate(list(encode(self.keys, self.encoding, columns, seed)))

    def expected_distances(self, points: Floats, others: Floats) -> Floats:
        """Mean Hamming distances over all seeds, as the public terms of a job give them: float64[n, others].

        2·min(|x − y|, 2t) / (high − low + 2t) of the bits of each axis (:mod:`vfl_node.crypto.filters.pivots`).
        """
        distances = np.zeros((len(points), len(others)))
        for axis, (unit, span, reach) in enumerate(self._axes()):
            apart = np.abs(points[:, axis, None] - others[None, :, axis]) * unit
            share = 2 * np.minimum(apart, 2 * reach) / (span + 2 * reach)
            distances += self.encoding.pivots(span, reach) * share
        return distances

    @property
    def reaches(self) -> tuple[float, ...]:
        """The reach of each axis in its own unit: degrees for places."""
        return tuple(reach / unit for unit, _, reach in self._axes())

    def axis_distances(self, filters: Rows) -> Iterator[tuple[Floats, float]]:
        """For each axis how far apart any two records are along it, as the bits of this axis tell, and its reach.

        float64[n, n], and the reach, both in the unit of points; two reaches also stand for more. Needs no seed: where the
        bits of an axis stand is public.
        """
        start = 0
        for unit, span, reach in self._axes():
            pivots = self.encoding.pivots(span, reach)
            part = np.ascontiguousarray(filters[:, start // 8 : (start + pivots) // 8])
            start += pivots
            yield hamming(part, part).astype(np.float64) * ((span + 2 * reach) / (2 * pivots * unit)), reach / unit

    def errors(self, guess: Floats, truth: Floats) -> dict[str, float]:
        """Key → median distance of guess and truth, in its own unit: days for a date, metres for a place."""
        found, axis = dict[str, float](), 0
        for name, key in sorted(self.keys.items()):
            units = key.metres if isinstance(key, PlaceKey) else (1.0,)
            part = slice(axis, axis + len(units))
            found[name] = float(np.median(np.linalg.norm((guess[:, part] - truth[:, part]) * units, axis=1)))
            axis += len(units)
        return found

    def _axes(self) -> list[tuple[float, float, float]]:
        """What a unit of each axis is in the unit of its reach, its span and its reach."""
        axes = list[tuple[float, float, float]]()
        for _, key in sorted(self.keys.items()):
            if isinstance(key, PlaceKey):
                axes += [(unit, span, key.reach) for unit, span in zip(key.metres, key.spans, strict=True)]
            else:
                assert not isinstance(key, TextKey)
                axes.append((1.0, float(key.span), key.reach))
        return axes


def grid(limits: Floats, most: int) -> Floats:
    """At most ``most`` points, evenly spread within ``limits`` float64[axes, 2], the limits among them."""
    steps = max(2, int(most ** (1 / len(limits)) + 1e-9))
    axes = np.meshgrid(*(np.linspace(low, high, steps) for low, high in limits), indexing="ij")
    return np.stack([axis.ravel() for axis in axes], axis=1)
