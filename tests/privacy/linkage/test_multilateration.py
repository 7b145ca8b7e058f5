"""The active party locates keys of the passive one from many similarities, whatever τ is; few of them tell less."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.linkage_privacy import Linkage, few_of_each, found_by_active, made_up
from vfl_node.alignment.linkage.similarity import DistanceScale, tau_of
from vfl_node.crypto.filters.encoding import encode
from vfl_node.crypto.nearest.search import hamming
from vfl_node.crypto.randomness import Randomness
from vfl_node.job.keys import Encoding, TextKey
from vfl_node.privacy.linkage import multilateration

CHANCE_M = 10_000
"""A guess at random is farther off than this, in the median, on a square of 40 km."""


def test_keys_are_located_from_many_similarities(linkage: Linkage) -> None:
    points, release = linkage.points, linkage.release(0.4)
    assert found_by_active(linkage, 0.4, 100) < 400
    few = few_of_each(release.similarities, 100)
    used = np.flatnonzero(~np.isnan(few).all(axis=1))
    mixed = few[np.random.default_rng(0).permutation(used)]  # the control: similarities of other records
    guess = multilateration.locate(mixed, linkage.active, release.mean, release.deviation, linkage.space, linkage.seed)
    assert points.error(guess, points.passive[used]) > CHANCE_M


def test_noise_and_few_similarities_keep_the_error_large(linkage: Linkage) -> None:
    """``linkage.max_reuse`` bounds the number; noise protects from this attack alone, and not from test_membership.py's."""
    errors = [found_by_active(linkage, 0.4, most) for most in (1, 10, 100)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 5 * errors[-1]
    assert found_by_active(linkage, 0.0, 100) < 30
    assert found_by_active(linkage, 50.0, 100) > 5000


@pytest.mark.slow
def test_longer_filters_lower_tau_and_not_the_error() -> None:
    short, long = (Linkage(made_up(400, 80), 20, epsilon) for epsilon in (0.12, 0.03))
    assert long.width > 15 * short.width
    assert tau_of(0.4, long.scale.deviation) < tau_of(0.4, short.scale.deviation) / 12
    errors = [found_by_active(linkage, 0.4, 100) for linkage in (short, long)]
    assert max(errors) < 1.4 * min(errors)


def test_the_seed_matters_little(linkage: Linkage) -> None:
    """Other pivots are as dense, so distances grow alike: to keep the seed from a party would hardly protect."""
    assert found_by_active(linkage, 0.4, 100, Randomness(bytes(32))) < 1000


@pytest.mark.data
def test_schools_are_located(schools: Linkage) -> None:
    assert found_by_active(schools, 0.4, 200) < 300
    assert found_by_active(schools, 50.0, 200) > 4000


def test_texts_are_recognised_in_a_list() -> None:
    """Similarities to 60 own names tell which of 600 names a record has."""
    rng = np.random.default_rng(0)
    syllables = ["ka", "ri", "mo", "sen", "tal", "ber", "lin", "do", "ush", "vey", "an", "gro"]
    names = sorted({"".join(rng.choice(syllables, rng.integers(2, 6))) for _ in range(900)})[:600]
    keys, encoding, seed = {"name": TextKey(kind="text", length=12)}, Encoding(), Randomness(b"s" * 32)

    def filters(texts: list[str], of: Randomness) -> np.ndarray:
        return np.concatenate(list(encode(keys, encoding, {"name": texts}, of)))

    own, theirs = list(rng.choice(names, 60, replace=False)), rng.integers(0, len(names), 40)
    distances = hamming(filters([names[i] for i in theirs], seed), filters(own, seed)).astype(np.int32)
    scale = DistanceScale.from_distances([distances])
    assert scale is not None
    noise = 0.4 * rng.normal(size=distances.shape)
    similarities = (-distances.astype(np.float64) - scale.mean) / scale.deviation + noise

    def found(said: np.ndarray, of: Randomness) -> float:
        guess = multilateration.recognise(said, filters(own, of), scale.mean, scale.deviation, filters(names, of))
        return float((guess == theirs).mean())

    assert found(similarities, seed) > 0.8
    assert found(np.random.default_rng(1).permutation(similarities), seed) < 0.1
    assert found(similarities, Randomness(bytes(32))) > 0.8  # as with numbers, other bits overlap as much


@pytest.mark.slow
def test_fewer_candidates_hardly_protect() -> None:
    """They are closer, so σ0 is smaller, and with it the noise: it makes up for most of there being fewer similarities."""
    few, many = (Linkage(made_up(400, 80), count) for count in (4, 40))
    assert few.scale.deviation < many.scale.deviation / 2
    tenth = found_by_active(many, 0.4, 20)  # as few similarities of a record as there are with a tenth of the candidates
    assert found_by_active(few, 0.4, 400) < tenth / 1.5
