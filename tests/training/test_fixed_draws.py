"""A peer that keeps the transcript: redrawn synthetic rows jump between epochs, fixed ones drift like real ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from vfl_node.privacy.attacks.longitudinal import Longitudinal
from vfl_node.privacy.attacks.transcript import Batch
from vfl_node.privacy.attacks.whole import follow
from vfl_node.session.session import Session
from vfl_node.training.split import trainer
from vfl_node.training.split.config import Train
from vfl_node.training.split.passive import PassiveHalf
from vfl_node.training.trainer import TrainingData
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2

EPOCHS = 5


class Redrawing(PassiveHalf):
    """The mistake: a position without an own row gets another source row at every visit."""

    def __init__(self, own: Session, data: TrainingData, *rest: Any) -> None:
        super().__init__(own, data, *rest)
        self._lacking = np.flatnonzero(~data.alignment.owned)
        self._rows = len(data.table)
        self._draw = np.random.default_rng(0)

    async def step(self, number: int, positions: NDArray[np.int64]) -> None:
        source = self._inputs._source.copy()
        source[self._lacking] = self._draw.integers(0, self._rows, len(self._lacking))
        self._inputs._source = source
        await super().step(number, positions)


def guessed(both: Any, parties: Any) -> float | None:
    """AUC of the active party's guess which embeddings are synthetic, from all that it received in training."""
    schedule = both.schedule(parties)
    training, _ = schedule.split(0, both.evaluate.test_fraction)
    steps = [
        (epoch, positions)
        for epoch in range(EPOCHS)
        for positions in schedule.batches(0, epoch, training, both.train.batch_size)
    ]
    sent = [message.tensor for message in both.transcript if isinstance(message, training_pb2.Embedding)]
    transcript = [
        Batch(epoch, positions, codec.decode(tensor, dtype=torch.float32, shape=tuple(tensor.shape)))
        for (epoch, positions), tensor in zip(steps, sent, strict=False)  # evaluation follows
    ]
    return follow(Longitudinal, transcript, ~parties.lab_view.owned).score()


@pytest.fixture
def both(run: Any) -> Any:
    return run(train=Train(bottom=(32, 16), active_bottom=(8,), top=(16,), epochs=EPOCHS, batch_size=128))


@pytest.fixture
def parties(synthetic: Callable[..., Any]) -> Any:
    return synthetic(1500, (0.8, 0.5))


def test_fixed_draws_leave_the_longitudinal_attack_at_chance(parties: Any, both: Any) -> None:
    both(parties)
    assert guessed(both, parties) == pytest.approx(0.5, abs=0.06)  # two standard errors are .034


def test_redrawn_rows_are_found(parties: Any, both: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "PassiveHalf", Redrawing)
    both(parties)
    found = guessed(both, parties)
    assert found is not None
    assert found > 0.85
