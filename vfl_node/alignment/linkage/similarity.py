"""Similarities: standardised negative distances with noise, and how much noise keeps the greedy attack's success below τ.

::

    ρ_ij = (−d_ij − μ0) / σ0      d: Hamming distance; μ0, σ0: mean and deviation of −d over all candidate pairs      eq. 1
    s_ij = ρ_ij + z_ij            z_ij ~ N(0, σ²)                                                                    eq. 2
    τ    = erf(√(σ² + 1) / (2√2·σ·σ0))                                                                               Theorem 1

τ bounds the share of filters that an attacker guesses right who takes the most probable distance from one similarity, and any
filter at that distance. It falls with σ0, so with longer filters, whatever those tell: it is no bound on how exactly keys can
be found. Its inversion: y = 2√2·σ0·erfinv(τ), σ = 1/√(y² − 1), which needs y > 1, that is τ > erf(1/(2√2·σ0)).

Deviations from the paper. Noise is a function of the two filters, of the job's terms and of a secret that the coordinator
keeps (:class:`PairDraws`): noise that is drawn again in each job averages out. The order of a record's candidates is random, as
one by distance, or by similarity, would tell ranks without noise. It depends on the record's place, too: one order for equal
filters would show the passive party which records have equal keys. μ0 and σ0 are those of the first linkage on the same terms.
Were they computed again after one record has changed, the change of the similarity of any other pair, whose noise is the same,
would give its distance.

Source: Wu, Li and He 2021, arXiv 2106.06312, 4.3, 5.2 and appendix A.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness, normal_of
from vfl_node.crypto.rows import Rows

NONE = -1
"""In place of a candidate where there are fewer than K; its similarity is 0."""

DIGEST_BYTES = 32


@dataclass(frozen=True)
class DistanceScale:
    """Mean and deviation of the negative distances of all candidate pairs: μ0 and σ0; 0 and 1 where all distances are 0."""

    mean: float
    deviation: float

    @classmethod
    def from_distances(cls, blocks: Iterable[NDArray[np.int32]]) -> DistanceScale | None:
        """The scale of the distances in ``blocks``, −1 where there is no candidate; None without any candidate.

        Sums are of integers, so the result does not depend on the blocks.
        """
        count = total = squares = 0
        for block in blocks:
            distances = block[block >= 0].astype(np.int64)
            count += len(distances)
            total += int(distances.sum())
            squares += int((distances * distances).sum())
        return cls.from_sums(count, total, squares)

    @classmethod
    def from_sums(cls, count: int, total: int, squares: int) -> DistanceScale | None:
        """The scale of so many distances, by their sum and that of their squares; None without any."""
        if not count:
            return None
        return cls(-total / count, math.sqrt((count * squares - total * total) / count**2))


def standardise(distances: NDArray[Any], scale: DistanceScale) -> NDArray[np.float64]:
    """ρ of each distance."""
    return np.asarray((0.0 - distances - scale.mean) / scale.deviation, dtype=np.float64)


def tau_of(sigma: float, deviation: float) -> float:
    """τ of noise with deviation ``sigma`` where distances have ``deviation``, σ0; 1 without noise."""
    if sigma == 0:
        return 1.0
    return math.erf(math.sqrt(sigma * sigma + 1) / (2 * math.sqrt(2) * sigma * deviation))


def least_tau(deviation: float) -> float:
    """τ_min: what no noise gets τ below."""
    return math.erf(1 / (2 * math.sqrt(2) * deviation))


def sigma_of(tau: float, deviation: float) -> float:
    """The smallest noise by which τ is ``tau``.

    Raises:
        ValueError: no noise is enough, as τ is not above :func:`least_tau`.
    """
    y = 2 * math.sqrt(2) * deviation * _erfinv(tau)
    if y <= 1 or tau <= least_tau(deviation):
        raise ValueError("no noise is enough")
    return 1 / math.sqrt((y - 1) * (y + 1))


def _erfinv(tau: float) -> float:
    """The inverse of erf: a quantile, and where τ is small, which costs digits there, a step of Newton."""
    x = -NormalDist().inv_cdf((1 - tau) / 2) / math.sqrt(2)
    return x - (math.erf(x) - tau) * math.sqrt(math.pi) / 2 * math.exp(x * x) if tau < 0.5 else x


class PairDraws:
    """What is random about pairs of filters: the same in every job on the same terms, whatever else is in the two sets.

    Args:
        secret: of the coordinator for these two parties, the same in every job. Nothing of it is consumed.
        terms: stand for all of the job on which similarities depend. Under other terms everything is drawn anew: the same
            noise on two scales could be subtracted.
    """

    def __init__(self, secret: Randomness, terms: bytes) -> None:
        self._key = secret.derive(f"pairs {terms.hex()}").bytes(32)

    def marks(self, filters: Rows) -> list[bytes]:
        """What stands for each filter: equal for equal ones. Cost: 1 ns a byte."""
        return [blake2b(row.tobytes(), digest_size=DIGEST_BYTES, key=self._key, person=b"filter").digest() for row in filters]

    def perturb(
        self,
        own: Sequence[bytes],
        theirs: Sequence[bytes],
        rows: NDArray[np.int32],
        distances: NDArray[np.int32],
        scale: DistanceScale,
        sigma: float,
        start: int = 0,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The candidates of some records in their secret order, and how similar they are with noise.

        Args:
            own: k marks of the records' filters.
            theirs: marks of all filters of the other party.
            rows: int32[k, K], candidates in any order; :data:`NONE` where there are no more.
            distances: int32[k, K], bits that differ.
            scale: μ0 and σ0.
            sigma: of the noise.
            start: place of the first of these records.

        Returns:
            Candidates int32[k, K] with :data:`NONE` at the end, and similarities float32[k, K], 0 there. Both orders are the
            same. Candidates with equal filters have equal similarities.

        Cost: about 2 µs a pair.
        """
        found = rows != NONE
        words = np.zeros((*rows.shape, 2), dtype=np.uint64)
        words[found] = self._words(own, theirs, rows, start)
        similarities = standardise(distances, scale)
        if sigma:
            similarities += sigma * normal_of(words[..., 0].ravel()).reshape(rows.shape)
        small = encode_similarities(similarities, found, scale)
        order = np.lexsort((rows, words[..., 1], ~found), axis=1)
        return np.take_along_axis(rows, order, axis=1), np.take_along_axis(small, order, axis=1)

    def _words(self, own: Sequence[bytes], theirs: Sequence[bytes], rows: NDArray[np.int32], start: int) -> NDArray[np.uint64]:
        """Two uniform words of each pair, uint64[pairs, 2], in the order of ``rows``: of its filters, and of its place, too."""
        key, words = self._key, list[bytes]()
        for place, (mark, candidates) in enumerate(zip(own, rows.tolist(), strict=True), start):
            at = b"%d " % place + mark
            for row in candidates:
                if row != NONE:
                    other = theirs[row]
                    words.append(blake2b(mark + other, digest_size=8, key=key, person=b"pair").digest())
                    words.append(blake2b(at + other, digest_size=8, key=key, person=b"order").digest())
        return np.frombuffer(b"".join(words), dtype="<u8").reshape(-1, 2).astype(np.uint64)


def encode_similarities(
    similarities: NDArray[np.float64], found: NDArray[np.bool_], scale: DistanceScale
) -> NDArray[np.float32]:
    """Similarities as the active party has them, float32[…]: 0 where there is no candidate, and nowhere else."""
    small = similarities.astype(np.float32)
    if scale.mean:  # else all candidates are equal, and that there is one does not show
        small[found & (small == 0)] = np.finfo(np.float32).tiny
    small[~found] = 0
    return small


class ReuseCount:
    """Counts the different filters that have each record as a candidate. Equal ones have equal similarities: they count once.

    Args:
        records: how many there are.
    """

    def __init__(self, records: int) -> None:
        self._counts = np.zeros(records, dtype=np.int64)
        self._seen: set[bytes] = set()

    def add(self, marks: Sequence[bytes], rows: NDArray[np.int32]) -> None:
        """The candidates int32[k, K] of the k filters with these ``marks``."""
        new = []
        for at, mark in enumerate(marks):
            if mark not in self._seen:
                self._seen.add(mark)
                new.append(at)
        chosen = rows[new]
        self._counts += np.bincount(chosen[chosen != NONE], minlength=len(self._counts))

    @property
    def most(self) -> int:
        """The largest number."""
        return int(self._counts.max(initial=0))

    @property
    def median(self) -> float:
        """The median number, over all records."""
        return float(np.median(self._counts)) if len(self._counts) else 0.0
