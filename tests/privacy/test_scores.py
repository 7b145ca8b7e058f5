from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from vfl_node.privacy.attacks import scores

Train = Callable[..., Any]
WIDTH, RATE = 8, 0.5


def error(asymmetric: Train, rounds: int, known: int) -> float:
    """The largest of the entries of rows not known, from scores of so many rounds."""
    made = asymmetric(400, WIDTH, rounds)
    rows = np.arange(known)
    return float(np.abs(scores.extend(made.scores[:, :rounds], rows, made.x[rows]) - made.x)[known:].max())


def test_some_rows_and_as_many_rounds_as_columns_give_all_rows(asymmetric: Train) -> None:
    assert error(asymmetric, 60, 2 * WIDTH) < 1e-6
    assert error(asymmetric, 60, WIDTH) < 1e-5
    assert error(asymmetric, WIDTH, 2 * WIDTH) < 1e-3


def test_fewer_rounds_or_fewer_rows_do_not(asymmetric: Train) -> None:
    assert error(asymmetric, WIDTH - 1, 2 * WIDTH) > 0.5
    assert error(asymmetric, 60, WIDTH - 1) > 0.5


@pytest.mark.parametrize("l2", [0.0, 0.01])
def test_residuals_and_scores_give_all_distances_without_a_known_row(asymmetric: Train, l2: float) -> None:
    made = asymmetric(400, WIDTH, 100, l2=l2)
    found = scores.rotate(made.scores, made.residuals, RATE, l2)
    assert found.shape == made.x.shape
    assert found @ found.T == pytest.approx(made.x @ made.x.T, abs=1e-4)
    turn, *_ = np.linalg.lstsq(found, made.x, rcond=None)
    assert turn @ turn.T == pytest.approx(np.eye(WIDTH), abs=1e-4)
    assert np.abs(found - made.x).max() > 0.5  # and no more than that


def test_the_wrong_residuals_or_few_rounds_give_no_distances(asymmetric: Train) -> None:
    made = asymmetric(400, WIDTH, 100)
    true = made.x @ made.x.T
    foreign = scores.rotate(made.scores, made.residuals[np.random.default_rng(1).permutation(400)], RATE)
    assert np.abs(foreign @ foreign.T - true).max() > 0.5
    few = scores.rotate(made.scores[:, : WIDTH - 1], made.residuals[:, : WIDTH - 2], RATE)
    assert np.abs(few @ few.T - true).max() > 0.5
