"""Whatever the engine, an operation is found by its name and gets all that it needs as arguments."""

from __future__ import annotations

import operator
from contextlib import closing
from functools import partial

import pytest

from vfl_node.engines.contract import Inline
from vfl_node.engines.processes import Processes
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


@pytest.fixture(params=[Inline, partial(Threads, 2), partial(Processes, 2)], ids=["inline", "threads", "processes"])
def engine(request):
    with closing(request.param()) as made:
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


def test_a_function_of_a_module_is_not(engine):
    assert list(engine.map(operator.sub, range(5), 10)) == [10, 9, 8, 7, 6]
