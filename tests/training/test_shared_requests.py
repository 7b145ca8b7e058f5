"""Requests that wait together share batches: each gets its own rows or its own error, and no batch is asked for twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.training.predicting import SERVE, TO_ACTIVE, TO_PASSIVE, Request, Requests, Shown, Tally, World, unseen
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import Table
from vfl_node.errors import DataError, PeerLost
from vfl_node.job import Predict
from vfl_node.training.prediction.exchange import AT_ONCE
from vfl_node.transport.generated.vfl.v1 import prediction_pb2

Make = Callable[..., Any]
BATCH = SERVE.batch_size


def asked(world: World) -> list[list[int]]:
    """The batches of each message that asks for some."""
    asks = [prediction_pb2.PredictionAsk.FromString(body) for body in world.bodies("PredictionAsk")]
    return [list(ask.batches) for ask in asks if not ask.done]


def owned(made: World, predict: Predict, rows: Any) -> Request:
    return made.known(made.parties.clinic if predict is TO_ACTIVE else made.parties.lab, np.array(list(rows), dtype=np.int64))


def alone(made: World, predict: Predict, rows: Any) -> Any:
    (answer,) = made.ask(predict, owned(made, predict, rows))
    return answer


@pytest.mark.parametrize("predict", [TO_ACTIVE, TO_PASSIVE])
def test_each_request_gets_its_own_rows_by_one_exchange_with_the_bytes_that_it_gets_alone(
    world: Make, predict: Predict
) -> None:
    made, tallies = world(), (Tally(), Tally())
    wanted = [[5, 0, 5], [1], [0, 1, 2], []]
    expected = [alone(made, predict, rows) for rows in wanted]
    requests = [owned(made, predict, rows) for rows in wanted]
    results = made.talk(predict, Requests(*requests, together=True), tallies=tallies)
    assert [(request.answered == answer).all() for request, answer in zip(requests, expected, strict=True)] == [True] * 4
    (numbers,) = asked(made)
    assert numbers == sorted(set(numbers))
    asker, other = (0, 1) if predict is TO_ACTIVE else (1, 0)
    assert [(results[party].requests, results[party].batches) for party in (asker, other)] == [
        (4, len(numbers)),
        (0, len(numbers)),
    ]
    assert tallies[asker].kept == results[asker]


@pytest.mark.parametrize("predict", [TO_ACTIVE, TO_PASSIVE])
def test_a_request_that_needs_few_batches_is_answered_before_one_that_needs_many(world: Make, predict: Predict) -> None:
    made = world(people=600)
    table = made.parties.clinic if predict is TO_ACTIVE else made.parties.lab
    batches, side = made.sides[0].batches, made.sides[0 if predict is TO_ACTIVE else 1]
    assert len(batches) > AT_ONCE
    first = int(np.flatnonzero(batches.find(side.positions(table.ids).clip(min=0))[1] < BATCH)[0])
    order: list[str] = []
    many, few = owned(made, predict, range(len(table))), owned(made, predict, [first])
    for name, request in (("many", many), ("few", few)):
        request.answer = lambda values, name=name: order.append(name)  # type: ignore[method-assign]
    many_once = Requests(many, few, together=True)
    many_once.take_all()
    served = many_once.take_all
    many_once.take_all = lambda: [] if order else served()  # type: ignore[method-assign]
    made.talk(predict, many_once)
    assert order == ["few", "many"]
    assert len(asked(made)) > 1


@pytest.mark.parametrize("predict", [TO_ACTIVE, TO_PASSIVE])
def test_nothing_is_asked_for_who_has_hung_up(world: Make, predict: Predict) -> None:
    made = world(people=600)
    table, side = (made.parties.clinic, made.sides[0]) if predict is TO_ACTIVE else (made.parties.lab, made.sides[1])
    first = int(np.flatnonzero(side.batches.find(side.positions(table.ids).clip(min=0))[1] < BATCH)[0])
    many, few = owned(made, predict, range(len(table))), owned(made, predict, [first])

    def answer(values: Any) -> None:
        few.answered, many.over = values, True

    few.answer = answer  # type: ignore[method-assign]
    made.talk(predict, Requests(many, few, together=True))
    assert few.answered is not None
    assert many.answered is None
    assert sum(map(len, asked(made))) < len(made.sides[0].batches)


@pytest.mark.parametrize("predict", [TO_ACTIVE, TO_PASSIVE])
def test_an_unknown_id_fails_its_request_alone(world: Make, predict: Predict) -> None:
    made = world()
    expected = alone(made, predict, [3])
    good, bad, more = (
        owned(made, predict, [3]),
        Request(Table(Identifiers.from_items([b"nobody"]), {})),
        owned(made, predict, [4]),
    )
    made.talk(predict, Requests(good, bad, more, together=True))
    assert isinstance(bad.failed, DataError)
    assert bad.failed.code == "E_UNKNOWN_ID"
    assert (good.answered == expected).all()
    assert more.answered is not None
    assert good.failed is more.failed is None


def test_a_request_beyond_the_budget_fails_alone_and_nothing_of_it_is_told(world: Make) -> None:
    """Each is within the limit by itself: those that came first count."""
    made, shown = world(), (Shown(), Shown(2 * BATCH))
    table, side = made.parties.lab, made.sides[1]
    batches = side.batches
    numbers = np.full(len(table), -1)
    positions = side.positions(table.ids)
    numbers[positions >= 0] = batches.find(positions[positions >= 0])[1] // BATCH
    apart: list[int] = []
    seen: set[int] = set()
    for row in np.flatnonzero(positions >= 0).tolist():  # records of which no two share a row of their batches
        (number,) = batches.find(positions[[row]])[0].tolist()
        if not seen & set(batches.positions(number).tolist()):
            apart.append(row)
            seen |= set(batches.positions(number).tolist())
    requests = [owned(made, TO_PASSIVE, [row]) for row in apart[:4]]
    again = owned(made, TO_PASSIVE, [apart[0]])
    made.talk(TO_PASSIVE, Requests(*requests, again, together=True), shown=shown)
    assert [request.answered is not None for request in (*requests, again)] == [True, True, False, False, True]
    assert [request.failed.code for request in requests if request.failed] == ["E_BUDGET"] * 2
    assert len(shown[1].rows()) == 2 * BATCH


def test_requests_without_ids_are_answered_one_by_one(world: Make) -> None:
    made = world(active_features=False)
    tables = [unseen(5), unseen(20, seed=2)]
    expected = [made.ask(TO_PASSIVE, Request(table))[0] for table in tables]
    requests = [Request(table) for table in tables]
    made.talk(TO_PASSIVE, Requests(*requests, together=True))
    assert all((request.answered == answer).all() for request, answer in zip(requests, expected, strict=True))


@pytest.mark.parametrize("predict", [TO_ACTIVE, TO_PASSIVE])
def test_requests_of_an_exchange_that_broke_off_are_asked_again_with_the_same_answers(world: Make, predict: Predict) -> None:
    made, tallies, shown = world(), (Tally(), Tally()), (Shown(), Shown())
    wanted = [[0], [1, 2], [3]]
    expected = [alone(made, predict, rows) for rows in wanted]
    requests = [owned(made, predict, rows) for rows in wanted]

    def lose(message: Any) -> None:
        if isinstance(message, prediction_pb2.PredictionAsk) and message.batches:
            raise PeerLost("broken off")

    made.talk(predict, Requests(*requests, together=True), tamper=lose, tallies=tallies, shown=shown)
    asker = 0 if predict is TO_ACTIVE else 1
    assert all(request.answered is None for request in requests)
    assert (tallies[asker].kept.requests, len(shown[1].rows())) == (0, 0)
    made.talk(predict, Requests(*requests, together=True), tallies=tallies, shown=shown)
    assert all((request.answered == answer).all() for request, answer in zip(requests, expected, strict=True))
    (numbers,) = asked(made)
    kept = tallies[asker].kept
    assert (kept.requests, kept.batches) == (3, 2 * len(numbers))  # asked for twice, answered once
