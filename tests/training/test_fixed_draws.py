"""A peer that keeps the transcript: redrawn synthetic rows jump between epochs, fixed ones drift like real ones."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from vfl_node.metrics import auc

from vfl_node.job import Train
from vfl_node.training import halves
from vfl_node.training.learner import Inputs
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2

EPOCHS = 5


class Redrawing(Inputs):
    """The mistake: a position without an own row gets another source row at every visit."""

    owned: NDArray[np.bool_]

    def at(self, positions: NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
        anew = self.draw.integers(0, len(self._numeric), len(positions))
        self._source = self._source.copy()
        self._source[positions] = np.where(self.owned[positions], self._source[positions], anew)
        return super().at(positions)

    draw = np.random.default_rng(0)


def longitudinal(both: Any, parties: Any) -> float:
    """AUC of the active party's guess which embeddings are synthetic: mean change of direction between epochs."""
    schedule = both.schedule(parties)
    training, _ = schedule.split(0, both.evaluate.test_fraction)
    sent = iter(
        codec.decode(message.tensor, dtype=torch.float32, shape=tuple(message.tensor.shape))
        for message in both.transcript
        if isinstance(message, training_pb2.Embedding)
    )
    seen = []
    for epoch in range(EPOCHS):
        batches = schedule.batches(0, epoch, training, both.train.batch_size)
        order = np.concatenate(batches)
        rows = torch.cat([next(sent) for _ in batches])
        seen.append(rows[torch.from_numpy(np.argsort(order))])
    change = [1 - torch.cosine_similarity(a, b) for a, b in pairwise(seen)]
    score = torch.stack(change).mean(dim=0).double().numpy()
    return float(auc((~parties.lab_view.owned[training]).astype(np.float32), score) or 0)


@pytest.fixture
def both(run: Any) -> Any:
    return run(train=Train(bottom=(32, 16), active_bottom=(8,), top=(16,), epochs=EPOCHS, batch_size=128))


def test_fixed_draws_leave_the_longitudinal_attack_at_chance(synthetic: Callable[..., Any], both: Any) -> None:
    parties = synthetic(2000, (0.8, 0.5))
    both(parties)
    assert longitudinal(both, parties) == pytest.approx(0.5, abs=0.06)  # two standard errors are .03


def test_redrawn_rows_are_found(synthetic: Callable[..., Any], both: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    parties = synthetic(2000, (1.0, 0.5))
    monkeypatch.setattr(Redrawing, "owned", parties.lab_view.owned, raising=False)
    monkeypatch.setattr(halves, "Inputs", Redrawing)
    both(parties)
    assert longitudinal(both, parties) > 0.85
