"""What was made lately is kept within its bounds, and predictions are the same with it and without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.training.predicting import TO_ACTIVE, TO_PASSIVE, Requests
from vfl_node.job import Predict
from vfl_node.training.prediction import exchange
from vfl_node.training.prediction.recent import Recent

Make = Callable[..., Any]


def test_what_was_not_used_for_longest_goes_first() -> None:
    recent: Recent[str] = Recent(100)
    for number in range(4):
        assert recent.keep(number, f"made {number}", 25) == f"made {number}"
    assert recent.find(0) == "made 0"
    recent.keep(4, "made 4", 50)
    assert [recent.find(number) for number in range(5)] == ["made 0", None, None, "made 3", "made 4"]
    recent.keep(3, "made again", 10)
    assert [recent.find(number) for number in (0, 3, 4)] == ["made 0", "made again", "made 4"]
    recent.keep(5, "too large", 101)
    assert [recent.find(number) for number in range(6)] == [None] * 6


@pytest.mark.parametrize("predict", [TO_ACTIVE, TO_PASSIVE])
def test_a_batch_that_comes_again_is_not_computed_again_and_has_the_same_answer(
    world: Make, predict: Predict, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = world()
    table = made.parties.clinic if predict is TO_ACTIVE else made.parties.lab
    decoded: list[Any] = []
    decode = exchange.decode_tensor
    monkeypatch.setattr(exchange, "decode_tensor", lambda *args, **rest: (decoded.append(args), decode(*args, **rest))[1])
    rows = np.arange(len(table))
    first, again = made.ask(predict, made.known(table, rows), made.known(table, rows))
    assert (first == again).all()
    assert len(decoded) == len(made.sides[0].batches)
    sent = made.bodies("Embedding")
    assert len(sent) == 2 * len(decoded)  # what crosses the wire is the same, but for the number of the step
    monkeypatch.setattr(exchange, "Recent", lambda: Recent(0))
    (without,) = made.ask(predict, made.known(table, rows))
    assert (without == first).all()


def test_a_peer_that_sends_another_embedding_for_a_batch_gets_another_answer(world: Make) -> None:
    from vfl_node.training.prediction.exchange import training_pb2

    made, number = world(), [0]
    table = made.parties.clinic

    def change(message: Any) -> None:
        if isinstance(message, training_pb2.Embedding):
            number[0] += 1
            if number[0] == 2:
                values = np.frombuffer(message.tensor.data, "<f4")
                message.tensor.data = (values + 1).astype("<f4").tobytes()

    requests = [made.known(table, [0]) for _ in range(3)]
    made.talk(TO_ACTIVE, Requests(*requests), tamper=change)
    first, other, again = (request.answered for request in requests)
    assert (first == again).all()
    assert (first != other).any()
