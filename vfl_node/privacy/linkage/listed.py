"""How well the coordinator of a linkage would recognise a party's own keys by a public list that its owner has.

The owner knows the keys and the list, so the attack can be tried itself (``graph_matching`` of each text, ``registration`` of
numbers, dates and places). Work is bounded: of larger tables and lists a sample is tried. Among the list's part are all
entries that the sampled records are: so a coordinator with a list that is many times as long recognises fewer than this,
and one with more records more.

What is drawn here is no secret, and the seed is always the same: so the same records and list give the same figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vfl_node.crypto.filters.encoding import encode
from vfl_node.crypto.filters.groups import normalise
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.rows import Rows
from vfl_node.job.keys import Encoding, TextKey
from vfl_node.privacy.linkage import graph_matching, registration
from vfl_node.privacy.linkage.space import Floats, KeySpace

MOST_TEXTS, MOST_ENTRIES = 300, 600
"""Different texts of the party, and of the list, that are tried."""

MOST_PLACES, MOST_LISTED_PLACES = 600, 5000
"""Records of the party, and places of the list, that are tried."""

_SEED = Randomness(b"keys recognised by a public list".ljust(32))


@dataclass(frozen=True)
class RecognisedTexts:
    """How many texts of one key were recognised.

    Attributes:
        tried: different texts of the party.
        listed: how many of them stand in the list.
        recognised: to how many of them the right entry was found.
    """

    tried: int
    listed: int
    recognised: int


def recognise_texts(own: Sequence[str], listed: Sequence[str], key: TextKey, encoding: Encoding) -> RecognisedTexts:
    """Try graph matching.

    Args:
        own: the party's texts, in any order, none shorter than a group.
        listed: the list's; those that are shorter are left out.
        key: of the job.
        encoding: of the job.

    Cost: that of normalising all; :func:`vfl_node.privacy.linkage.graph_matching.recognise` of 300 and 600, a few seconds.
    """
    texts = _sample(sorted({normalise(text) for text in own}), MOST_TEXTS, "texts")
    public = {text for text in map(normalise, listed) if len(text) >= key.q}
    known = [text for text in texts if text in public]
    others = _sample(sorted(public.difference(known)), MOST_ENTRIES - len(known), "entries")
    entries = _sample(known + others, MOST_ENTRIES, "order")
    if len(texts) < 2 or len(entries) < 2:
        return RecognisedTexts(len(texts), len(known), 0)
    found = graph_matching.recognise(
        *(_filters(names, key, encoding, seed) for names, seed in ((texts, "own"), (entries, "list")))
    )
    right = sum(entry >= 0 and entries[entry] == text for text, entry in zip(texts, found.tolist(), strict=True))
    return RecognisedTexts(len(texts), len(known), right)


def registration_errors(own: Floats, listed: Floats, space: KeySpace) -> Mapping[str, float]:
    """How far from the truth registration places the party's records: key → median error; infinite: not half of them placed.

    Args:
        own: float64[n, axes], the party's records.
        listed: float64[m, axes], places of the list.
        space: of the keys of both.

    Returns:
        As :func:`vfl_node.privacy.linkage.simulated.active_errors`.

    Cost: as :func:`vfl_node.privacy.linkage.registration.locate` of 600 and 5,000: some seconds.
    """
    records, places = (
        places[_SEED.derive(name).permutation(len(places))[:most]]
        for places, name, most in ((own, "records", MOST_PLACES), (listed, "places", MOST_LISTED_PLACES))
    )
    guess = registration.locate(space.filters(records, _SEED.derive("own")), places, space)
    return space.errors(np.where(np.isnan(guess), np.inf, guess), records)


def _sample(texts: Sequence[str], most: int, name: str) -> list[str]:
    """At most so many, drawn at random, in a random order."""
    return [texts[place] for place in _SEED.derive(name).permutation(len(texts))[:most]]


def _filters(texts: Sequence[str], key: TextKey, encoding: Encoding, seed: str) -> Rows:
    return np.concatenate(list(encode({"text": key}, encoding, {"text": texts}, _SEED.derive(seed))))
