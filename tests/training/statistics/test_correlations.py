"""Correlations in shares are those of numpy over the shared records; noise of the size that is said covers one record."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from tests.training.shares_attempts import zeros
from vfl_node.crypto.shares.ring import decode
from vfl_node.gdp import mu_of
from vfl_node.job.costs import Beside
from vfl_node.training.statistics import columns as counted
from vfl_node.training.statistics import correlations, plan
from vfl_node.training.statistics.correlations import BESIDE, FRACTION, ColumnsTogether, noise_of, read_matrix, scale_rows


@pytest.mark.parametrize(("parties", "protocol"), [(2, "psu"), (3, "psi")])
def test_they_are_those_of_the_shared_records(
    world: Any, attempt: Any, monkeypatch: pytest.MonkeyPatch, parties: int, protocol: str
) -> None:
    monkeypatch.setattr(correlations, "draw_noise", zeros)
    monkeypatch.setattr(correlations, "noise_of", lambda mu, columns: 0.0)
    monkeypatch.setattr(correlations, "NUMBERS_AT_ONCE", 200)
    monkeypatch.setattr(correlations, "LENGTH", 100.0)  # no row is shrunk
    monkeypatch.setattr(counted, "_cut_ends", lambda values: values)
    over, of = world(parties, protocol, people=300), attempt({"correlations": True})
    results = of(over)
    rows = [row for row in of.plan(over).groups[0] if over.both[row]]
    parts = []
    for table, view in over.data.values():
        columns = [(each.values - each.values.mean()) / each.values.std() for each in table.columns.values()]
        parts.append(np.clip(np.stack(columns, axis=1), -3, 3)[view.rows[rows]])
    joined = np.concatenate(parts, axis=1)
    expected = np.corrcoef(joined.T)
    for name, result in zip(over.data, results, strict=True):
        found = result.section.compared
        assert np.array(found.correlations) == pytest.approx(expected, abs=2e-3)
        assert found.inflation == pytest.approx(np.diag(np.linalg.inv(expected)), rel=0.02)
        assert {each.party for each in found.columns if each.name} == {name}
        assert [each.party for each in found.scores] == list(over.data)
        assert found.correlations == results[0].section.compared.correlations
    assert (
        len({result.section.compared.model_copy(update={"columns": ()}) == results[0].section.compared for result in results})
        == 1
    )


def test_an_estimate_counts_them(world: Any, attempt: Any) -> None:
    over, of = world(2, "psu"), attempt({"correlations": True})
    active, passive = of(over)
    job = of.job(over)
    cost = job.train.make_plan(1, Beside(columns=(3, 4))).cost(job.evaluate, len(over), "psu")
    assert (cost.active_bytes, cost.passive_bytes) == (active.section.bytes, passive.section.bytes)
    assert cost.coordinator_bytes == active.section.dealer_bytes + passive.section.dealer_bytes


@pytest.mark.parametrize("columns", [(1, 1), (3, 9), (40, 1)])
def test_noise_covers_what_one_record_changes(columns: tuple[int, int]) -> None:
    """Of rows as large as they can be, the largest change of the upper half is below the deviation for μ = 1, and near it."""
    rng, total = np.random.default_rng(0), sum(columns)
    most = 0.0
    for _ in range(300):
        wild = rng.normal(size=(1, total)) * rng.choice([0.1, 1, 10, 1000], size=(1, total))
        label = rng.integers(0, 2, 1)
        row = _row(wild, label, columns[0])
        other = _row(-wild * rng.choice([1, 0.1]), 1 - label, columns[0])
        flipped = _row(wild, 1 - label, columns[0])
        for change in (row, row - other, row - flipped):
            most = max(most, float(np.sqrt((change[np.triu_indices(len(change))] ** 2).sum())))
    assert 0.2 < most / (noise_of(1.0, total)) <= 1.0


def _row(values: np.ndarray, label: np.ndarray, active: int) -> np.ndarray:
    parts = scale_rows(values[:, :active], label=label), scale_rows(values[:, active:])
    (row,) = np.concatenate([decode(part, FRACTION) for part in parts], axis=1)
    return np.outer(row, row)


def mix(
    rng: np.random.Generator, values: np.ndarray, labels: np.ndarray, epsilon: float | None, active: int
) -> ColumnsTogether:
    """What the matrix of these rows says, with the noise of an ε."""
    parts = scale_rows(values[:, :active], label=labels), scale_rows(values[:, active:])
    rows = np.concatenate([decode(part, FRACTION) for part in parts], axis=1)
    deviation = noise_of(mu_of(epsilon), values.shape[1]) if epsilon else 0.0
    noise = np.triu(rng.normal(size=(rows.shape[1],) * 2) * deviation)
    return read_matrix(rows.T @ rows + noise + np.triu(noise, 1).T, (active + BESIDE, values.shape[1] - active), deviation)


def test_the_area_is_about_that_of_a_logistic_regression() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=(20_000, 6))
    labels = (rng.random(20_000) < 1 / (1 + np.exp(1.5 - values @ [0.8, 0, -0.5, 0.6, 0.3, 0]))).astype(np.int64)
    for epsilon in (None, 1.0):
        found = mix(rng, values, labels, epsilon, 3)
        for area, end in zip(found.areas, (3, 6), strict=True):
            score = LogisticRegression(C=1e6).fit(values[:, :end], labels).decision_function(values[:, :end])
            assert area.value == pytest.approx(roc_auc_score(labels, score), abs=0.015)
            assert area.low <= area.value <= area.high


def test_the_area_of_columns_that_say_nothing_is_within_noise_of_a_half() -> None:
    """Of a rare label, where noise is large beside its deviation: of 40 draws .5 is within all intervals but for a few."""
    rng, outside, means = np.random.default_rng(2), 0, []
    for _ in range(40):
        values, labels = rng.normal(size=(20_000, 10)), (rng.random(20_000) < 0.05).astype(np.int64)
        for area in mix(rng, values, labels, 1.0, 5).areas:
            outside += area.low > 0.53  # of 10 columns of 1,000 positive records chance alone makes .52
            means.append(area.value)
    assert outside <= 8  # one in 20 of 80, and four deviations
    assert np.mean(means) < 0.6


def test_correlations_are_as_sure_as_is_said() -> None:
    """Also of a skewed column, which varies less once it is cut off: the deviation over 200 draws is as said, to a fifth."""
    rng = np.random.default_rng(3)
    values = np.stack([rng.normal(size=20_000), np.exp(2 * rng.normal(size=20_000))], axis=1)
    values[:, 1] = (values[:, 1] - np.clip(values[:, 1], *np.quantile(values[:, 1], (0.01, 0.99))).mean()) / values[:, 1].std()
    labels = rng.integers(0, 2, 20_000)
    found = [mix(rng, values, labels, 1.0, 1) for _ in range(200)]
    assert np.std([each.values[0, 1] for each in found]) == pytest.approx(
        np.mean([each.noise[0, 1] for each in found]), rel=0.2
    )


def test_a_copy_of_a_column_has_about_the_largest_inflation() -> None:
    rng = np.random.default_rng(4)
    values = rng.normal(size=(20_000, 4))
    values[:, 3] = values[:, 0]
    found = mix(rng, values, rng.integers(0, 2, 20_000), 1.0, 2)
    assert found.inflation[[0, 3]] == pytest.approx(found.most_inflation, rel=0.35)
    assert max(found.inflation[[1, 2]]) < 1.2
    assert mix(rng, values, rng.integers(0, 2, 20_000), None, 2).inflation[0] > 50  # rows are shrunk by each party


def test_nobody_shared_gives_no_figures() -> None:
    rng, widths = np.random.default_rng(2), (2 + BESIDE, 3)
    deviation = noise_of(1.0, 5)
    noise = np.triu(rng.normal(size=(7, 7)) * deviation)
    found = read_matrix(noise + np.triu(noise, 1).T, widths, deviation)
    assert np.isnan(found.values).all()
    assert np.isnan(found.inflation).all()
    assert all(area.value == 0.5 for area in found.areas)


def test_both_kinds_of_numbers_share_what_epsilon_allows(world: Any, attempt: Any) -> None:
    alone, both = (plan.StatisticsPlan(10, (2, 2), 3, (), 1.0, 5, correlations=more) for more in (False, True))
    assert both.deviation == pytest.approx(np.sqrt(2) * alone.deviation)
    assert both.deviation_of_products == pytest.approx(noise_of(mu_of(1.0) / np.sqrt(2), 4))
