"""Figures of columns are those of scipy and of the formulas by hand, and noise moves them by nothing on average."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2_contingency, ks_2samp

from vfl_node.alignment.alignment import Alignment
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import CategoricalColumn, NumericColumn, Table
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.training.statistics.columns import CountedColumns
from vfl_node.training.statistics.figures import (
    PooledCounts,
    diverge,
    find_evidence,
    measure_distance,
    measure_independence,
    pool,
)
from vfl_node.training.statistics.told import FIGURES, ToldColumns, fit_totals, tell_columns
from vfl_node.training.trainer import TrainingData

COUNTS = np.array([[900.0, 40.0], [700.0, 90.0], [500.0, 160.0], [300.0, 210.0], [90.0, 50.0]])
"""Of label 0 and 1 by bin; the last one has missing values."""


def together(counts: np.ndarray, least: float = 20, deviation: float = 0.0, *, ordered: bool = True) -> PooledCounts:
    return pool(counts, least, deviation, ordered=ordered)


def plain_value(counts: np.ndarray) -> float:
    totals = counts.sum(axis=0)
    return float((np.diff(counts / totals, axis=1) * np.diff(np.log((counts + 0.5) / totals), axis=1)).sum())


def test_information_value_and_evidence_are_the_usual_ones() -> None:
    pooled = together(COUNTS)
    value, noise = diverge(pooled.counts[:, 1], pooled.counts[:, 0], np.zeros(5))
    evidence = find_evidence(pooled)
    totals = COUNTS.sum(axis=0)
    assert (value, noise) == (pytest.approx(plain_value(COUNTS)), 0.0)
    assert evidence == pytest.approx(np.log((COUNTS[:, 1] + 0.5) / totals[1] / ((COUNTS[:, 0] + 0.5) / totals[0])))
    assert value == pytest.approx(float((np.diff(COUNTS / totals, axis=1)[:, 0] * evidence).sum()))


def test_chi_squared_is_that_of_scipy() -> None:
    found = chi2_contingency(COUNTS, correction=False)
    assert measure_independence(together(COUNTS), 0.0) == (pytest.approx(found.statistic), found.dof)


def test_distance_is_that_of_scipy() -> None:
    bins = np.arange(5).repeat(COUNTS[:, 0].astype(int)), np.arange(5).repeat(COUNTS[:, 1].astype(int))
    assert measure_distance(together(COUNTS), 0.0) == (pytest.approx(ks_2samp(*bins).statistic), 0.0)


MISSING = [100.0, 30.0]


@pytest.mark.parametrize(
    ("bins", "ordered", "place"),
    [
        ([[500, 60], [300, 8], [9, 30], [200, 50]], True, [0, 1, 1, 2]),
        ([[500, 60], [300, 8], [9, 30], [200, 50]], False, [1, 0, 0, 2]),
        ([[800, 3], [500, 60], [200, 50]], True, [0, 0, 1]),  # the safest interval joins the next one
        ([[500, 60], [200, 50], [30, 3]], True, [0, 1, 1]),  # and the last one the one before
        ([[500, 60], [3, 3], [200, 50]], False, [0, 0, 1]),  # rare levels, too few by themselves, join another one
        ([[500, 3], [400, 2]], True, [-1, -1]),
    ],
)
def test_bins_with_few_records_of_a_label_join_others(bins: list[list[float]], ordered: bool, place: list[int]) -> None:
    counts = np.array([*bins, MISSING], float)
    pooled = together(counts, ordered=ordered)
    missing = max(place) + 1
    assert pooled.place.tolist() == [*place, missing]
    assert pooled.counts[missing].tolist() == MISSING
    for group in range(missing):
        assert pooled.counts[group].tolist() == counts[:-1][np.array(place) == group].sum(axis=0).tolist()
    assert pooled.bins.tolist() == np.bincount(pooled.place[pooled.place >= 0]).tolist()
    evidence = find_evidence(pooled)
    assert len(set(evidence[pooled.place == 0])) <= 1


def test_few_missing_values_say_nothing() -> None:
    counts = np.array([[500.0, 60.0], [200.0, 50.0], [30.0, 3.0]])
    assert together(counts).place.tolist() == [0, 1, -1]
    assert find_evidence(together(counts))[-1] == 0.0


@pytest.mark.parametrize("counts", [np.zeros((4, 2)), np.array([[500.0, 3.0]] * 3), np.full((2, 2), -4.0)])
def test_what_has_too_few_records_says_nothing(counts: np.ndarray) -> None:
    pooled = together(counts)
    assert len(pooled.counts) == 0
    assert find_evidence(pooled).tolist() == [0.0] * len(counts)
    assert np.isnan(diverge(pooled.counts[:, 1], pooled.counts[:, 0], np.zeros(0))).all()
    assert np.isnan(measure_distance(pooled, 0.0)).all()
    value, freedom = measure_independence(pooled, 0.0)
    assert np.isnan(value)
    assert freedom == 0


def test_bins_need_more_records_than_noise_has() -> None:
    assert together(COUNTS).place.tolist() == [0, 1, 2, 3, 4]
    assert together(COUNTS, deviation=15.0).place.tolist() == [0, 0, 1, 2, 3]  # 40 is less than 45


@pytest.mark.parametrize("deviation", [4.0, 8.0])
def test_noise_moves_no_figure_on_average(deviation: float) -> None:
    """Over 4,000 draws: means within four standard errors, and the deviation that is said within a tenth."""
    rng, draws = np.random.default_rng(0), 4000
    values, said = [], []
    for _ in range(draws):
        pooled = together(COUNTS + rng.normal(scale=deviation, size=COUNTS.shape), 0)
        value, noise = diverge(pooled.counts[:, 1], pooled.counts[:, 0], deviation**2 * pooled.bins.astype(float))
        values.append(value)
        said.append(noise)
    error = np.std(values) / np.sqrt(draws)
    assert abs(np.mean(values) - plain_value(COUNTS)) < 4 * error + 0.002 * plain_value(COUNTS)
    assert np.mean(said) == pytest.approx(np.std(values), rel=0.1)


def test_without_the_correction_noise_would_make_columns_look_strong() -> None:
    """Counts of a column that says nothing: its value is 0, and noise alone would give .03."""
    rng, counts, deviation = np.random.default_rng(1), np.tile([400.0, 60.0], (8, 1)), 8.0
    noisy = [counts + rng.normal(scale=deviation, size=counts.shape) for _ in range(500)]
    plain = np.mean([plain_value(each) for each in noisy])
    mended = np.mean([diverge(each[:, 1], each[:, 0], np.full(8, deviation**2))[0] for each in noisy])
    assert plain > 0.015
    assert mended < 0.3 * plain


def test_chi_squared_of_a_column_that_says_nothing_is_as_by_chance_under_noise() -> None:
    """Multinomial counts with noise: p below .05 in 5 % of 1,000 columns, give or take four standard errors of .0069."""
    rng, deviation = np.random.default_rng(2), 10.0
    below = 0
    for _ in range(1000):
        counts = np.stack([rng.multinomial(4000, [1 / 6] * 6), rng.multinomial(900, [1 / 6] * 6)], axis=1)
        pooled = together(counts + rng.normal(scale=deviation, size=counts.shape), 0)
        value, freedom = measure_independence(pooled, deviation)
        below += value > 11.07  # 95 % of χ² with 5 degrees of freedom
        assert freedom == 5
    assert abs(below / 1000 - 0.05) < 4 * 0.0069


def test_all_columns_have_the_same_totals() -> None:
    rng = np.random.default_rng(3)
    noisy = np.stack([COUNTS, COUNTS[::-1], COUNTS]) + rng.normal(scale=5, size=(3, 5, 2))
    fitted = fit_totals(noisy, 5.0)
    assert np.ptp(fitted.sum(axis=1), axis=0) == pytest.approx([0, 0], abs=1e-9)
    assert fitted.sum(axis=1)[0] == pytest.approx(noisy.sum(axis=1).mean(axis=0))
    assert fit_totals(noisy, 0.0) is noisy


SAID = np.array([0.3, 0.01, 0.2, 0.02, 15.0, 4.0, 0.02])


@pytest.mark.parametrize(
    ("place", "value"),
    [("iv", -0.1), ("iv", 1e308), ("iv", np.inf), ("ks", 1.5), ("chi2", -1.0), ("freedom", 2.5), ("freedom", 1e9),
     ("freedom", -1.0), ("iv_noise", -0.1), ("stability", -0.1), ("stability", np.inf)],
)  # fmt: skip
def test_figures_that_cannot_be_are_refused(place: str, value: float) -> None:
    assert ToldColumns.from_values(np.tile(SAID, 2), 2).columns("lab")[1].iv == 0.3
    changed = SAID.copy()
    changed[FIGURES.index(place)] = value
    with pytest.raises(ValueError, match="no "):
        ToldColumns.from_values(changed, 1)


@pytest.mark.parametrize("columns", [1, 3])
def test_another_number_of_figures_is_refused(columns: int) -> None:
    with pytest.raises(ValueError, match="reshape"):
        ToldColumns.from_values(np.tile(SAID, 2), columns)


def tell(counts: np.ndarray, deviation: float, held_out: np.ndarray | None = None, levels: bool = False) -> ToldColumns:
    """The figures of one column with these numbers, [bins, 2], and none missing; its own table has the same."""
    own = counts.sum(axis=1).astype(int)
    values = np.repeat(np.arange(len(own)), own)
    cells = CategoricalColumn(values, tuple("abcdefghij"[: len(own)])) if levels else NumericColumn(values.astype(float))
    table = Table(Identifiers.from_items(b"%d" % row for row in range(len(values))), {"x": cells})
    columns = CountedColumns.fit(table, len(counts), 1)
    data = TrainingData(Alignment(ALIGNMENTS["psi"], "curve25519", np.arange(len(values)), len(values), {}), table)
    nothing = np.zeros((1, 2))
    groups = [np.concatenate([each, nothing])[None] for each in (counts, held_out) if each is not None]
    return tell_columns(columns, data, np.stack(groups), deviation, 20)


def test_figures_of_numbers_with_noise_are_near_those_without() -> None:
    """Of 300 draws: IV, KS and stability on average within a twentieth and .004 of what they are without noise."""
    rng, deviation = np.random.default_rng(4), 8.0
    moved = COUNTS[:, :] * np.array([[1.3], [1.1], [1.0], [0.8], [0.6]])
    plain = tell(COUNTS, 0.0, moved).figures[0]
    noisy = []
    for _ in range(300):
        counts, held_out = (each + rng.normal(scale=deviation, size=COUNTS.shape) for each in (COUNTS, moved))
        noisy.append(tell(np.maximum(counts, 0), deviation, held_out).figures[0])
    for name in ("iv", "ks", "stability"):
        place = FIGURES.index(name)
        assert np.nanmean(np.array(noisy)[:, place]) == pytest.approx(plain[place], rel=0.05, abs=0.004), name


def test_a_column_that_says_nothing_has_a_small_distance_under_noise() -> None:
    rng, counts, deviation = np.random.default_rng(5), np.tile([900.0, 100.0], (8, 1)), 20.0
    noisy = [together(counts + rng.normal(scale=deviation, size=counts.shape), 0) for _ in range(300)]
    plain = np.mean([measure_distance(each, 0.0)[0] for each in noisy])
    mended = np.mean([measure_distance(each, deviation)[0] for each in noisy])
    assert plain > 0.03
    assert mended < 0.6 * plain


def test_what_noise_swallows_is_not_said_to_be_nothing() -> None:
    told = tell(np.array([[500.0, 12.0], [300.0, 25.0], [200.0, 40.0]]), 30.0)
    (column,) = told.columns("lab")
    assert (column.iv, column.ks, column.chi2, column.freedom, column.p_value) == (None,) * 5
    assert {each.woe for each in column.bins} == {0.0}


def test_categories_have_no_distance() -> None:
    (column,) = tell(COUNTS[:4], 0.0, levels=True).columns("lab")
    assert column.ks is None
    assert column.iv == pytest.approx(plain_value(COUNTS[:4]), abs=1e-5)
