"""Class weights in the flows that compute residuals in clear: as if rows of a class were there several times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from vfl_node.job import Evaluate
from vfl_node.training.glm import plain

TIMES = (1.0, 3.0, 2.0)


def repeated(labels: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return np.repeat(rows, np.array(TIMES, dtype=int)[labels[rows].astype(int)])


@pytest.mark.parametrize("flow", ["two-party", "coordinator-open-scores"])
@pytest.mark.parametrize("loss", ["exact", "taylor"])
@pytest.mark.parametrize("classes", [2, 3])
def test_it_equals_plaintext_with_rows_repeated(
    attempt: Any, shared: Any, logistic: Any, difference: Any, monkeypatch: Any, flow: str, loss: str, classes: int
) -> None:
    over, weights = shared(classes=classes), TIMES[:classes]
    made = attempt(logistic(flow=flow, loss=loss, classes=classes, class_weight=weights, l2=0.05))
    results = made(over)
    unweighted = made.reference(over)
    fit = plain.fit

    def with_repeats(parts: Any, labels: Any, *given: Any, batches: Any, **rest: Any) -> plain.Fit:
        return fit(parts, labels, *given, batches=[repeated(labels, rows) for rows in batches], **rest)

    monkeypatch.setattr(plain, "fit", with_repeats)
    expected = made.reference(over)
    assert difference(results, expected) < 1e-9
    assert difference(results, unweighted) > 1e-3
    np.testing.assert_allclose([epoch.loss for epoch in results[0].epochs], expected.losses, atol=1e-9)
    (text,) = (entry.text for entry in results[1].disclosures["lab"] if entry.what == "gradient")
    assert text.endswith("how many are genuine, roughly. Residuals are weighted by class (train.class_weight)")


def test_balanced_weights_are_those_of_the_genuine_rows_trained_on(
    attempt: Any, shared: Any, logistic: Any, difference: Any
) -> None:
    over = shared(rows=60, genuine=40, classes=2)
    balanced = attempt(logistic(class_weight="balanced"), evaluate=Evaluate(test_fraction=0.25))
    training, _ = balanced.schedule(over).split(0, 0.25)
    labels = over.labels[training[over.genuine[training]]]
    weights = tuple(len(labels) / (2 * np.count_nonzero(labels == k)) for k in (0, 1))
    given = attempt(logistic(class_weight=weights), evaluate=Evaluate(test_fraction=0.25))
    results, same = balanced(over), given(over)
    for one, other in zip(results, same, strict=True):
        for name, tensor in one.weights.items():
            np.testing.assert_allclose(tensor.numpy(), other.weights[name].numpy(), atol=1e-12)
    assert results[0].results.alone.metrics == pytest.approx(same[0].results.alone.metrics)
    (text,) = (entry.text for entry in results[1].disclosures["lab"] if entry.what == "gradient")
    assert "weighted by class, by how frequent it is among the labels, (train.class_weight)" in text


def test_plaintext_with_weights_equals_rows_repeated() -> None:
    rng = np.random.default_rng(3)
    x, labels = rng.normal(size=(50, 3)), rng.integers(3, size=50).astype(np.float32)
    rest: dict[str, Any] = {"loss": plain.LOSSES["exact"], "l2": 0.1, "learning_rate": 0.5, "iterations": 9, "tolerance": 0.0}
    start = [np.zeros((3, 3))]
    weighted = plain.fit([x], labels, start, row_weights=np.array(TIMES)[labels.astype(int)], **rest)
    rows = repeated(labels, np.arange(50))
    expected = plain.fit([x[rows]], labels[rows], start, **rest)
    np.testing.assert_allclose(weighted.weights[0], expected.weights[0], atol=1e-12)
    np.testing.assert_allclose(weighted.intercepts, expected.intercepts, atol=1e-12)
    np.testing.assert_allclose(weighted.losses, expected.losses, atol=1e-12)


def test_residuals_of_encrypted_scores_have_no_weights(logistic: Any) -> None:
    with pytest.raises(ValidationError, match="class_weight needs flow: two-party or coordinator-open-scores: in flow"):
        logistic(flow="coordinator", loss="taylor", class_weight="balanced")
    with pytest.raises(ValidationError, match="class_weight has 3 weights, and the job has 2 classes"):
        logistic(class_weight=TIMES)
