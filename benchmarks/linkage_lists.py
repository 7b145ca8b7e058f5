"""Measure what a coordinator of a fuzzy linkage reads with a public list, and what protection costs in pairs that are found.

    python -m benchmarks.linkage_lists --data FOLDER --out figures.json     some minutes of CPU

Names are those of febrl (given name and surname), titles those of dblp_acm, places those of benchmarks/linkage_privacy.py.
Filters, distances and attacks are the product's; parties, noise on similarities and messages are left out. Noise of bits is
no part of the product: it is measured to show what it would do. Figures of graph matching are means of two draws of who is
in the table. docs/explanations/privacy/index.md explains every line.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.linkage_privacy import Linkage, Points, made_up, singapore
from vfl_node.crypto.filters.encoding import encode
from vfl_node.crypto.filters.groups import normalise
from vfl_node.crypto.nearest.search import hamming
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.rows import Rows
from vfl_node.job.keys import Encoding, TextKey
from vfl_node.privacy.linkage import graph_matching, registration

NAME = TextKey(kind="text")
FIXED = NAME.model_copy(update={"fixed_ones": True})

Change = Callable[[Rows], Rows]


def rows_of(folder: Path, file: str, delimiter: str = ",") -> list[dict[str, str]]:
    with gzip.open(folder / f"{file}.csv.gz", "rt", encoding="utf-8", newline="") as lines:
        rows = csv.DictReader(lines, skipinitialspace=True, delimiter=delimiter)
        return [{name: cell.strip() for name, cell in row.items()} for row in rows]


def names(folder: Path, file: str = "dataset4a") -> list[str]:
    """Given name and surname of all records of a file of febrl that have either, each once, in the order of the alphabet."""
    every = {f"{row['given_name']} {row['surname']}".strip() for row in rows_of(folder, f"febrl/{file}")}
    return sorted(name for name in every if len(name) >= 4)


def made_up_names(count: int) -> list[str]:
    """Names of syllables, some of which are frequent."""
    rng = np.random.default_rng(1)
    starts = ("b", "d", "f", "k", "l", "m", "n", "r", "s", "t", "v", "sch")
    ends = ("a", "e", "i", "o", "u", "an", "er", "el", "in")
    frequent = 1 / np.arange(1, len(starts) * len(ends) + 1) ** 0.7
    syllables = rng.permutation([start + end for start in starts for end in ends])
    found = set[str]()
    while len(found) < count:
        drawn = rng.choice(syllables, rng.integers(3, 8), p=frequent / frequent.sum())
        found.add("".join(drawn[:-2]) + " " + "".join(drawn[-2:]))
    return sorted(found)


def encoded(texts: Sequence[str], seed: str, key: TextKey = NAME) -> Rows:
    """Filters of texts under a seed."""
    return np.concatenate(list(encode({"text": key}, Encoding(), {"text": texts}, Randomness(seed.encode().ljust(32)))))


def mixed_up(filters: Rows) -> Rows:
    """The bits of each filter in an order of its own: it has as many ones, and nothing in common with others."""
    return np.packbits(np.random.default_rng(3).permuted(np.unpackbits(filters, axis=1), axis=1), axis=1)


def flipped(share: float, seed: int) -> Change:
    """Flips each bit of each filter with this probability, as noise that is drawn once for a record."""

    def change(filters: Rows) -> Rows:
        flips = np.random.default_rng(seed).random((len(filters), 8 * filters.shape[1]), dtype=np.float32) < share
        return filters ^ np.packbits(flips, axis=1)

    return change


def keep(filters: Rows) -> Rows:
    return filters


def recognised(
    every: Sequence[str],
    records: int,
    entries: int,
    seed: int,
    *,
    listed: float = 1.0,
    key: TextKey = NAME,
    change: Change = keep,
) -> float:
    """The share of records in the list that graph matching finds there.

    Args:
        every: texts that differ.
        records: in the table.
        entries: of the list.
        seed: of who is drawn.
        listed: the share of records that stand in the list.
        key: of the filters.
        change: is done to the filters of the records.
    """
    rng = np.random.default_rng(seed)
    order, truth = rng.permutation(len(every)), rng.permutation(entries)[:records]
    entries_of = [every[place] for place in order[:entries]]
    texts = [entries_of[place] for place in truth]
    for absent, record in enumerate(rng.permutation(records)[: round((1 - listed) * records)]):
        texts[record], truth[record] = every[order[entries + absent]], -2
    filters = change(encoded(texts, f"records {seed}", key))
    found = graph_matching.recognise(filters, encoded(entries_of, f"list {seed}", key))
    return float((found == truth)[truth >= 0].mean())


def lengths_told(every: Sequence[str], key: TextKey) -> Iterator[tuple[str, float]]:
    """How well ones, and distances, tell how long texts are: who knows one half of them guesses the other half's lengths."""
    filters = encoded(every, "lengths", key)
    lengths = np.array([len(normalise(text)) for text in every])
    ones = np.unpackbits(filters, axis=1).sum(axis=1).astype(np.float64)
    common = (ones[:, None] + ones - hamming(filters, filters)) / 2
    np.fill_diagonal(common, np.nan)
    known = np.random.default_rng(4).permutation(len(every)) < len(every) / 2
    guess = float(np.median(lengths[known]))
    yield "length within one letter, guessed", float((np.abs(guess - lengths[~known]) <= 1).mean())
    for name, told in (("ones", ones), ("what is in common with others, mean", np.nanmean(common, axis=1))):
        if told.std() > 0:
            slope, at = np.polyfit(told[known], lengths[known], 1)
            off = np.abs(np.rint(slope * told + at) - lengths)[~known]
            yield f"{name}: |r| with the length", abs(float(np.corrcoef(told, lengths)[0, 1]))
            yield f"{name}: length within one letter", float((off <= 1).mean())


@dataclass(frozen=True)
class Pairs:
    """Two tables of texts, and which records are the same.

    Attributes:
        keys: of each column.
        first: columns of the first table.
        second: columns of the second.
        true: int64[pairs, 2], places in both.
    """

    keys: Sequence[TextKey]
    first: Sequence[Sequence[str]]
    second: Sequence[Sequence[str]]
    true: np.ndarray

    def completeness(self, count: int, *, fixed_ones: bool = False, flips: float = 0.0) -> float:
        """The share of true pairs of which the second record is among the ``count`` nearest of the first, ties by half."""
        first, second = (
            flipped(flips, number)(
                np.concatenate(
                    [
                        encoded(texts, f"key {at}", key.model_copy(update={"fixed_ones": fixed_ones}))
                        for at, (key, texts) in enumerate(zip(self.keys, columns, strict=True))
                    ],
                    axis=1,
                )
            )
            for number, columns in enumerate((self.first, self.second))
        )
        apart = hamming(first, second)[self.true[:, 0]]
        true = np.take_along_axis(apart, self.true[:, 1:], axis=1)
        rank = (apart < true).sum(axis=1) + ((apart == true).sum(axis=1) - 1) / 2
        return float((rank < count).mean())


def people(folder: Path, fields: dict[str, TextKey]) -> Pairs:
    """Records of febrl 4a and 4b that have all of these fields; a name of two fields is ``given_name surname``."""
    columns, numbers = [], []
    for file in ("dataset4a", "dataset4b"):
        rows = rows_of(folder, f"febrl/{file}")
        texts = [[" ".join(row[field] for field in names.split()).strip() for names in fields] for row in rows]
        kept = [place for place, cells in enumerate(texts) if all(len(text) >= 4 for text in cells)]
        columns.append([[texts[place][at] for place in kept] for at in range(len(fields))])
        numbers.append([rows[place]["rec_id"].split("-")[1] for place in kept])
    places = {number: place for place, number in enumerate(numbers[1])}
    true = [(place, places[number]) for place, number in enumerate(numbers[0]) if number in places]
    first, second = columns
    return Pairs(list(fields.values()), first, second, np.array(true))


def papers(folder: Path) -> Pairs:
    """Titles of dblp_acm."""
    first, second, true = (rows_of(folder, f"dblp_acm/{file}", "%") for file in ("dblp", "acm", "gt"))
    places = [{row["id"]: place for place, row in enumerate(rows)} for rows in (first, second)]
    pairs = [[place_of[number] for place_of, number in zip(places, row.values(), strict=True)] for row in true]
    key = TextKey(kind="text", length=64)
    return Pairs([key], [[row["title"] for row in first]], [[row["title"] for row in second]], np.array(pairs))


Line = tuple[str, str, float]
"""What, setting, figure."""

SIZES = ((150, 150), (150, 210), (300, 600), (500, 600))
FLIPS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4)


def matched(every: Sequence[str], records: int, entries: int, **how: object) -> float:
    return float(np.mean([recognised(every, records, entries, seed, **how) for seed in range(2)]))  # type: ignore[arg-type]


def placed(points: Points) -> Iterator[tuple[str, float]]:
    """Median errors in metres; 600 records of the active party are the map, and its others the list."""
    linkage = Linkage(points, 50)
    low, high = linkage.space.bounds.T
    lists = {
        "other places": points.active[600:],
        "the records' places": points.active[:600],
        "the other party's places": points.passive,
        "places spread evenly": low + np.random.default_rng(13).uniform(size=(1400, len(low))) * (high - low),
    }
    for name, listed in lists.items():
        guess = registration.locate(linkage.active[:600], listed, linkage.space)
        yield f"600 records, a list of {name}", points.error(guess, points.active[:600])
    guess = registration.locate(np.concatenate([linkage.active[:600], linkage.passive]), points.active[600:], linkage.space)
    yield "the other party's records on this map", points.error(guess[600:], points.passive)


def figures(folder: Path) -> Iterator[Line]:
    for called, points in (("Singapore", singapore(folder)), ("made up", made_up())):
        for setting, figure in placed(points):
            yield "registration", f"{called}: {setting}", figure
    every = names(folder)
    for key, called in ((NAME, "free ones"), (FIXED, "fixed ones")):
        for records, entries in SIZES:
            yield "graph matching", f"{records} of {entries}, {called}", matched(every, records, entries, key=key)
        for what, figure in lengths_told(every[::3], key):
            yield "lengths", f"{called}: {what}", figure
    for listed in (0.7, 0.4):
        yield "graph matching", f"300 of 600, {listed:.0%} of them in the list", matched(every, 300, 600, listed=listed)
    yield "graph matching", "150 of 600", matched(every, 150, 600)
    for key, called in ((NAME, "free ones"), (FIXED, "fixed ones")):
        found = matched(every, 150, 150, key=key, change=mixed_up)
        yield "graph matching", f"150 of 150, {called}, bits of each filter mixed up", found
    both: dict[str, Pairs] = {
        "febrl name": people(folder, {"given_name surname": TextKey(kind="text", length=16)}),
        "febrl name, birth, postcode": people(
            folder,
            {
                "given_name surname": TextKey(kind="text", length=16),
                "date_of_birth": TextKey(kind="text", length=8),
                "postcode": TextKey(kind="text", length=4, hashes=5),
            },
        ),
        "dblp_acm title": papers(folder),
    }
    for name, pairs in both.items():
        for count in (1, 3):
            yield "completeness", f"{name}, K = {count}, free ones", pairs.completeness(count)
            yield "completeness", f"{name}, K = {count}, fixed ones", pairs.completeness(count, fixed_ones=True)
    for share in FLIPS:
        for name, pairs in both.items():
            yield "completeness", f"{name}, K = 1, bits flipped {share:g}", pairs.completeness(1, flips=share)
        for records, entries in SIZES:
            found = matched(every, records, entries, change=flipped(share, 9))
            yield "graph matching", f"{records} of {entries}, bits flipped {share:g}", found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the shared data sets: febrl and dblp_acm are read")
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    arguments = parser.parse_args()
    found = []
    for what, setting, figure in figures(arguments.data):
        print(f"{what:16} {setting:70} {figure:.4g}", flush=True)
        found.append({"what": what, "setting": setting, "figure": figure})
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
