"""Measure what a coordinator of a fuzzy linkage reads from texts alone, and what protection costs in pairs that are found.

    python -m benchmarks.linkage_texts --data FOLDER --out figures.json     two minutes of CPU

Names are those of febrl (given name and surname), titles those of dblp_acm; filters, search and attacks are the product's.
Seeds are fixed; a figure of several says of how many it is the mean. docs/privacy.md explains every line.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from vfl_node.crypto.filters.groups import GroupFilter
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.rows import Rows
from vfl_node.job.keys import Encoding, TextKey
from vfl_node.privacy.linkage import graph_matching

NAME = TextKey(kind="text")

Encode = Callable[[Sequence[str], str], Rows]
"""Texts, and what the seed is derived from → filters."""


def names(folder: Path, file: str = "dataset4a") -> list[str]:
    """Given name and surname of all records of a file of febrl that have either, each once, in the order of the alphabet."""
    with gzip.open(folder / "febrl" / f"{file}.csv.gz", "rt", encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines, skipinitialspace=True))
    every = {f"{row['given_name'].strip()} {row['surname'].strip()}".strip() for row in rows}
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
    return GroupFilter(key, key.bits(Encoding()), Randomness(seed.encode().ljust(32)), key.ones(Encoding())).of(texts)


def mixed_up(filters: Rows) -> Rows:
    """The bits of each filter in an order of its own: it has as many ones, and nothing in common with others."""
    bits = np.random.default_rng(3).permuted(np.unpackbits(filters, axis=1), axis=1)
    return np.packbits(bits, axis=1)


def recognised(
    every: Sequence[str],
    records: int,
    entries: int,
    seed: int,
    *,
    listed: float = 1.0,
    encode: Encode = encoded,
    change: Callable[[Rows], Rows] = lambda filters: filters,
) -> float:
    """The share of records in the list that graph matching finds there.

    Args:
        every: texts that differ.
        records: in the table.
        entries: of the list.
        seed: of who is drawn.
        listed: the share of records that stand in the list.
        encode: makes the filters of both.
        change: is done to the filters of the records.
    """
    rng = np.random.default_rng(seed)
    order, truth = rng.permutation(len(every)), rng.permutation(entries)[:records]
    entries_of = [every[place] for place in order[:entries]]
    texts = [entries_of[place] for place in truth]
    for absent, record in enumerate(rng.permutation(records)[: round((1 - listed) * records)]):
        texts[record], truth[record] = every[order[entries + absent]], -2
    found = graph_matching.recognised(change(encode(texts, f"record {seed}")), encode(entries_of, f"list {seed}"))
    return float((found == truth)[truth >= 0].mean())
