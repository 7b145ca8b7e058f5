from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from vfl_node.metrics.classes import auc
from vfl_node.privacy.attacks import residuals
from vfl_node.privacy.attacks.residuals import Round

Train = Callable[..., Any]


def found(asymmetric: Train, *sizes: int, seeds: int = 2, **options: int) -> float:
    """The mean AUC of the attack by size."""
    aucs = []
    for seed in range(seeds):
        made = asymmetric(*sizes, seed=seed, **options)
        scores = residuals.scores(made.x, made.rounds)
        met = ~np.isnan(scores)
        aucs.append(auc(made.genuine[met], scores[met]) or 0)
    return fmean(aucs)


def responding(asymmetric: Train, m: int, own: int, *, known: bool = False) -> float:
    """The mean AUC of the attack by response, from 40 of 200 rounds."""
    aucs = []
    for seed in range(3):
        made = asymmetric(m, 15, 200, own=own, seed=seed)
        some = np.linspace(0, 199, 40).astype(int)
        options = {"intercepts": made.intercepts[some], "smallest": 1e-8} if known else {}
        gradients = np.array([made.rounds[i].gradient for i in some])
        aucs.append(auc(made.genuine, residuals.response(made.x, made.weights[some], gradients, **options)) or 0)
    return fmean(aucs)


@pytest.mark.parametrize("width", [15, 40])
def test_a_full_batch_of_twenty_rows_a_column_is_at_chance(asymmetric: Train, width: int) -> None:
    assert 0.47 <= found(asymmetric, 2000, width, 100) <= 0.55


def test_small_batches_and_wide_tables_are_not(asymmetric: Train) -> None:
    large, medium, small = (found(asymmetric, 2000, 15, 400, batch=batch, seeds=1) for batch in (128, 32, 16))
    assert 0.6 < large < medium < small
    assert found(asymmetric, 400, 150, 100) > 0.6


def test_a_batch_of_no_more_rows_than_columns_is_solved_exactly(asymmetric: Train) -> None:
    for batch in (12, 15):
        made = asymmetric(200, 15, 5, batch=batch)
        for round_, sent in zip(made.rounds, made.residuals.T, strict=True):
            of = made.x[round_.rows]
            assert residuals.leverages(of) == pytest.approx(np.ones(batch))
            solved = residuals.solve(of, round_.gradient)
            assert solved == pytest.approx(sent[round_.rows], abs=1e-9)
            assert ((np.abs(solved) > 1e-9) == made.genuine[round_.rows]).all()


def test_one_row_more_than_columns_is_not(asymmetric: Train) -> None:
    made = asymmetric(200, 15, 1, batch=16)
    (round_,), (sent,) = made.rounds, made.residuals.T
    of = made.x[round_.rows]
    assert residuals.leverages(of).sum() == pytest.approx(15)
    assert residuals.leverages(of).max() < 1 - 1e-6
    solved = residuals.solve(of, round_.gradient)
    assert of.T @ solved == pytest.approx(round_.gradient)
    assert np.abs(solved - sent[round_.rows]).max() > 1e-3


def test_in_a_full_batch_a_row_that_alone_fills_a_column_is_read_exactly(asymmetric: Train) -> None:
    x = np.random.default_rng(5).normal(size=(1000, 15))
    alone = [3, 14, 159, 265, 358, 979]
    x[:, :6] = 0
    x[alone, range(6)] = 1
    made = asymmetric(1000, 15, 1, x=x)
    leverage = residuals.leverages(x)
    assert np.flatnonzero(leverage > 1 - 1e-9).tolist() == alone
    assert np.sort(leverage)[-7] < 0.1
    solved = residuals.solve(x, made.rounds[0].gradient)
    assert solved[alone] == pytest.approx(made.residuals[alone, 0], abs=1e-12)
    assert {True, False} == set(made.genuine[alone])  # it tells both kinds
    assert ((np.abs(solved[alone]) > 1e-9) == made.genuine[alone]).all()


def test_a_rank_below_the_columns_is_no_obstacle(asymmetric: Train) -> None:
    x = np.random.default_rng(6).normal(size=(40, 5))
    made = asymmetric(40, 8, 1, x=np.hstack([x, x[:, :2], np.zeros((40, 1))]))
    assert residuals.leverages(made.x).sum() == pytest.approx(5)
    assert made.x.T @ residuals.solve(made.x, made.rounds[0].gradient) == pytest.approx(made.rounds[0].gradient)


def test_scores_do_not_depend_on_the_scale_and_skip_rows_never_met() -> None:
    x = np.random.default_rng(7).normal(size=(6, 2))
    rounds = [Round(np.array([0, 1, 2]), np.array([1.0, 2.0])), Round(np.array([2, 4, 5]), np.array([0.5, 0.0]))]
    scores = residuals.scores(x, rounds)
    assert np.flatnonzero(np.isnan(scores)).tolist() == [3]
    larger = residuals.scores(x, [Round(of.rows, 7 * of.gradient) for of in rounds])
    assert larger == pytest.approx(49 * scores, nan_ok=True)
    alone = residuals.scores(x, rounds[:1])
    assert (alone[:2] == scores[:2]).all()


def test_an_active_party_without_features_gives_dummies_away_by_response(asymmetric: Train) -> None:
    assert responding(asymmetric, 300, own=0) > 0.66
    assert responding(asymmetric, 300, own=0, known=True) > 0.85


def test_features_or_a_column_of_noise_of_its_own_hide_them(asymmetric: Train) -> None:
    for own, most in (1, 0.62), (15, 0.56):
        for known in (False, True):
            assert responding(asymmetric, 300, own=own, known=known) < most
