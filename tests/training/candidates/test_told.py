"""What gradients tell the passive party, as the ledger says it, with the controls."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from vfl_node.crypto.randomness import Randomness
from vfl_node.job import Evaluate
from vfl_node.metrics.classes import auc
from vfl_node.metrics.numbers import spearman
from vfl_node.models.initial_weights import initialise
from vfl_node.models.inputs import ModelInput
from vfl_node.models.schema import InputSchema
from vfl_node.training.candidates.network import ActiveNetwork
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2


@pytest.fixture(name="seen", scope="module")
def seen_fixture(linked: Any, linked_run: Any, small: Any) -> Any:
    """Of each step: gradients of records that stand at one place of the batch alone, the label there, and the similarity."""

    @cache
    def seen(method: str) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        linkage = linked(600, 3000, 4, labels=lambda x, mean: (x + mean > 0).astype(np.float32))
        layers = {} if method == "fedsim" else {"pair_outputs": 10, "channels": 8, "kernel": 7, "merge_hidden": (400,)}
        train = small.model_copy(update={"task": "classification", "method": method, "epochs": 6, "dropout": 0.0, **layers})
        both = linked_run(train=train, evaluate=Evaluate(metrics=("auc",)))
        both(linkage)
        schedule = both.schedule(linkage)
        training = schedule.parts(0, both.evaluate.test_fraction, 0.0).training
        batches = [of for epoch in range(6) for of in schedule.batches(0, epoch, training, train.batch_size)]
        steps = []
        pairs = zip(both.sent(training_pb2.LinkedEmbeddings), both.sent(training_pb2.Gradient), batches, strict=False)
        for embeddings, gradient, batch in pairs:
            index = codec.decode(embeddings.index, dtype=torch.int32, shape=(len(batch), 4)).numpy()
            shape = tuple(gradient.tensor.shape)
            gradients = codec.decode(gradient.tensor, dtype=torch.float32, shape=shape).numpy()
            rows, places = np.nonzero((np.bincount(index.ravel()) == 1)[index])
            of_row = gradients[index[rows, places]]
            steps.append((of_row, linkage.clinic.labels[batch][rows], linkage.clinic_view.similarities[batch][rows, places]))
        return steps

    return seen


def read(gradients: np.ndarray, labels: np.ndarray) -> float:
    """AUC, folded, of the leading direction of a step's gradients."""
    score = gradients @ np.linalg.svd(gradients, full_matrices=False)[2][0]
    found = auc(labels, score)
    assert found is not None
    return max(found, 1 - found)


@pytest.mark.parametrize("method", ["fedsim", "mean"])
def test_labels_of_rows_with_a_record_of_their_own_are_read_from_gradients(seen: Any, method: str) -> None:
    rng = np.random.default_rng(0)
    found = [(read(gradients, labels), read(gradients, rng.permutation(labels))) for gradients, labels, _ in seen(method)]
    assert np.mean([truth for truth, _ in found]) > 0.9
    assert np.mean([chance for _, chance in found]) < 0.62  # folded, of some hundred rows a step


def test_lengths_tell_of_similarities_where_weights_do(seen: Any) -> None:
    def told(method: str) -> float:
        lengths, similarities = zip(*((np.linalg.norm(of[0], axis=1), of[2]) for of in seen(method)[-8:]), strict=True)
        return float(np.mean([spearman(*of) for of in zip(lengths, similarities, strict=True)]))

    assert told("fedsim") > 0.15
    assert abs(told("mean")) < 0.1


@pytest.mark.parametrize(("method", "alike"), [("mean", True), ("feature", False)])
def test_pairs_that_are_samples_have_residuals_by_their_similarity(small: Any, method: str, alike: bool) -> None:
    """Of four records with equal columns beside one row."""
    layers = {"pair_outputs": 10, "channels": 8, "kernel": 7, "merge_hidden": (400,)}
    train = small.model_copy(update={"method": method, "dropout": 0.0, **layers})
    network = ActiveNetwork(train, InputSchema(1, ()), np.array([[-1, 1]], np.float32))
    initialise(network, Randomness(bytes(32)))
    received = torch.ones(4, train.bottom[-1], requires_grad=True)
    own = ModelInput(torch.ones(1, 1), torch.zeros(1, 0, dtype=torch.int64))
    given = network(own, received, torch.arange(4)[None], torch.tensor([[-3.0, -1.0, 1.0, 3.0]]))
    ((given - 5) ** 2).mean().backward()
    assert received.grad is not None
    lengths = received.grad.norm(dim=1).tolist()
    assert min(lengths) > 0
    assert (lengths == pytest.approx([lengths[0]] * 4)) == alike
    assert len({round(value, 4) for value in given.flatten().tolist()}) == (1 if alike else 4)


def test_a_gradient_of_zeros_says_that_a_record_is_no_nearest_one(seen: Any) -> None:
    zero = np.concatenate([(of[0] == 0).all(axis=1) for of in seen("top1")])
    assert zero.mean() == pytest.approx(3 / 4, abs=0.02)
    assert not any((of[0] == 0).all(axis=1).any() for of in seen("mean"))
