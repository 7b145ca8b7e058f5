"""What an owner is told of the coordinator's attacks by a public list, from a bounded part of the table and the list."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.linkage_lists import made_up_names
from benchmarks.linkage_privacy import Linkage, made_up
from vfl_node.job.keys import Encoding, TextKey
from vfl_node.privacy.linkage import listed
from vfl_node.privacy.linkage.listed import recognise_texts, registration_errors

KEY = TextKey(kind="text")


@pytest.fixture(scope="module")
def names() -> list[str]:
    return np.random.default_rng(0).permutation(made_up_names(500)).tolist()


def test_texts_in_the_list_and_others(names: list[str]) -> None:
    own = [*names[:120], *names[200:240]]
    found = recognise_texts(own, names[:200], KEY, Encoding())
    assert (found.tried, found.listed) == (160, 120)
    assert found.recognised > 0.9 * 120


def test_a_list_without_them_recognises_nobody(names: list[str]) -> None:
    found = recognise_texts(names[:120], names[200:400], KEY, Encoding())
    assert (found.tried, found.listed, found.recognised) == (120, 0, 0)


def test_texts_without_common_groups_are_hardly_recognised() -> None:
    """Nothing is known of them but their length, one of 20 that 6 texts have each.

    Within each length one of 6 is right by chance, 20 of all 120: 60 or more have a probability below 10⁻¹² (Poisson).
    """
    rng = np.random.default_rng(1)
    letters = [chr(0x4E00 + place) for place in rng.permutation(6000)]
    texts = [
        "".join(letters[place : place + length])
        for place, length in zip(range(0, 6000, 50), np.tile(np.arange(5, 25), 6).tolist(), strict=True)
    ]
    found = recognise_texts(texts, texts, KEY, Encoding())
    assert found.tried == 120
    assert found.recognised < 60


def test_spelling_that_filters_do_not_tell_counts_once(names: list[str]) -> None:
    own = [name.upper() for name in names[:60]] + names[:60]
    found = recognise_texts(own, [*names[:60], "", "x"], KEY, Encoding())
    assert (found.tried, found.listed) == (60, 60)


@pytest.mark.parametrize(("own", "public"), [(["anna"], ["anna", "bert"]), (["anna", "bert"], [])])
def test_too_few_are_not_tried(own: list[str], public: list[str]) -> None:
    assert recognise_texts(own, public, KEY, Encoding()).recognised == 0


def test_of_large_tables_a_part_is_tried(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listed, "MOST_TEXTS", 60)
    monkeypatch.setattr(listed, "MOST_ENTRIES", 90)
    found = recognise_texts(names[:200], names, KEY, Encoding())
    assert (found.tried, found.listed) == (60, 60)
    assert found.recognised > 54


def test_places(linkage: Linkage) -> None:
    own, towns = linkage.points.active[:200], made_up(2400, 80).active
    errors = registration_errors(own, towns, linkage.space)
    assert all(0 < error < 0.05 for error in errors.values())
    elsewhere = np.random.default_rng(0).uniform(size=(600, 2))
    assert max(registration_errors(own, elsewhere, linkage.space).values()) > 0.05


def test_places_far_apart_are_not_placed() -> None:
    linkage = Linkage(made_up(60, 30), 5, 0.2)
    scattered = np.stack([np.linspace(0, 1, 3), np.linspace(0, 1, 3)], axis=1)
    assert all(np.isinf(error) for error in registration_errors(scattered, linkage.points.active, linkage.space).values())
