"""Each strategy in a training: what crosses, and whom the active party tells apart over epochs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from vfl_node.job import Missing
from vfl_node.privacy.attacks import longitudinal
from vfl_node.privacy.attacks.transcript import Batch
from vfl_node.training.missing import EMBEDDINGS
from vfl_node.training.missing.features import MADE
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2

EPOCHS = 3


def training(run: Any, strategy: str, **changes: Any) -> Any:
    missing = Missing(labels="majority", features=strategy)
    return run(train=run().train.model_copy(update={"missing": missing, "epochs": EPOCHS, **changes}))


def sent(both: Any) -> list[Tensor]:
    """The embeddings that crossed."""
    tensors = [message.tensor for message in both.transcript if isinstance(message, training_pb2.Embedding)]
    return [codec.decode(tensor, dtype=torch.float32, shape=tuple(tensor.shape)) for tensor in tensors]


@pytest.mark.parametrize("strategy", [*MADE, *EMBEDDINGS])
def test_made_up_rows_cross_as_all_others_do(strategy: str, run: Any, synthetic: Any) -> None:
    parties = synthetic(300, (0.7, 0.6))
    both, again = training(run, strategy), training(run, strategy)
    both(parties)
    again(parties)
    assert {embedding.dtype for embedding in sent(both)} == {torch.float32}
    for first, second in zip(sent(both), sent(again), strict=True):
        assert first.isfinite().all()
        assert (first.abs().sum(dim=1) > 0).all()
        assert torch.equal(first, second)


@pytest.mark.parametrize(
    ("strategy", "least", "most"), [("interpolated", 0.42, 0.58), ("jittered", 0.42, 0.58), ("gaussian", 0.9, 1)]
)
def test_rows_that_are_drawn_once_drift_as_real_ones_do(
    strategy: str, least: float, most: float, run: Any, synthetic: Any
) -> None:
    parties = synthetic(1200, (0.8, 0.5))
    both = training(run, strategy, batch_size=128)
    both(parties)
    schedule = both.schedule(parties)
    rows, _ = schedule.split(0, both.evaluate.test_fraction)
    steps = [(epoch, batch) for epoch in range(EPOCHS) for batch in schedule.batches(0, epoch, rows, 128)]
    transcript = [Batch(*step, embedding) for step, embedding in zip(steps, sent(both), strict=False)]  # evaluation follows
    found = longitudinal.attack(transcript, ~parties.lab_view.owned)
    assert found is not None
    assert least <= found <= most
