from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfl_node.crypto.randomness import Randomness

SEED = bytes(range(32))


def test_streams_are_fixed_for_ever() -> None:
    """A restarted party, or one with other library versions, must repeat these bytes."""
    assert Randomness(SEED).bytes(8).hex() == "cabd5118e5d4acfc"
    assert Randomness(SEED).derive("psu").bytes(8).hex() == "ff804ea31cbb5927"
    assert Randomness(SEED).permutation(8).tolist() == [5, 4, 1, 6, 0, 2, 7, 3]


def test_children_do_not_depend_on_what_was_drawn_before() -> None:
    drawn = Randomness(SEED)
    drawn.bytes(1000)
    assert drawn.derive("a").bytes(16) == Randomness(SEED).derive("a").bytes(16)
    assert drawn.derive("a").bytes(16) != drawn.derive("b").bytes(16)


@given(st.integers(0, 300))
def test_permutation_holds_each_index_once(count: int) -> None:
    assert sorted(Randomness(SEED).permutation(count).tolist()) == list(range(count))


def test_draws_are_uniform() -> None:
    stream = Randomness(SEED)
    counts = np.bincount([stream.below(5) for _ in range(5000)], minlength=5)
    assert np.all(np.abs(counts - 1000) < 6 * np.sqrt(800))
    choices = np.bincount(stream.choices(5, 5000), minlength=5)
    assert np.all(np.abs(choices - 1000) < 6 * np.sqrt(800))
    first = [Randomness(SEED).derive(str(i)).permutation(4)[0] for i in range(2000)]
    assert np.all(np.abs(np.bincount(first, minlength=4) - 500) < 6 * np.sqrt(375))


def test_it_does_not_tell_or_travel() -> None:
    secret = Randomness(SEED)
    assert SEED.hex() not in repr(secret)
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    with pytest.raises(TypeError):
        copy.copy(secret)
    with pytest.raises(ValueError, match="32 bytes"):
        Randomness(b"short")
