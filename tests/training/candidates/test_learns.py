"""What each method learns of candidates, with the control that the passive party's columns stand beside other records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.thorough import every
from vfl_node.job import Evaluate

ASKED = Evaluate(validation_fraction=0.1, metrics=("rmse", "r2"))


@pytest.fixture(name="gain", scope="module")
def gain_fixture(linked: Any, linked_run: Any, small: Any) -> Callable[[str, bool], Any]:
    """R² of a method less R² of the active party alone, and the result."""

    @cache
    def gain(method: str, permuted: bool) -> Any:
        layers = {} if method == "fedsim" else {"pair_outputs": 10, "channels": 8, "kernel": 7, "merge_hidden": (400,)}
        train = small.model_copy(update={"method": method, "epochs": 8, "dropout": 0.0, **layers})
        ours, theirs = linked_run(train=train, evaluate=ASKED)(
            linked(1000, 500, 8, permuted=permuted, labels=lambda x, mean: 0.6 * x + mean)
        )
        return ours.results.metrics["r2"] - ours.results.alone.metrics["r2"], ours, theirs

    return gain


@pytest.mark.parametrize(("method", "least"), every(2, [("fedsim", 0.3), ("mean", 0.3), ("feature", 0.05), ("top1", 0.0)]))
def test_it_learns_from_candidates_and_not_from_other_records(gain: Any, method: str, least: float) -> None:
    real, permuted = gain(method, False)[0], gain(method, True)[0]
    assert real > least
    assert permuted < 0.07
    assert real > permuted + 0.05


def test_weights_rise_with_similarity(gain: Any) -> None:
    _, ours, theirs = gain("fedsim", False)
    assert ours.section.spearman > 0
    assert theirs.section.spearman is None


def test_the_best_epoch_of_the_validation_rows_is_kept(gain: Any) -> None:
    _, ours, theirs = gain("fedsim", False)
    losses = [epoch.validation_loss for epoch in ours.epochs]
    assert ours.section.early_stopping.best_epochs == (int(np.argmin(losses)) + 1,)
    assert ours.section.early_stopping == theirs.section.early_stopping


def test_pairs_are_measured_beside_rows(gain: Any) -> None:
    """The means of a row's pairs vary less than they do: here they explain more."""
    _, ours, theirs = gain("feature", False)
    assert set(ours.section.pair_metrics) == {"rmse", "r2"}
    assert ours.section.pair_metrics["rmse"] > ours.results.metrics["rmse"]
    assert theirs.section.pair_metrics is None


@pytest.mark.parametrize(("classes", "metrics"), [(2, ("auc", "nll")), (3, ("accuracy", "nll"))])
def test_classes_are_learnt(linked: Any, linked_run: Any, small: Any, classes: int, metrics: Any) -> None:
    cuts = [0.0] if classes == 2 else [-0.5, 0.5]
    linkage = linked(1000, 500, 6, labels=lambda x, mean: np.digitize(mean, cuts).astype(np.float32))
    train = small.model_copy(update={"task": "classification", "classes": classes, "epochs": 6})
    ours, _ = linked_run(train=train, evaluate=Evaluate(metrics=metrics))(linkage)
    assert ours.results.metrics[metrics[0]] > ours.results.alone.metrics[metrics[0]] + 0.15


def test_exact_keys_join_one_record(linked: Any, linked_run: Any, small: Any) -> None:
    linkage = linked(600, 300, 1, labels=lambda x, mean: mean)
    linkage = linkage.without(np.random.default_rng(0).random((600, 1)) < 0.3)
    layers = {"pair_outputs": 10, "channels": 8, "kernel": 7, "merge_hidden": (400,)}
    train = small.model_copy(update={"method": "exact", "epochs": 8, "dropout": 0.0, **layers})
    ours, _ = linked_run(train=train)(linkage)
    assert ours.results.metrics["r2"] > ours.results.alone.metrics["r2"] + 0.3


def test_without_columns_of_its_own_the_active_party_learns_from_candidates_alone(
    linked: Any, linked_run: Any, small: Any
) -> None:
    linkage = linked(600, 300, 6, labels=lambda x, mean: mean)
    bare = replace(linkage, clinic=replace(linkage.clinic, columns={}))
    ours, _ = linked_run(train=small.model_copy(update={"epochs": 6}))(bare)
    assert ours.results.metrics["r2"] > 0.3
    assert ours.results.alone is None


def test_the_active_party_alone_learns_nothing_from_validation_rows(linked: Any, linked_run: Any, small: Any) -> None:
    """In one epoch, which is the best one whatever labels these rows have."""
    linkage, both = linked(100, 60, 3), linked_run(train=small.model_copy(update={"epochs": 1}), evaluate=ASKED)
    parts = both.schedule(linkage).parts(0, ASKED.test_fraction, ASKED.validation_fraction)

    def solo(changed: Any) -> dict[str, float]:
        labels = linkage.clinic.labels.copy()
        labels[changed] += 1 - 2 * (np.arange(len(changed)) % 2)  # their mean stays
        return both(replace(linkage, clinic=replace(linkage.clinic, labels=labels)))[0].results.alone.metrics

    unchanged = solo(parts.validation[:0])
    assert solo(parts.validation) == unchanged
    assert solo(parts.training[:10]) != unchanged


def test_metrics_are_in_the_targets_own_unit(linked: Any, linked_run: Any, small: Any) -> None:
    plain, large = (
        linked_run(train=small)(linked(labels=lambda x, mean, by=by: by * (0.6 * x + mean) + by))[0] for by in (1.0, 1e5)
    )
    assert large.results.metrics["rmse"] == pytest.approx(1e5 * plain.results.metrics["rmse"], rel=1e-3)
    assert large.results.metrics["r2"] == pytest.approx(plain.results.metrics["r2"], abs=1e-3)
