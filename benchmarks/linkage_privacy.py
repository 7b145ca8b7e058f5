"""Measure what each party of a fuzzy linkage finds out: every attack of vfl_node/privacy/linkage, with its controls.

    python -m benchmarks.linkage_privacy                                   made-up points
    python -m benchmarks.linkage_privacy --data FOLDER --out figures.json  flats and schools of Singapore, too: a minute of CPU

Filters, search, noise and order are the product's; parties and messages are left out. Seeds are fixed. Errors are medians
of the distance between the guess and the truth, in metres; made-up points lie on a square of 40 km.
docs/explanations/privacy/linkage.md explains every line.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.linkage import anchors, counts, frequency, greedy, membership, partition, repeated
from experiments.linkage.repeated import Release
from vfl_node.alignment.linkage.similarity import DistanceScale, PairDraws, tau_of
from vfl_node.crypto.nearest.search import nearest
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.rows import Rows
from vfl_node.engines.contract import Inline
from vfl_node.job.keys import Encoding, NumberKey, filter_bits
from vfl_node.privacy.linkage import cells, multilateration
from vfl_node.privacy.linkage.space import Floats, KeySpace

SEED, SECRET = Randomness(b"seed of the data parties".ljust(32)), Randomness(b"secret of the coordinator".ljust(32))
DEGREE_M = 111_195.0
SIDE_M = 40_000.0
RECORDS, PUBLIC = 2000, 165

SINGAPORE = {
    "lat": NumberKey(kind="number", low=1.2, high=1.5, reach=0.05),
    "lon": NumberKey(kind="number", low=103.6, high=104.1, reach=0.05),
}
SQUARE = {name: NumberKey(kind="number", low=0, high=1, reach=0.15) for name in ("x", "y")}


@dataclass(frozen=True, eq=False)
class Points:
    """Where the records of both data parties lie.

    Attributes:
        keys: of the job.
        metres: what a unit of each axis is, float64[axes].
        active: float64[n_A, axes].
        passive: float64[n_B, axes].
        counts: int64[n_A], how many records the active party has with the keys of each of these.
    """

    keys: dict[str, NumberKey]
    metres: Floats
    active: Floats
    passive: Floats
    counts: NDArray[np.int64]

    def error(self, guess: Floats, truth: Floats) -> float:
        """Median distance in metres."""
        return float(np.median(np.linalg.norm((guess - truth) * self.metres, axis=1)))


def made_up(active: int = RECORDS, passive: int = PUBLIC) -> Points:
    """Towns of different sizes on a square, with records of both parties in them."""
    rng = np.random.default_rng(1)
    towns, spread = rng.uniform(0.1, 0.9, (12, 2)), rng.uniform(0.02, 0.1, (12, 1))

    def points(count: int) -> Floats:
        town = rng.integers(0, 12, count)
        return np.clip(towns[town] + spread[town] * rng.normal(size=(count, 2)), 0, 1)

    counts = 1 + rng.geometric(0.2, active)
    return Points(dict(SQUARE), np.array([SIDE_M, SIDE_M]), points(active), points(passive), counts)


def singapore(folder: Path, active: int = RECORDS) -> Points:
    """Sold flats (by address, the first coordinates of each) and primary schools."""
    hdb = folder / "hdb_schools"
    places: dict[str, tuple[float, float]] = {}
    for row in _read(hdb / "flat_coordinates_clean.csv.gz"):
        places.setdefault(row["address"], (float(row["LATITUDE"]), float(row["LONGITUDE"])))
    sales: dict[str, int] = {}
    (sold,) = hdb.glob("resale-flat-prices-*.csv.gz")
    for row in _read(sold):
        address = f"{row['block']} {row['street_name']}"
        if address in places:
            sales[address] = sales.get(address, 0) + 1
    schools = np.array([(float(row["lat"]), float(row["lon"])) for row in _read(hdb / "fedsim_school_clean.csv.gz")])
    known = sorted(sales)
    chosen = [known[i] for i in np.random.default_rng(2).permutation(len(known))[:active]]
    metres = np.array([DEGREE_M, DEGREE_M * np.cos(np.radians(1.35))])
    flats = np.array([places[address] for address in chosen])
    return Points(dict(SINGAPORE), metres, flats, schools, np.array([sales[address] for address in chosen]))


def _read(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
        yield from csv.DictReader(lines)


class Linkage:
    """What the coordinator computes of these points, and what the parties get.

    Args:
        points: of both data parties.
        candidates: K.
        epsilon: of the encoding, by which filters get their length.
        seed: of the filters.
    """

    def __init__(self, points: Points, candidates: int, epsilon: float = 0.06, seed: Randomness = SEED) -> None:
        self.points, self.seed = points, seed
        self.space = KeySpace(points.keys, Encoding(epsilon=epsilon))
        self.active, self.passive = (self.space.filters(own, seed) for own in (points.active, points.passive))
        blocks = list(nearest(self.active, self.passive, candidates, Inline()))
        self.rows = np.concatenate([block.rows for block in blocks])
        self.distances = np.concatenate([block.distances for block in blocks])
        scale = DistanceScale.from_distances([self.distances])
        assert scale is not None
        self.scale = scale

    @property
    def width(self) -> int:
        """Bytes of a filter."""
        return filter_bits(self.space.keys, self.space.encoding) // 8

    @cached_property
    def true(self) -> Floats:
        """Distances of all candidate pairs, float64[n_B, n_A]; NaN of the others."""
        return self._arrange_by_pair(self.rows, self.distances)

    def release(
        self, sigma: float, *, secret: Randomness = SECRET, terms: bytes = b"", scale: DistanceScale | None = None
    ) -> Release:
        """Similarities by pair, float64[n_B, n_A], once the active party has found which are of one record."""
        draws, scale = PairDraws(secret, terms), scale or self.scale
        rows, similarities = draws.perturb(
            draws.marks(self.active), draws.marks(self.passive), self.rows, self.distances, scale, sigma
        )
        return Release(self._arrange_by_pair(rows, similarities), scale.mean, scale.deviation, sigma)

    def _arrange_by_pair(self, rows: NDArray[np.int32], values: NDArray[np.float32] | NDArray[np.int32]) -> Floats:
        pairs = np.full((len(self.passive), len(self.active)), np.nan)
        pairs[: int(rows.max()) + 1] = partition.record_similarities(values.astype(np.float64), rows.astype(np.int64))
        return pairs


def few_of_each(pairs: Floats, most: int) -> Floats:
    """At most ``most`` similarities of each record, drawn at random; others are NaN. Records without any are left in."""
    rng, few = np.random.default_rng(3), np.full_like(pairs, np.nan)
    for record, values in enumerate(pairs):
        known = rng.permutation(np.flatnonzero(~np.isnan(values)))[:most]
        few[record, known] = values[known]
    return few


def found_by_active(linkage: Linkage, sigma: float, most: int, seed: Randomness | None = None) -> float:
    """The median error of multilateration, of all records with a similarity; ``seed`` is another one than the true one."""
    release = linkage.release(sigma)
    few = few_of_each(release.similarities, most)
    used = np.flatnonzero(~np.isnan(few).all(axis=1))
    own = linkage.active if seed is None else linkage.space.filters(linkage.points.active, seed)
    guess = multilateration.locate(few[used], own, release.mean, release.deviation, linkage.space, seed or linkage.seed)
    return linkage.points.error(guess, linkage.points.passive[used])


def found_by_membership(linkage: Linkage, *, mixed_up: bool = False) -> float:
    """The median error of membership, of all records that are a candidate; or by the active records that have another one."""
    members = ~np.isnan(linkage.true)
    used = np.flatnonzero(members.any(axis=1))
    chosen = np.random.default_rng(11).permutation(used) if mixed_up else used
    guess = membership.locate(members[chosen], linkage.points.active)
    return linkage.points.error(guess, linkage.points.passive[used])


def counted(reach: float, records: int = 8) -> tuple[int, float]:
    """How many of a few records on a line the active party finds by counts of candidates, and how far off the farthest is."""
    rng = np.random.default_rng(12)
    keys = {"u": NumberKey(kind="number", low=0, high=100, reach=reach)}
    points = Points(keys, np.ones(1), rng.uniform(0, 100, (400, 1)), rng.uniform(0, 100, (records, 1)), np.ones(400, dtype=int))
    found = counts.locate((Linkage(points, records).rows >= 0).sum(axis=1), points.active[:, 0], reach)
    truth = np.sort(points.passive[:, 0])
    return len(found), float(np.abs(found - truth).max()) if len(found) == records else float("nan")


def greedy_success(deviation: float, sigma: float, draws: int = 200_000) -> tuple[float, float]:
    """How often the greedy attack finds a distance, ρ being normal, and its standard error."""
    rng = np.random.default_rng(4)
    mean = -40 * deviation
    distances = np.rint(-(deviation * rng.normal(size=draws) + mean)).astype(np.int64)
    similarities = (-distances - mean) / deviation + sigma * rng.normal(size=draws)
    share = float((greedy.guess(similarities, mean, deviation, sigma) == distances).mean())
    return share, float(np.sqrt(share * (1 - share) / draws))


def nearest_found(linkage: Linkage, releases: list[Release]) -> float:
    """How often the least mean distance of a record's candidates is that of a nearest one."""
    guess = np.where(np.isnan(linkage.true), np.inf, repeated.average(releases)).argmin(axis=0)
    truth = np.where(np.isnan(linkage.true), np.inf, linkage.true)
    return float((truth[guess, np.arange(len(guess))] == truth.min(axis=0)).mean())


def exact_share(linkage: Linkage, first: Release, second: Release) -> float:
    """How many distances of candidate pairs two jobs give to the bit."""
    both = ~np.isnan(linkage.true) & ~np.isnan(first.similarities) & ~np.isnan(second.similarities)
    return float((np.rint(repeated.subtract(first, second))[both] == linkage.true[both]).mean())


def jobs(linkage: Linkage, count: int, *, fresh: bool, sigma: float = 0.4) -> list[Release]:
    """Releases of ``count`` jobs: with noise that is drawn in each, or the product's."""
    return [linkage.release(sigma, secret=SECRET.derive(f"job {job}") if fresh else SECRET) for job in range(count)]


def embeddings_of(rows: NDArray[np.int32], records: int, dropout: float = 0.0) -> NDArray[np.float32]:
    """What a bottom with one hidden layer makes of candidates in one forward pass, each place with dropout of its own."""
    rng = np.random.default_rng(5)
    columns, weights = rng.normal(size=(records, 6)), rng.normal(size=(6, 16))
    hidden = np.maximum(columns @ weights, 0)[rows]
    kept = rng.uniform(size=hidden.shape) >= dropout
    return np.asarray((hidden * kept) @ rng.normal(size=(16, 8)), dtype=np.float32)


def frequency_found(points: Points, filters: Rows, *, known: bool, equal: bool = False) -> float:
    """How many records' keys the coordinator recognises by the frequencies of keys, or by others, or where all are equal."""
    counts = np.ones_like(points.counts) if equal else points.counts
    truth = np.repeat(np.arange(len(counts)), counts)
    public = counts if known else np.random.default_rng(6).permutation(counts)
    return float((frequency.recognise(filters[truth], public.astype(np.float64)) == truth).mean())


Line = tuple[str, str, float]
"""Attack, setting, figure."""


def figures(points: Points) -> Iterator[Line]:
    """All attacks on these points, one after the other."""
    for attack in (_greedy, _active, _repeated, _passive, _coordinator):
        yield from attack(points)


def _greedy(points: Points) -> Iterator[Line]:
    for deviation, sigma in ((10.0, 0.4), (20.0, 1.0), (50.0, 1.0)):
        share, error = greedy_success(deviation, sigma)
        yield "greedy", f"σ0 {deviation:g}, σ {sigma:g}: τ", tau_of(sigma, deviation)
        yield "greedy", f"σ0 {deviation:g}, σ {sigma:g}: found", share
        yield "greedy", f"σ0 {deviation:g}, σ {sigma:g}: standard error", error


def _active(points: Points) -> Iterator[Line]:
    for epsilon in (0.123, 0.06, 0.03):
        linkage = Linkage(points, 50, epsilon)
        yield "multilateration", f"{linkage.width} B: τ", tau_of(0.4, linkage.scale.deviation)
        yield "multilateration", f"{linkage.width} B, 200 similarities", found_by_active(linkage, 0.4, 200)
    linkage = Linkage(points, 50)
    for most in (1, 5, 20, 50, 1000):
        yield "multilateration", f"{linkage.width} B, {most} similarities", found_by_active(linkage, 0.4, most)
    for sigma in (0.0, 1.0, 3.0, 50.0):
        yield (
            "multilateration",
            f"{linkage.width} B, 200 similarities, σ {sigma:g}",
            found_by_active(linkage, sigma, 200),
        )
    for count in (1, 5, 20, 50):
        whole = Linkage(points, count)
        median = int(np.median((~np.isnan(whole.true)).sum(axis=1)))
        yield "multilateration", f"K = {count}: similarities of a record, median", float(median)
        yield "multilateration", f"K = {count}, all of them", found_by_active(whole, 0.4, len(points.active))
        yield "membership", f"K = {count}", found_by_membership(whole)
        yield "membership", f"K = {count}, mixed up", found_by_membership(whole, mixed_up=True)
    for reach in (3.0, 50.0):
        found, error = counted(reach)
        yield "counts", f"8 records on 0…100, reach {reach:g}: found", float(found)
        if found:
            yield "counts", f"8 records on 0…100, reach {reach:g}: largest error", error
    yield "multilateration", "without the seed", found_by_active(linkage, 0.4, 200, Randomness(bytes(32)))
    shuffled = np.random.default_rng(7).permutation(points.passive)
    yield "multilateration", "chance: another record", points.error(shuffled, points.passive)
    truth = linkage.rows.astype(np.int64)
    for dropout in (0.0, 0.3):
        groups = partition.partition(embeddings_of(linkage.rows, len(points.passive), dropout))
        yield "partition", f"dropout {dropout:g}", partition.agreement(groups, truth)


def _repeated(points: Points) -> Iterator[Line]:
    linkage = Linkage(points, 50)
    for fresh in (True, False):
        what = "drawn in each job" if fresh else "as in the product"
        for count in (1, 3, 5, 10, 30):
            yield "nearest of 50", f"noise {what}, {count} jobs", nearest_found(linkage, jobs(linkage, count, fresh=fresh))
    allowed = [linkage.release(0.4, terms=bytes([number])) for number in range(5)]
    yield "nearest of 50", "the product, five terms (budgets.linkages)", nearest_found(linkage, allowed)
    yield "nearest of 50", "chance", 1 / 50
    fewer = Linkage(points, 40)
    for name, second, sigma in (("two σ", linkage, 0.5), ("two K, so two scales", fewer, 0.4)):
        for keyed in (False, True):
            terms = b"other" if keyed else b""
            share = exact_share(linkage, linkage.release(0.4), second.release(sigma, terms=terms))
            yield "subtraction", f"{name}, noise {'of the terms, too' if keyed else 'of the pair alone'}", share


def _passive(points: Points) -> Iterator[Line]:
    few = slice(0, 500)
    for count in (1, 5, 50):
        linkage = Linkage(points, count)
        guess = cells.locate(linkage.rows[few].astype(np.int64), points.passive, linkage.space, SEED)
        yield "candidates", f"K = {count}", points.error(guess, points.active[few])
        drawn = np.random.default_rng(8).permuted(np.tile(np.arange(len(points.passive)), (500, 1)), axis=1)[:, :count]
        guess = cells.locate(drawn, points.passive, linkage.space, SEED)
        yield "candidates", f"K = {count}, drawn at random", points.error(guess, points.active[few])


def _coordinator(points: Points) -> Iterator[Line]:
    linkage = Linkage(points, 50)
    for count in (3, 10, 30, len(points.passive)):
        chosen = np.random.default_rng(9).permutation(len(points.passive))[:count]
        for shuffled in (False, True):
            keys = points.passive[np.random.default_rng(10).permutation(chosen) if shuffled else chosen]
            guess = anchors.locate(linkage.active[:500], linkage.passive[chosen], keys, linkage.space)
            name = f"{count} known records{', mixed up' if shuffled else ''}"
            yield "anchors", name, points.error(guess, points.active[:500])
    yield "frequency", "known", frequency_found(points, linkage.active, known=True)
    yield "frequency", "those of other keys", frequency_found(points, linkage.active, known=False)
    yield "frequency", "all keys as frequent", frequency_found(points, linkage.active, known=True, equal=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the shared data sets, of which hdb_schools is read")
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    arguments = parser.parse_args()
    sets: dict[str, Callable[[], Points]] = {"made-up": made_up}
    if arguments.data:
        sets["Singapore"] = lambda: singapore(arguments.data)
    found = []
    for name, points in sets.items():
        for attack, setting, figure in figures(points()):
            print(f"{name:10} {attack:16} {setting:60} {figure:.4g}", flush=True)
            found.append({"points": name, "attack": attack, "setting": setting, "figure": figure})
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
