"""Nothing about the form of a message says which of its rows are synthetic: shape, dtype, zeros, order, time of arrival."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from tests.thorough import every
from vfl_node.training.split.config import Train
from vfl_node.training.split.missing.section import Missing
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2

STRATEGIES = [
    ("majority", "sampling"),
    ("minority", "smoothed"),
    ("random-pos", "smoothed"),
    ("random-pred", "gaussian"),
    ("neighbors", "random"),
    ("majority", "naive"),
]


def training(labels: str, features: str, **options: Any) -> Train:
    return Train(
        bottom=(32, 16),
        active_bottom=(8,),
        top=(16,),
        epochs=2,
        batch_size=100,
        missing=Missing(labels=labels, features=features),
        **options,
    )


def forms(both: Any) -> list[tuple[str, int, tuple[int, ...], str]]:
    """Type, bytes, shape and dtype of every message, in the order in which they are sent."""
    found = []
    for message in both.transcript:
        tensor = getattr(message, "tensor", training_pb2.Tensor())
        found.append((type(message).__name__, message.ByteSize(), tuple(tensor.shape), tensor.dtype))
    return found


@pytest.mark.parametrize(("labels", "features"), every(2, STRATEGIES))
def test_the_form_of_the_conversation_does_not_depend_on_who_owns_what(
    synthetic: Callable[..., Any], run: Any, labels: str, features: str
) -> None:
    """Another owner of each row: the same messages, of the same sizes, in the same order; all rows of a batch come in one."""
    one, other = run(train=training(labels, features)), run(train=training(labels, features))
    parties = synthetic(500, (0.9, 0.6))
    theirs = synthetic(500, (0.6, 0.9))
    assert len(parties.people) == len(theirs.people)
    one(parties)
    other(theirs)
    assert forms(one) == forms(other)
    steps = [name for name, *_ in forms(one) if name in ("Embedding", "Gradient")]
    trained = 2 * -(-(len(parties.people) - 100) // 100)
    assert steps[: 2 * trained] == ["Embedding", "Gradient"] * trained


OPTIONS: list[dict[str, Any]] = [{}, {"layer_norm": True}, {"batch_norm": True, "dropout": 0.3}]


@pytest.mark.parametrize(("options", "features"), every(5, list(product(OPTIONS, ["sampling", "smoothed"]))))
def test_synthetic_rows_of_an_embedding_have_as_many_zeros_as_real_ones(
    synthetic: Callable[..., Any], run: Any, features: str, options: dict[str, Any]
) -> None:
    """A ReLU leaves zeros in every row; their share, and the norm, is that of real rows within five standard errors."""
    both = run(train=training("majority", features, **options))
    parties = synthetic(2000, (0.9, 0.6))
    both(parties)
    schedule = both.schedule(parties)
    rows, _ = schedule.split(0, both.evaluate.test_fraction)
    sent = [message.tensor for message in both.transcript if isinstance(message, training_pb2.Embedding)]
    zeros, norms, real = [], [], []
    for positions, tensor in zip(schedule.batches(0, 0, rows, 100), sent, strict=False):
        embedding = codec.decode(tensor, dtype=torch.float32, shape=(len(positions), 16))
        zeros.append((embedding == 0).double().mean(dim=1).numpy())
        norms.append(embedding.double().norm(dim=1).numpy())
        real.append(parties.lab_view.owned[positions])
    owned = np.concatenate(real)
    for values in (np.concatenate(zeros), np.concatenate(norms)):
        error = values.std() * np.sqrt(1 / owned.sum() + 1 / (~owned).sum())
        assert values[owned].mean() == pytest.approx(values[~owned].mean(), abs=5 * error)
        assert np.ptp(values[~owned]) > 0.5 * np.ptp(values[owned])


def test_an_embedding_drawn_at_random_has_no_zeros_and_so_is_known(synthetic: Callable[..., Any], run: Any) -> None:
    """The control: behind a ReLU no real row is without a zero, and what is drawn from a normal distribution is."""
    both = run(train=training("majority", "gaussian"))
    parties = synthetic(500, (0.9, 0.6))
    both(parties)
    schedule = both.schedule(parties)
    rows, _ = schedule.split(0, both.evaluate.test_fraction)
    first = next(message.tensor for message in both.transcript if isinstance(message, training_pb2.Embedding))
    positions = schedule.batches(0, 0, rows, 100)[0]
    without = (codec.decode(first, dtype=torch.float32, shape=(100, 16)) != 0).all(dim=1).numpy()
    assert np.array_equal(without, ~parties.lab_view.owned[positions])
