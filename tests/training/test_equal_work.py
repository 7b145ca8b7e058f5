"""What a peer waits for is as much work whoever owns the rows: how long it takes tells nobody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.training.predicting import TO_PASSIVE, Request, taken, unseen
from vfl_node.data.tables import Table
from vfl_node.job import Evaluate
from vfl_node.training.network.positioned_input import PositionedInput
from vfl_node.training.split.config import Train
from vfl_node.training.split.missing.section import Missing

Make = Callable[..., Any]
Work = list[int | str]

TRAIN = Train(bottom=(6,), active_bottom=(4,), top=(6,), epochs=2, batch_size=32)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    """How many rows are computed, in order; tests add what is sent in between."""
    done: Work = []
    take = PositionedInput.take

    def counted(self: PositionedInput, positions: Any) -> Any:
        done.append(len(positions))
        return take(self, positions)

    monkeypatch.setattr(PositionedInput, "take", counted)
    return done


def training(run: Make, synthetic: Make, work: Work, owned: float, calibration: str) -> Work:
    """Rows computed and messages sent in a training over 200 rows of which the clinic owns a share, the lab all."""
    parties = synthetic(200, (owned, 1.0))
    assert len(parties.people) == 200
    work.clear()
    missing = Missing(calibration=calibration)
    run(
        train=TRAIN.model_copy(update={"missing": missing}),
        evaluate=Evaluate(test_fraction=0.2, repeats=2),
        tamper=lambda message: work.append(message.DESCRIPTOR.name),
    )(parties)
    return list(work)


@pytest.mark.parametrize("calibration", ["none", "test", "train"])
def test_a_gradient_takes_as_much_work_whatever_is_owned(run: Make, synthetic: Make, work: Work, calibration: str) -> None:
    """What gives calibration its q is trained before the first one, over all rows; half of it on few would be less."""
    few, many = (training(run, synthetic, work, owned, calibration) for owned in (0.3, 0.9))
    assert few == many
    first = few.index("Gradient")
    models = {"none": 0, "test": 1, "train": 3}[calibration]
    assert sum(rows for rows in few[:first] if isinstance(rows, int)) >= models * TRAIN.epochs * 160
    alone = sum(rows for rows in few if isinstance(rows, int)) - sum(rows for rows in few[:first] if isinstance(rows, int))
    assert alone >= 2 * 2 * TRAIN.epochs * 160  # the joint halves, and a network alone in each of two repeats


@pytest.mark.parametrize("strategy", ["sampling", "gaussian"])
def test_a_batch_without_names_takes_as_much_work_whoever_its_rows_are(world: Make, work: Work, strategy: str) -> None:
    made = world(active_features=False, missing=Missing(features=strategy), epochs=1)
    _, embedder = made.sides

    def batches(table: Table) -> list[Work]:
        hidden = embedder.hide_rows(table)
        found = []
        for number in range(hidden.count):
            work.clear()
            hidden.embedding(number)
            found.append(list(work))
        return found

    known, new = batches(taken(made.parties.lab, np.arange(4))), batches(unseen(20))
    both = batches(taken(made.parties.lab, np.arange(2)))
    assert len({str(each) for each in [*known, *new, *both]}) == 1


def test_a_named_batch_takes_as_much_work_whatever_row_is_wanted(world: Make, work: Work) -> None:
    made = world()
    seen = set()
    for row in range(0, len(made.parties.lab), 25):
        sides = made.sides
        work.clear()
        made.ask(TO_PASSIVE, made.known(made.parties.lab, [row]), sides=sides)
        seen.add(str(work))
    assert len(seen) == 1


def test_ten_known_rows_take_more_batches_than_ten_new_ones(world: Make) -> None:
    """Known ones have the company of their agreed batches; docs/explanations/privacy/index.md says that this shows."""
    made = world(active_features=False)
    known, new = Request(taken(made.parties.lab, np.arange(10))), Request(unseen(10))
    made.ask(TO_PASSIVE, known)
    many = len(made.bodies("Embedding"))
    made.ask(TO_PASSIVE, new)
    assert len(made.bodies("Embedding")) == 1 < many
