"""The AUC by epoch: whose rows it counts, when it is taken, and that it costs the peer nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from vfl_node.job import Evaluate
from vfl_node.training.split import active as half
from vfl_node.training.split.missing.section import Missing

Make = Callable[..., Any]


@pytest.mark.parametrize("calibration", ["none", "train", "test"])
def test_while_weights_stand_still_it_is_the_auc_that_evaluating_on_the_training_rows_gives(
    synthetic: Make, run: Any, calibration: str
) -> None:
    """So it counts the rows that the active party owns and no others, scored as the evaluation scores them."""
    parties = synthetic(300, (0.6, 0.7))
    both = run(evaluate=Evaluate(test_fraction=0))
    still = {"learning_rate": 1e-30, "optimizer": "sgd", "missing": Missing(calibration=calibration)}
    both.train = both.train.model_copy(update=still)
    active, _ = both(parties)
    assert [epoch.auc for epoch in active.epochs] == pytest.approx([active.results.metrics["auc"]] * 3, abs=1e-3)


def test_it_rises_as_the_model_learns_and_lies_above_chance(synthetic: Make, run: Any) -> None:
    active, _ = run()(synthetic(1500))
    aucs = [epoch.auc for epoch in active.epochs]
    assert aucs == sorted(aucs)
    assert aucs[-1] > 0.75


def test_labels_without_a_pattern_leave_it_near_chance(federation: Make, run: Any) -> None:
    """Rows are scored before they are trained on in an epoch, so the first one cannot flatter the model."""
    rng, n = np.random.default_rng(0), 2000
    columns = {"x": rng.normal(size=n)}, {"z": rng.normal(size=n)}, rng.integers(0, 2, n)
    active, _ = run()(federation(*columns, np.ones(n, bool), np.ones(n, bool)))
    assert active.epochs[0].auc == pytest.approx(0.5, abs=0.05)


def test_it_is_computed_in_the_first_repeat_only(synthetic: Make, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    measured = half.measure

    def measure(names: Sequence[str], labels: Any, scores: Any) -> dict[str, float | None]:
        if names == ("auc",):
            calls.append(len(labels))
        return measured(names, labels, scores)

    monkeypatch.setattr(half, "measure", measure)
    parties = synthetic()
    both = run(evaluate=Evaluate(repeats=3))
    active, _ = both(parties)
    training, _ = both.schedule(parties).split(0, 0.2)
    assert calls == [np.count_nonzero(parties.clinic_view.owned[training])] * 3
    assert all(epoch.auc is not None for epoch in active.epochs)


def test_a_job_that_asks_for_no_auc_has_none_and_otherwise_the_same_bits(synthetic: Make, run: Any) -> None:
    parties = synthetic()
    asking, other = run(evaluate=Evaluate(metrics=("auc",))), run(evaluate=Evaluate(metrics=("nll",)))
    with_auc, without = asking(parties)[0], other(parties)[0]
    assert all(epoch.auc is not None for epoch in with_auc.epochs)
    assert all(epoch.auc is None for epoch in without.epochs)
    assert asking.transcript == other.transcript
    assert all(torch.equal(tensor, without.weights[name]) for name, tensor in with_auc.weights.items())


def test_labels_of_one_class_leave_it_undefined_at_both_parties(federation: Make, run: Any) -> None:
    n = 40
    columns = {"x": np.linspace(-1, 1, n)}, {"z": np.linspace(1, 0, n)}, np.zeros(n)
    told = run(evaluate=Evaluate(share_with_passive=True))(federation(*columns, np.ones(n, bool), np.ones(n, bool)))
    for result in told:
        assert all(epoch.auc is None and epoch.loss is not None for epoch in result.epochs)
