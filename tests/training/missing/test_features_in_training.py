"""Each strategy in a training: what crosses, and whom the active party tells apart over epochs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.data.features import Encoder, Features
from vfl_node.job import Evaluate, Missing, Serve
from vfl_node.privacy.attacks import longitudinal
from vfl_node.privacy.attacks.transcript import Batch
from vfl_node.training import halves
from vfl_node.training.learner import Inputs
from vfl_node.training.missing import EMBEDDINGS
from vfl_node.training.missing import features as missing_features
from vfl_node.training.missing.features import MADE
from vfl_node.training.prediction import Embedder, Kept
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


@pytest.fixture
def encodings(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, Inputs]]:
    """Party, encoder and columns of each half that is made."""
    met: list[tuple[str, str, Inputs]] = []
    encode = halves._encode

    def spying(task: Any, *rest: Any) -> tuple[str, Inputs]:
        encoder, inputs = encode(task, *rest)
        met.append((task.party, encoder, inputs))
        return encoder, inputs

    monkeypatch.setattr(halves, "_encode", spying)
    return met


def at(inputs: Inputs, positions: NDArray[np.int64]) -> Features:
    numeric, categorical = inputs.at(positions)
    return Features(numeric.numpy(), categorical.numpy(), inputs._cardinalities)


@pytest.mark.parametrize("strategy", MADE)
@pytest.mark.parametrize("scaled_by", ["the whole table", "the rows of the repeat"])
def test_the_row_at_a_position_is_the_same_in_every_repeat(
    strategy: str,
    scaled_by: str,
    run: Any,
    synthetic: Any,
    encodings: list[tuple[str, str, Inputs]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Made up in each repeat's own scaling it is not."""
    if scaled_by == "the rows of the repeat":
        monkeypatch.setattr(missing_features, "_refitted", lambda encoder, table: encoder)
    parties = synthetic(300, (0.7, 0.6))
    both = training(run, strategy, epochs=1)
    both.evaluate = Evaluate(test_fraction=0.5, repeats=3)
    both(parties)
    for party, table, view in (("clinic", parties.clinic, parties.clinic_view), ("lab", parties.lab, parties.lab_view)):
        lacking, whole = np.flatnonzero(~view.owned), Encoder.fit(table, np.arange(len(table)))
        repeats = [(Encoder.from_json(encoder), at(inputs, lacking)) for of, encoder, inputs in encodings if of == party]
        assert len({encoder.to_json() for encoder, _ in repeats}) == 3
        rows = [encoder.translate(features, whole, table) for encoder, features in repeats]
        changed = [
            (np.abs(row.numeric - rows[0].numeric) > 1e-4).any(axis=1) | (row.categorical != rows[0].categorical).any(axis=1)
            for row in rows[1:]
        ]
        assert len(lacking) > 50
        print(strategy, scaled_by, party, [c.mean() for c in changed])
        if scaled_by == "the whole table":
            assert not np.any(changed)


def test_predictions_read_the_rows_of_training(run: Any, synthetic: Any, encodings: list[tuple[str, str, Inputs]]) -> None:
    parties, everything = synthetic(300, (0.7, 0.6)), None
    for strategy in (*MADE, "sampling"):
        encodings.clear()
        both = training(run, strategy, epochs=1)
        both.evaluate = Evaluate(test_fraction=0.5, repeats=2)
        _, lab = both(parties)
        kept = Kept(both.train, Serve(to="both"), lab.weights, lab.encoder, lab.serving)
        side = Embedder(kept, parties.lab_view, parties.lab, torch.device("cpu"))
        everything = np.arange(len(parties.people))
        first = next(inputs for party, _, inputs in encodings if party == "lab")
        for ours, theirs in zip(side.inputs.at(everything), first.at(everything), strict=True):
            assert torch.equal(ours, theirs)
