"""Whatever the engine, an operation is found by its name and gets all that it needs as arguments; results come in order."""

from __future__ import annotations

import operator
from contextlib import closing
from functools import partial

import pytest

from vfl_node.crypto.build import describe_build
from vfl_node.crypto.paillier.packing import join
from vfl_node.engines.contract import Inline
from vfl_node.engines.processes import Processes
from vfl_node.engines.ray.cluster import Cluster
from vfl_node.engines.threads import Threads


class Adder:
    def __init__(self, secret):
        self.secret = secret

    def add(self, key, block):
        return self.secret + key + block


def closure(secret):
    def add(key, block):
        return secret + key + block

    return add


MAKERS = {"inline": Inline, "threads": partial(Threads, 2), "processes": partial(Processes, 2)}


@pytest.fixture(params=[*MAKERS, pytest.param("cluster", marks=pytest.mark.ray)])
def engine(request):
    if request.param == "cluster":
        made = Cluster(request.getfixturevalue("cluster").settings, describe_build)
    else:
        made = MAKERS[request.param]()
    with closing(made):
        yield made


NAMELESS = {
    "lambda": lambda key, block: key + block,
    "closure": closure(1),
    "method": Adder(1).add,
    "partial": partial(operator.add, 1),
}


@pytest.mark.parametrize("operation", NAMELESS.values(), ids=NAMELESS)
def test_what_would_take_along_more_than_its_arguments_is_refused(engine, operation):
    with pytest.raises(ValueError, match="is not a function of a module"):
        engine.map(operation, [1], 1)


@pytest.mark.parametrize("background", [False, True])
def test_results_of_a_function_of_a_module_come_in_order(engine, background):
    key = (1, 1)  # joined at a distance of so many bits
    assert list(engine.map(join, range(50), key, background=background)) == [1 + (1 << bits) for bits in range(50)]
    assert list(engine.map(join, [], key, background=background)) == []


def test_the_earliest_failure_is_raised_in_its_place_and_ends_all(engine):
    results = engine.map(join, [1, -1, -2, 2], (1, 1))
    assert next(results) == 3
    with pytest.raises(ValueError, match="negative shift count"):
        next(results)
    with pytest.raises(StopIteration):
        next(results)
    assert list(engine.map(join, [1], (1, 1))) == [3]


def test_callers_learn_how_many_blocks_are_computed_at_a_time_and_how_large_to_make_them(engine):
    assert engine.workers >= 1
    assert engine.grain >= 1


def test_a_closed_engine_takes_nothing(engine):
    list(engine.map(join, [1], (1, 1)))
    engine.close()
    engine.close()
    if not isinstance(engine, Inline):
        with pytest.raises(RuntimeError, match="closed"):
            engine.map(join, [1], (1, 1))
