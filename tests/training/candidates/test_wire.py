"""What crosses the wire, what it tells, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from experiments.linkage.partition import agreement, join, record_similarities
from vfl_node.errors import ProtocolError
from vfl_node.job import Evaluate
from vfl_node.job.costs import Beside
from vfl_node.training.candidates.costs import cost
from vfl_node.training.candidates.passive import deduplicate, mean_record
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2


def index_of(message: Any, rows: int, candidates: int) -> np.ndarray:
    return codec.decode(message.index, dtype=torch.int32, shape=(rows, candidates)).numpy()


def test_records_stand_in_the_order_in_which_they_come_first() -> None:
    distinct, index = deduplicate(np.array([[9, 2, -1], [2, 5, 9]]), mean=20)
    assert distinct.tolist() == [9, 2, 20, 5]
    assert index.tolist() == [[0, 1, 2], [1, 3, 0]]
    assert index.dtype == np.int32


def test_a_record_crosses_once_a_batch(linked: Any, linked_run: Any, small: Any) -> None:
    linkage, both = linked(), linked_run()
    ours, theirs = both(linkage)
    schedule, width = both.schedule(linkage), small.bottom[-1]
    parts = schedule.parts(0, both.evaluate.test_fraction, 0.0)
    batches = [of for epoch in range(small.epochs) for of in schedule.batches(0, epoch, parts.training, small.batch_size)]
    sent, back = both.sent(training_pb2.LinkedEmbeddings), both.sent(training_pb2.Gradient)
    for message, gradient, batch in zip(sent, back, batches, strict=False):
        unique = len(np.unique(linkage.lab_view.rows[batch]))
        assert unique < linkage.lab_view.rows[batch].size
        assert list(message.embeddings.shape) == list(gradient.tensor.shape) == [unique, width]
        assert len(message.embeddings.data) == len(gradient.tensor.data) == 4 * width * unique
        assert len(message.index.data) == 4 * batch.size * 6
    assert len(back) == len(batches) == ours.steps
    assert ours.section.embeddings == theirs.section.embeddings == sum(of.embeddings.shape[0] for of in sent)
    assert ours.section.places == 6 * (small.epochs * len(parts.training) + len(parts.testing))


def test_the_partition_by_equal_records_is_told_exactly(linked: Any, linked_run: Any, small: Any) -> None:
    """Documented: nothing hides it. What is not told is which record of the table each is."""
    linkage, both = linked(), linked_run()
    both(linkage)
    schedule = both.schedule(linkage)
    training = schedule.parts(0, both.evaluate.test_fraction, 0.0).training
    batch = schedule.batches(0, 0, training, small.batch_size)[0]
    index = index_of(both.sent(training_pb2.LinkedEmbeddings)[0], len(batch), 6).ravel()
    records = linkage.lab_view.rows[batch].ravel()
    np.testing.assert_array_equal(index[:, None] == index, records[:, None] == records)
    first = records[np.sort(np.unique(index, return_index=True)[1])]
    assert (np.diff(first) < 0).any(), "by their number in the table the order of embeddings would tell that of records"


def test_batches_of_several_epochs_join_to_almost_the_whole_partition(linked: Any, linked_run: Any, small: Any) -> None:
    """What a batch tells is joined over the rows that were in another batch before, so similarities are collected by record."""
    linkage, both = linked(), linked_run(train=small.model_copy(update={"epochs": 8}))
    both(linkage)
    training = both.schedule(linkage).parts(0, both.evaluate.test_fraction, 0.0).training
    batches = [of for epoch in range(8) for of in both.schedule(linkage).batches(0, epoch, training, small.batch_size)]
    messages = both.sent(training_pb2.LinkedEmbeddings)[: len(batches)]
    told = [(batch, index_of(message, len(batch), 6)) for batch, message in zip(batches, messages, strict=True)]
    truth = linkage.lab_view.rows[training]

    def groups(some: list[Any]) -> np.ndarray:
        return join(some, len(linkage.lab_view.rows), 6)[training]

    an_epoch = len(told) // 8
    assert agreement(groups(told[:an_epoch]), truth) < 0.5  # each row in one batch
    assert agreement(groups(told[: 2 * an_epoch]), truth) > 0.85
    assert agreement(groups(told), truth) > 0.99  # all but records in two rows that were never in one batch
    rng = np.random.default_rng(0)
    mixed = [(batch, rng.permutation(index.ravel()).reshape(index.shape)) for batch, index in told]
    assert agreement(groups(mixed), truth) < 0.1  # the control
    found, true = (record_similarities(linkage.clinic_view.similarities[training], of) for of in (groups(told), truth))
    collected = [{row[~np.isnan(row)].tobytes() for row in of} - {b""} for of in (found, true)]
    assert len(collected[0] & collected[1]) > 0.95 * len(collected[1])


def test_a_missing_candidate_is_the_mean_record(linked: Any, linked_run: Any, small: Any) -> None:
    linkage = linked()
    missing = np.random.default_rng(2).random((300, 6)) < 0.3
    missing[:20] = True  # rows without any
    linkage = linkage.without(missing)
    both = linked_run()
    ours, theirs = both(linkage)
    assert all(torch.isfinite(of).all() for part in (ours, theirs) for of in part.weights.values())
    assert all(np.isfinite(value) for value in ours.results.metrics.values())
    assert ours.rows == (240, 60)  # those without a candidate are trained on and measured on, too
    training = both.schedule(linkage).parts(0, both.evaluate.test_fraction, 0.0).training
    batch = both.schedule(linkage).batches(0, 0, training, small.batch_size)[0]
    index = index_of(both.sent(training_pb2.LinkedEmbeddings)[0], len(batch), 6)
    gone = missing[batch]
    (place,) = set(index[gone].tolist())
    assert place not in index[~gone]


def test_the_mean_record_is_the_mean_of_numbers_and_no_category(linked: Any) -> None:
    from vfl_node.data.features import Encoder

    table = linked().lab
    features = Encoder.fit(table, np.arange(len(table)), "standard").transform(table)
    mean = mean_record(features)
    np.testing.assert_allclose(mean.numeric[0], features.numeric.mean(axis=0), atol=1e-6)
    assert mean.categorical.tolist() == [[0]]
    assert features.numeric[0, 0] != mean.numeric[0, 0]


def _next_step(message: Any) -> None:
    message.step += 1


def _no_embedding(message: Any) -> None:
    message.embeddings.shape[0], message.embeddings.data = 0, b""


def _too_many(message: Any) -> None:
    message.embeddings.shape[0] = 1 << 40


def _beyond(message: Any) -> None:
    places = np.frombuffer(message.index.data, "<i4").copy()
    places[3] = message.embeddings.shape[0]
    message.index.data = places.tobytes()


def _below(message: Any) -> None:
    message.index.data = np.full(len(message.index.data) // 4, -1, "<i4").tobytes()


def _not_a_number(message: Any) -> None:
    message.embeddings.data = np.full(len(message.embeddings.data) // 4, np.nan, "<f4").tobytes()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (_next_step, "E_ORDER"),
        (_no_embedding, "E_SHAPE"),
        (_too_many, "E_SHAPE"),
        (_beyond, "E_SHAPE"),
        (_below, "E_SHAPE"),
        (_not_a_number, "E_NAN"),
    ],
)
def test_embeddings_that_do_not_fit_are_refused(linked: Any, linked_run: Any, change: Callable[[Any], None], code: str) -> None:
    both = linked_run(tamper=lambda message: change(message) if isinstance(message, training_pb2.LinkedEmbeddings) else None)
    ours, _ = both.raw(linked())
    assert isinstance(ours, ProtocolError)
    assert ours.code == code
    assert "lab" in ours.message


def test_a_gradient_of_another_shape_is_refused(linked: Any, linked_run: Any) -> None:
    def change(message: Any) -> None:
        if isinstance(message, training_pb2.Gradient):
            message.tensor.shape[:] = [message.tensor.shape[0] // 2, message.tensor.shape[1] * 2]

    _, theirs = linked_run(tamper=change).raw(linked())
    assert isinstance(theirs, ProtocolError)
    assert theirs.code == "E_SHAPE"


@pytest.mark.parametrize("evaluate", [{}, {"validation_fraction": 0.2}, {"repeats": 2, "test_fraction": 0.3}])
def test_costs_are_the_traffic_where_no_two_places_have_the_same_record(
    linked: Any, linked_run: Any, small: Any, evaluate: Any
) -> None:
    """So that all are counted; elsewhere they are the most."""
    linkage = linked(rows=60, records=400, candidates=3)
    apart = np.random.default_rng(0).permutation(400)[:180].reshape(60, 3)
    train = small.model_copy(update={"batch_size": 16, "patience": 3})
    asked = Evaluate(metrics=("rmse",), **evaluate)
    both = linked_run(train=train, evaluate=asked)
    from dataclasses import replace

    ours, _ = both(replace(linkage, lab_view=replace(linkage.lab_view, rows=apart)))
    expected = cost(train, asked, 60, Beside(3))
    passive = sum(of.ByteSize() for of in both.sent(training_pb2.LinkedEmbeddings))
    active = sum(of.ByteSize() for kind in (training_pb2.Gradient, training_pb2.EpochEnd) for of in both.sent(kind))
    steps = expected.steps - train.epochs * asked.repeats * (asked.validation_fraction > 0)
    assert (ours.rows[0], ours.steps) == (expected.rows, steps)
    assert passive == pytest.approx(expected.passive_bytes, rel=0.05)
    assert active == pytest.approx(expected.active_bytes, rel=0.15)  # frames, which are counted, are not in these messages
    few = cost(train, asked, 60, Beside(3, among=10))
    assert few.passive_bytes < expected.passive_bytes / 2
