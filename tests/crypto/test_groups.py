"""What holds in every group: the algebra of scalars, secrecy of their values, domains."""

from __future__ import annotations

import copy
import pickle
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfl_node.crypto.groups import GROUPS, Curve25519, SafePrimeGroup, Scalar, group
from vfl_node.crypto.randomness import Randomness
from vfl_node.engines.contract import Inline
from vfl_node.engines.processes import Processes
from vfl_node.engines.threads import Threads
from vfl_node.errors import ProtocolError

WORKERS = Threads(2)
BYTE_ORDERS = {"curve25519": "little", "toy": "big"}
SMALL = {"curve25519": Curve25519(), "toy": SafePrimeGroup("toy", 2**80 - 5837)}
EVERY_GROUP = pytest.mark.parametrize("g", SMALL.values(), ids=SMALL)
SEEDS = st.binary(min_size=32, max_size=32)


@EVERY_GROUP
@given(seed=SEEDS)
@settings(max_examples=50, deadline=None, derandomize=True)
def test_products_and_inverses_are_one_operation_each(g, seed):
    randomness = Randomness(seed)
    a, b, c = (g.draw(randomness.derive(name)) for name in "abc")
    x = g.hash_to_group([seed, b"x"], b"test")
    abc = g.power(g.power(g.power(x, a, WORKERS), b, WORKERS), c, WORKERS)
    np.testing.assert_array_equal(g.power(x, g.product(c, a, b), WORKERS), abc)
    g.decode(abc)
    xa = g.power(x, a, WORKERS)
    np.testing.assert_array_equal(g.power(abc, g.product(g.inverse(b), g.inverse(c)), WORKERS), xa)
    np.testing.assert_array_equal(g.power(g.power(xa, b, WORKERS), g.inverse(b), WORKERS), xa)
    assert (g.power(x, b, WORKERS) != xa).any(axis=1).all()


@EVERY_GROUP
@pytest.mark.parametrize("kind", [Inline, partial(Processes, 2)], ids=["inline", "processes"])
def test_every_engine_gives_the_same_powers(g, kind):
    engine = kind()
    scalar = g.draw(Randomness(bytes(32)))
    rows = g.hash_to_group([b"%d" % i for i in range(2 * g.block_rows + 1)], b"test")
    np.testing.assert_array_equal(g.power(rows, scalar, engine), g.power(rows, scalar, WORKERS))
    engine.close()


@EVERY_GROUP
def test_domains_and_identifiers_give_unrelated_elements(g):
    rows = np.concatenate([g.hash_to_group([b"a", b"b", b"", bytes(1000)], domain) for domain in (b"one", b"two")])
    assert rows.shape == (8, g.width)
    assert len(np.unique(rows, axis=0)) == 8
    np.testing.assert_array_equal(g.hash_to_group([b"b"], b"two"), rows[5:6])
    g.decode(rows)


@EVERY_GROUP
def test_an_element_does_not_depend_on_the_rest_of_its_batch(g):
    ids = [b"%d" % i for i in range(100)]
    one_by_one = np.concatenate([g.hash_to_group([item], b"d") for item in ids])
    np.testing.assert_array_equal(g.hash_to_group(ids, b"d"), one_by_one)
    np.testing.assert_array_equal(g.hash_to_group(ids[::-3], b"d"), one_by_one[::-3])


@EVERY_GROUP
def test_workers_check_what_a_peer_sent_if_told_to(g):
    """2 is no element here: checked it is refused, wherever it stands; unchecked it has a power."""
    good = g.hash_to_group([b"%d" % i for i in range(600)], b"d")
    scalar = g.draw(Randomness(bytes(32)))
    checked = np.concatenate(list(g.powers(good, scalar, WORKERS, check=True)))
    np.testing.assert_array_equal(checked, g.power(good, scalar, WORKERS))
    for place in (0, len(good) // 2, len(good) - 1):
        bad = good.copy()
        bad[place] = np.frombuffer((2).to_bytes(g.width, BYTE_ORDERS[g.name]), np.uint8)
        with pytest.raises(ProtocolError) as refused:
            list(g.powers(bad, scalar, WORKERS, check=True))
        assert refused.value.code == "E_ELEMENT"
        assert len(g.power(bad, scalar, WORKERS)) == len(bad)


@EVERY_GROUP
def test_the_product_of_nothing_acts_as_one(g):
    x = g.power(g.hash_to_group([b"a", b"b"], b"d"), g.draw(Randomness(bytes(32))), WORKERS)
    np.testing.assert_array_equal(g.power(x, g.product(), WORKERS), x)


@EVERY_GROUP
def test_no_elements(g):
    assert g.hash_to_group([], b"d").shape == (0, g.width)
    assert g.power(g.empty(), g.draw(Randomness(bytes(32))), WORKERS).shape == (0, g.width)
    assert g.decode(g.empty()).shape == (0, g.width)


@EVERY_GROUP
def test_draws_are_fresh_and_repeat_from_the_seed(g):
    randomness = Randomness(bytes(32))
    drawn = {g.draw(randomness).reveal() for _ in range(20)}
    assert len(drawn) == 20
    assert g.draw(Randomness(bytes(32))).reveal() in drawn


def test_a_scalar_keeps_its_value_to_itself():
    secret = Scalar(0xDEADBEEF)
    assert repr(secret) == str(secret) == f"{secret}" == "Scalar(secret)"
    for take in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not serialised"):
            take(secret)


@pytest.mark.parametrize("name", GROUPS)
def test_registry(name):
    assert group(name).name == name
