from __future__ import annotations

import copy
import hashlib
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri
from scipy.stats import kstest, norm

from vfl_node.crypto.randomness import Randomness, normal_of

SEED = bytes(range(32))


def test_streams_are_fixed_for_ever() -> None:
    """A restarted party, or one with other library versions, must repeat these bytes."""
    assert Randomness(SEED).bytes(8).hex() == "cabd5118e5d4acfc"
    assert Randomness(SEED).derive("psu").bytes(8).hex() == "ff804ea31cbb5927"
    assert Randomness(SEED).permutation(8).tolist() == [5, 4, 1, 6, 0, 2, 7, 3]


@pytest.mark.parametrize("count", [0, 1, 7, 10_000])
def test_words_are_those_of_the_stream(count: int) -> None:
    drawn, same = Randomness(SEED), Randomness(SEED)
    assert drawn.uint64(count).tolist() == np.frombuffer(same.bytes(8 * count), "<u8").tolist()
    assert drawn.bytes(8) == same.bytes(8)


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
    counts = np.bincount([stream.draw_below(5) for _ in range(5000)], minlength=5)
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


def fingerprint() -> str:
    """Of a million normals, of the largest and smallest there can be, and of uniform numbers."""
    stream, ends = Randomness(SEED), np.array([0, 1, 2**11, 3 << 11, 2**64 - 1, 2**64 - 2], dtype=np.uint64)
    drawn = stream.normal((1000, 1001)), normal_of(ends), stream.uniform((1001,))
    return hashlib.sha256(b"".join(part.tobytes() for part in drawn)).hexdigest()[:16]


def test_numbers_are_the_same_on_any_vector_unit() -> None:
    """A restart on another machine must repeat them; numpy's own logarithm fails this on a CPU with AVX-512."""
    assert fingerprint() == "bf023db7dae7dccf"
    enabled = "[name for name in dispatched if features[name]]"
    code = f"""
import sys
try:
    from numpy._core._multiarray_umath import __cpu_dispatch__ as dispatched, __cpu_features__ as features
except ImportError:
    from numpy.core._multiarray_umath import __cpu_dispatch__ as dispatched, __cpu_features__ as features
if len(sys.argv) == 1:
    print(*{enabled})
else:
    sys.path.insert(0, sys.argv[1])
    from test_randomness import fingerprint
    print(fingerprint(), len({enabled}))
"""

    def run(*arguments: str, **changed: str) -> str:
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.run(command, env={**os.environ, **changed}, capture_output=True, text=True, check=True).stdout

    plain = run(str(Path(__file__).parent), NPY_DISABLE_CPU_FEATURES=run().strip())
    assert plain.split() == [fingerprint(), "0"]


def test_normals_follow_the_quantile_function_as_far_as_they_go() -> None:
    rng = np.random.default_rng(0)
    for octave in range(53):  # of the probability, 2⁻⁵⁴ … ½
        odd = rng.integers(2**octave, 2 ** (octave + 1), 500, dtype=np.uint64) | np.uint64(1)
        assert normal_of(odd << np.uint64(11)) == pytest.approx(-ndtri(odd * 2.0**-54), abs=1e-9)
    upper, lower = normal_of(np.array([0, 1], dtype=np.uint64))
    assert upper == -lower == pytest.approx(8.2924, abs=1e-4)


def test_normals_have_the_right_moments_and_distribution() -> None:
    count = 1_000_000
    drawn = Randomness(SEED).derive("moments").normal((count,)).astype(np.float64)
    moments = [np.mean(drawn**order) for order in (1, 2, 3, 4)]
    errors = np.sqrt(np.array([1, 2, 15, 96]) / count)
    assert np.all(np.abs(np.array(moments) - [0, 1, 0, 3]) < 4 * errors)
    assert kstest(drawn, "norm").pvalue > 1e-3
    beyond = (np.abs(drawn) > 4).sum()
    assert abs(beyond - count * 2 * norm.sf(4)) < 4 * np.sqrt(count * 2 * norm.sf(4))
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 4 / np.sqrt(count)


def test_uniform_numbers_have_the_right_distribution() -> None:
    drawn = Randomness(SEED).derive("uniform").uniform((1000, 200))
    assert drawn.shape == (1000, 200)
    assert 0 <= drawn.min() < 1e-4
    assert 1 - 1e-4 < drawn.max() < 1
    assert kstest(drawn.ravel(), "uniform").pvalue > 1e-3


def test_normals_of_other_labels_are_independent() -> None:
    drawn = np.stack([Randomness(SEED).derive(label).normal((100_000,)) for label in ("a", "b", "a/b", "")])
    assert np.abs(np.corrcoef(drawn) - np.eye(4)).max() < 4.5 / np.sqrt(100_000)
    assert (drawn[0] != drawn[1]).mean() > 0.999


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (8191,), (8193,), (3, 5000)])
def test_normals_of_any_shape_are_the_streams_next(shape: tuple[int, ...]) -> None:
    drawn = Randomness(SEED).normal(shape)
    assert drawn.shape == shape
    assert drawn.dtype == np.float32
    stream = Randomness(SEED)
    assert np.array_equal(drawn.ravel(), normal_of(stream.uint64(drawn.size)).astype(np.float32))
    one_by_one = Randomness(SEED)
    assert [one_by_one.normal(()).item() for _ in range(min(5, drawn.size))] == drawn.ravel()[:5].tolist()
