"""Each strategy in a training: what crosses, and whom the active party tells apart over epochs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.thorough import every
from vfl_node.data.features import Encoder, Features
from vfl_node.job import Evaluate, Serve
from vfl_node.privacy.attacks.longitudinal import Longitudinal
from vfl_node.privacy.attacks.transcript import Batch
from vfl_node.privacy.attacks.whole import follow
from vfl_node.training.network.positioned_input import PositionedInput
from vfl_node.training.split import active, half, passive
from vfl_node.training.split.missing.features import filling
from vfl_node.training.split.missing.section import Missing
from vfl_node.training.split.missing.strategies import FEATURES
from vfl_node.training.split.prediction import Embedder, SplitModel
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2

ROWS = [name for name in FEATURES if FEATURES[name].rows]
EMBEDDINGS = [name for name in FEATURES if FEATURES[name].embeddings]

EPOCHS = 3


def training(run: Any, strategy: str, evaluate: Evaluate | None = None, **changes: Any) -> Any:
    missing = Missing(labels="majority", features=strategy)
    train = run().train.model_copy(update={"missing": missing, "epochs": EPOCHS, **changes})
    return run(train=train, evaluate=evaluate or Evaluate())


def sent(both: Any) -> list[Tensor]:
    """The embeddings that crossed."""
    tensors = [message.tensor for message in both.transcript if isinstance(message, training_pb2.Embedding)]
    return [codec.decode(tensor, dtype=torch.float32, shape=tuple(tensor.shape)) for tensor in tensors]


@pytest.mark.parametrize("strategy", every(2, [*ROWS, *EMBEDDINGS]))
def test_made_up_rows_cross_as_all_others_do(strategy: str, run: Any, synthetic: Any) -> None:
    parties = synthetic(300, (0.7, 0.6))
    wide = {"bottom": (16, 32)}  # some unit passes the ReLU in every row
    both, again = training(run, strategy, **wide), training(run, strategy, **wide)
    both(parties)
    again(parties)
    assert {embedding.dtype for embedding in sent(both)} == {torch.float32}
    for first, second in zip(sent(both), sent(again), strict=True):
        assert first.isfinite().all()
        assert (first.abs().sum(dim=1) > 0).all()
        assert torch.equal(first, second)


@pytest.mark.parametrize(("strategy", "least", "most"), [("smoothed", 0.42, 0.58), ("gaussian", 0.9, 1)])
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
    found = follow(Longitudinal, transcript, ~parties.lab_view.owned).score()
    assert found is not None
    assert least <= found <= most


@pytest.fixture
def encodings(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, PositionedInput]]:
    """Party, encoder and columns of each half that is made."""
    met: list[tuple[str, str, PositionedInput]] = []
    encode = half.encode

    def spying(own: Any, *rest: Any) -> tuple[str, PositionedInput]:
        encoder, inputs = encode(own, *rest)
        met.append((own.name, encoder, inputs))
        return encoder, inputs

    for of in (active, passive):
        monkeypatch.setattr(of, "encode", spying)
    return met


def at(inputs: PositionedInput, positions: NDArray[np.int64]) -> Features:
    rows = inputs.take(positions)
    return Features(rows.numeric.numpy(), rows.categorical.numpy(), inputs.schema.cardinalities)


def changed(parties: Any, encodings: list[tuple[str, str, PositionedInput]], repeats: int) -> list[float]:
    """Share of the missing positions, for each party and later repeat, whose row is not that of the first repeat."""
    found = []
    for party, table, view in (("clinic", parties.clinic, parties.clinic_view), ("lab", parties.lab, parties.lab_view)):
        lacking, whole = np.flatnonzero(~view.owned), Encoder.fit(table, np.arange(len(table)))
        met = [(Encoder.from_json(encoder), at(inputs, lacking)) for of, encoder, inputs in encodings if of == party]
        assert len({encoder.to_json() for encoder, _ in met}) == repeats
        first, *later = [encoder.translate(features, whole, table) for encoder, features in met]
        for rows in later:
            numbers = (np.abs(rows.numeric - first.numeric) > 1e-4).any(axis=1)
            found.append(float((numbers | (rows.categorical != first.categorical).any(axis=1)).mean()))
    return found


@pytest.mark.parametrize(("strategy", "in_one_scaling"), [*((strategy, True) for strategy in ROWS), ("smoothed", False)])
def test_the_row_at_a_position_is_the_same_in_every_repeat(
    strategy: str,
    in_one_scaling: bool,
    run: Any,
    synthetic: Any,
    encodings: list[tuple[str, str, PositionedInput]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Made up in each repeat's own scaling many are not: other rows are near there."""
    if not in_one_scaling:
        monkeypatch.setattr(filling, "_refit", lambda encoder, table, scaling: encoder)
    parties = synthetic(300, (0.7, 0.6))
    training(run, strategy, evaluate=Evaluate(test_fraction=0.5, repeats=3), epochs=1)(parties)
    found = changed(parties, encodings, 3)
    assert len(found) == 4
    if in_one_scaling:
        assert max(found) == 0
    else:
        assert min(found) > 0.1


@pytest.mark.parametrize("strategy", [*ROWS, "sampling"])
def test_predictions_read_the_rows_of_training(
    strategy: str, run: Any, synthetic: Any, encodings: list[tuple[str, str, PositionedInput]]
) -> None:
    parties = synthetic(300, (0.7, 0.6))
    both = training(run, strategy, evaluate=Evaluate(test_fraction=0.5, repeats=2), epochs=1)
    _, lab = both(parties)
    kept = SplitModel(both.train, Serve(to="both"), lab.weights, lab.encoder, lab.servable.state)
    side = Embedder(kept, parties.lab_view, parties.lab, torch.device("cpu"))
    first = next(inputs for party, _, inputs in encodings if party == "lab")  # that of the weights which are kept
    everything = np.arange(len(parties.people))
    ours, theirs = side.inputs.take(everything), first.take(everything)
    assert torch.equal(ours.numeric, theirs.numeric)
    assert torch.equal(ours.categorical, theirs.categorical)
