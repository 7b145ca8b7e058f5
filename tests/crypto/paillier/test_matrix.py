"""Products of a matrix and an encrypted vector, and the plan that finds the way with the fewest multiplications."""

from __future__ import annotations

import numpy as np
import pytest
from gmpy2 import mpz
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from tests.crypto.paillier.counting import Counting
from tests.thorough import every
from vfl_node.crypto.kernels import kernel
from vfl_node.crypto.paillier import matrix as products
from vfl_node.crypto.paillier.decryption import decrypt
from vfl_node.crypto.paillier.keys import generate
from vfl_node.crypto.paillier.matrix import MatrixPlan, evaluate, multiply, plan
from vfl_node.crypto.randomness import Randomness
from vfl_node.engines.contract import Inline
from vfl_node.engines.processes import Processes

KEY = generate(256, Randomness(bytes(32)))
PUBLIC, N = KEY.public, KEY.public.n
WORKERS = Inline()
GROUPS, DIGITS = (1, 2, 3, 5, 8), (2, 3, 4, 8, 11)
MODULUS = mpz(2**61 - 1)

SMALL, ANY = st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1)
MATRICES = st.sampled_from([st.integers(0, 1), SMALL, st.integers(-(2**20), 2**20), SMALL | ANY]).flatmap(
    lambda elements: arrays(np.int64, array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=9), elements=elements)
)


def encrypted(numbers):
    """Noise does not matter here: r = 2, 3, 4 …"""
    return PUBLIC.rows((1 + int(v) * mpz(N)) * pow(r, N, N * N) % PUBLIC.square for r, v in enumerate(numbers, 2))


def random(shape, low, high, seed=0):
    return np.random.default_rng(seed).integers(low, high, shape)


def powers(matrix, numbers):
    """Column by column the product of powers, by Python's own pow."""
    found = [mpz(1)] * matrix.shape[1]
    for row, number in zip(matrix.tolist(), numbers, strict=True):
        found = [product * pow(number, x, MODULUS) % MODULUS for product, x in zip(found, row, strict=True)]
    return found


def bases(count):
    return [mpz(v) for v in random(count, 2, 2**60).tolist()]


def only(matrix, *, group=0, digits=0):
    """The plan that does every column in one way."""
    return MatrixPlan(group, np.full(matrix.shape[1], digits), 0, 0, 0)


@settings(deadline=None, derandomize=True)
@given(MATRICES, st.data())
def test_plain_integers_say_the_same(matrix, data):
    vector = data.draw(st.lists(st.integers(-(2**80), 2**80), min_size=len(matrix), max_size=len(matrix)))
    expected = [sum(x * v for x, v in zip(column, vector, strict=True)) % N for column in matrix.T.tolist()]
    assert decrypt(KEY, multiply(PUBLIC, matrix, encrypted(vector), WORKERS), WORKERS) == expected


@settings(deadline=None, derandomize=True)
@given(MATRICES)
def test_every_way_gives_the_same_product(matrix):
    numbers = bases(len(matrix))
    plans = [plan(matrix), *(only(matrix, group=g) for g in GROUPS), *(only(matrix, digits=w) for w in DIGITS)]
    for chosen in plans:
        fractions = evaluate(matrix, numbers, kernel().residues(MODULUS, 8), chosen)
        assert [above * pow(below, -1, MODULUS) % MODULUS for above, below in fractions] == powers(matrix, numbers)


def test_one_flipped_entry_changes_its_column_and_no_other():
    matrix, vector = random((20, 6), -100, 100), encrypted(range(1, 21))
    flipped = matrix.copy()
    flipped[7, 3] *= -1
    same = (multiply(PUBLIC, matrix, vector, WORKERS) == multiply(PUBLIC, flipped, vector, WORKERS)).all(axis=1)
    assert same.tolist() == [True, True, True, False, True, True]


def test_nothing_to_multiply():
    def numbers(matrix):
        return PUBLIC.integers(multiply(PUBLIC, matrix, encrypted([5] * len(matrix)), WORKERS))

    assert numbers(np.zeros((0, 3), np.int64)) == [1, 1, 1]
    assert numbers(np.zeros((3, 0), np.int64)) == []
    assert numbers(np.array([[0, 1], [0, 0]]))[0] == 1  # and must be re-randomised
    with pytest.raises(ValueError, match=r"\(3, 2\) and 4"):
        multiply(PUBLIC, np.zeros((3, 2), np.int64), encrypted([5] * 4), WORKERS)


def counted(matrix, chosen):
    """Products by 1 are left out: tables and buckets begin with 1."""
    numbers = Counting(MODULUS)
    evaluate(matrix, bases(len(matrix)), numbers, chosen)
    return numbers.done


@settings(deadline=None, derandomize=True)
@given(MATRICES)
def test_costs_are_what_is_counted(matrix):
    """With tables up to Horner's rule, since a bit may be 0 in a whole column."""
    for width in DIGITS:
        assert counted(matrix, only(matrix, digits=width)) == products._bucket_costs(matrix, width, 1.0).sum()
    for group in GROUPS:
        cost = products._subset_costs(matrix, group, 1.0).sum() + products._table_cost(len(matrix), group)
        columns = matrix.shape[1]
        assert cost - 128 * columns <= counted(matrix, only(matrix, group=group)) <= cost + columns


def one_hot(rows, levels):
    return (random((rows, 1), 0, levels) == np.arange(levels)).astype(np.int64)


def pixels(shape):
    """Of 8 bits, four in five 0."""
    return random(shape, 0, 256) * (random(shape, 0, 5, seed=1) == 0)


SHAPES = {
    "dense": random((1024, 100), -(2**15), 2**15),
    "pixels": pixels((300, 392)),
    "binary": random((1000, 50), 0, 2),
    "one-hot": one_hot(1000, 20),
    "one column": random((1000, 1), -(2**15), 2**15),
    "long": random((10_000, 10), -(2**20), 2**20),
    "one row": random((1, 100), -(2**15), 2**15),
    "mixed": np.hstack([random((300, 60), -(2**15), 2**15), pixels((300, 20))]),
}


@pytest.mark.parametrize("shape", every(2, list(SHAPES)))
def test_the_plan_is_the_cheapest_of_what_is_counted(shape):
    """Beside every single g and w; of large matrices, beside those that could come near."""
    matrix = SHAPES[shape]
    chosen = plan(matrix)
    done = counted(matrix, chosen)
    assert done == pytest.approx(chosen.cost, rel=0.05)  # a sample
    others = [only(matrix, group=g) for g in range(1, 11)] + [only(matrix, digits=w) for w in range(2, 12)]
    if matrix.size > 20_000:
        others = [only(matrix, group=g) for g in (4, 8, 9)] + [only(matrix, digits=w) for w in (5, 9, 10)]
    assert done <= 1.02 * min(counted(matrix, other) for other in others)


def test_dense_columns_share_tables_and_sparse_ones_do_without():
    assert plan(SHAPES["dense"]).group == 8
    assert (plan(SHAPES["dense"]).digits == 0).all()
    assert plan(SHAPES["one-hot"]).group == 0
    mixed = plan(SHAPES["mixed"]).digits
    assert (mixed[:60] == 0).all()
    assert (mixed[60:] > 0).all()
    assert plan(SHAPES["dense"]).cost < 2.4 * SHAPES["dense"].size


def test_a_column_has_no_more_bits_than_its_own_exponents():
    """A wide column beside 15 binary ones leaves them as cheap as they are alone."""
    binary, wide = SHAPES["binary"][:200, :15], random((200, 1), -(2**40), 2**40)
    alone, beside = plan(binary).cost, plan(np.hstack([wide, binary])).cost
    assert beside <= alone + plan(wide).cost


class Cut(Inline):
    """Cuts the work as for several processes."""

    def __init__(self, workers):
        self.workers = workers
        self.shapes = []

    def map(self, operation, blocks, key, *, background=False):
        blocks = list(blocks)
        self.shapes = [matrix.shape for matrix, _ in blocks]
        return super().map(operation, blocks, key)


@pytest.mark.parametrize(
    ("shape", "shapes"),
    [
        ((300, 60), [(100, 60)] * 3),  # tables are not made three times
        ((300, 9), [(300, 3)] * 3),  # running products are not
        ((750, 1), [(250, 1)] * 3),
        ((750, 4), [(250, 4)] * 3),  # one of three processes would do two of four columns
        ((3, 3), [(3, 3)]),
        ((10, 70), [(10, 22), (10, 21), (10, 21), (10, 6)]),
        ((1000, 3), [(800, 1), (200, 1)] * 3),
    ],
)
def test_the_result_does_not_depend_on_how_the_work_is_cut(shape, shapes, monkeypatch):
    for bound, most in (("_LEAST", 600 // kernel().lanes), ("_ROWS", 800), ("_COLUMNS", 64)):
        monkeypatch.setattr(products, bound, most)
    matrix, vector = random(shape, -(2**15), 2**15), encrypted(range(shape[0]))
    workers = Cut(3)
    whole, cut = (multiply(PUBLIC, matrix, vector, some) for some in (WORKERS, workers))
    np.testing.assert_array_equal(cut, whole)
    assert sorted(workers.shapes) == sorted(shapes)


def test_processes_give_the_same_bytes():
    matrix, vector = random((200, 40), -(2**15), 2**15), encrypted(range(200))
    workers = Processes(2)
    try:
        np.testing.assert_array_equal(multiply(PUBLIC, matrix, vector, workers), multiply(PUBLIC, matrix, vector, WORKERS))
    finally:
        workers.close()
