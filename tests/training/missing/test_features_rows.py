"""Rows made up from own ones: what they look like, and what tells them from real ones."""

from __future__ import annotations

import csv
import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Encoder, Features
from vfl_node.data.transforms import CLIP
from vfl_node.job.names import Scaling
from vfl_node.metrics.classes import auc
from vfl_node.models.initial_weights import initialise
from vfl_node.models.inputs import ModelInput
from vfl_node.models.networks import MlpBottom
from vfl_node.models.schema import InputSchema
from vfl_node.privacy.attacks import ATTACKS, distance_ratio
from vfl_node.privacy.attacks.transcript import Batch
from vfl_node.privacy.attacks.whole import follow
from vfl_node.privacy.equal_weights import audit_equal_weights
from vfl_node.training.split.missing.features import smoothed as smoothed
from vfl_node.training.split.missing.features.contract import synthetic_rows
from vfl_node.training.split.missing.features.filling import fill_in
from vfl_node.training.split.missing.features.rows import atoms, has_few_values
from vfl_node.training.split.missing.features.smoothed import LEAF, nearest_rows
from vfl_node.training.split.missing.section import Missing
from vfl_node.training.split.missing.strategies import FEATURES

OWN, SHARED = 1500, 2500
ROWS = [name for name in FEATURES if FEATURES[name].rows]


@pytest.fixture
def made(union: Any, columns: Any, randomness: Randomness) -> Any:
    """The rows that a strategy made up for the positions that are missing."""

    def make(strategy: str, own: Any = None, shared: int = SHARED) -> Features:
        own = columns(OWN) if own is None else own
        alignment = union(len(own.table), shared)
        used, source = fill_in(alignment, own.table, own.encoder, Missing(features=strategy), randomness)
        return used.take(source[~alignment.owned])

    return make


def cells(features: Features) -> NDArray[np.float64]:
    return np.hstack([features.numeric, features.categorical])


def gaps(rows: NDArray[Any], others: NDArray[Any]) -> NDArray[np.float64]:
    """Distance of each row to the nearest of ``others``."""
    given = (torch.from_numpy(each).double() for each in (rows, others))
    return torch.cdist(*given, compute_mode="donot_use_mm_for_euclid_dist").amin(dim=1).numpy()


def ties(features: Features) -> NDArray[np.float64]:
    """Rank correlations of the first five numeric columns and the first categorical one."""
    ranks = cells(features)[:, [0, 1, 2, 3, 4, -2]].argsort(axis=0).argsort(axis=0)
    return np.corrcoef(ranks.T)


@pytest.mark.parametrize("strategy", ROWS)
def test_own_rows_come_first_as_they_are_and_each_missing_position_has_one_more(
    strategy: str, union: Any, columns: Any, randomness: Randomness
) -> None:
    own, alignment = columns(OWN), union(OWN, SHARED)
    features = own.features
    used, source = fill_in(alignment, own.table, own.encoder, Missing(features=strategy), randomness)
    assert len(used) == OWN + alignment.missing
    assert (cells(used)[:OWN] == cells(features)).all()
    assert (source[alignment.owned] == alignment.rows[alignment.owned]).all()
    assert sorted(source[~alignment.owned]) == list(range(OWN, len(used)))
    assert (used.numeric.dtype, used.categorical.dtype, source.dtype) == (np.float32, np.int64, np.int64)
    assert used.cardinalities == features.cardinalities


@pytest.mark.parametrize("strategy", ROWS)
def test_the_row_at_a_position_is_one_draw_whoever_owns_the_others(
    strategy: str, view: Any, union: Any, columns: Any, randomness: Randomness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vfl_node.training.split.missing.features.filling._BLOCK", 700)  # several blocks, the last one smaller
    own, some, none = columns(OWN), union(OWN, SHARED), view(np.full(SHARED, -1))

    def at(alignment: Any, seed: bytes = b"p" * 32) -> NDArray[Any]:
        used, source = fill_in(alignment, own.table, own.encoder, Missing(features=strategy), Randomness(seed))
        return cells(used.take(source))[~some.owned]

    first = at(some)
    assert (at(some) == first).all()
    assert (at(none) == first).all()
    assert (at(some, b"q" * 32) != first).any(axis=1).mean() > 0.99
    assert len(np.unique(first, axis=0)) > 0.99 * len(first)  # not one block's draws again


@pytest.mark.parametrize("strategy", ROWS)
def test_made_up_cells_are_possible_ones(strategy: str, made: Any, columns: Any) -> None:
    own, rows = columns(OWN).features, made(strategy)
    assert np.isfinite(rows.numeric).all()
    assert np.abs(rows.numeric).max() <= CLIP
    assert (rows.numeric != 0).any(axis=1).all()
    assert set(np.unique(rows.numeric[:, -1])) == {0, 1}  # the indicator
    assert set(np.unique(rows.numeric[:, 4])) <= set(np.unique(own.numeric[:, 4]))  # the small count
    for column, codes in enumerate(rows.categorical.T):
        assert set(codes) == set(own.categorical[:, column])  # code 0 does not occur


def test_what_is_missing_and_what_many_rows_share_stays(made: Any, columns: Any) -> None:
    own, rows = columns(OWN).features, made("smoothed")
    value, absent = rows.numeric[:, 5], rows.numeric[:, 6]
    assert (value[absent == 1] == 0).all()
    assert (value[absent == 0] != 0).all()
    assert absent.mean() == pytest.approx(own.numeric[:, 6].mean(), abs=0.05)
    usual = own.numeric[:, 3].min()
    assert (rows.numeric[:, 3] == usual).mean() == pytest.approx((own.numeric[:, 3] == usual).mean(), abs=0.07)


def test_smoothed_rows_keep_the_joint_distribution(made: Any, columns: Any) -> None:
    own, rows = columns(OWN).features, made("smoothed")
    ours, theirs = (ties(f) for f in (own, rows))
    assert np.abs(ours - theirs).max() < 0.2
    for column in range(3):
        quantiles = (np.quantile(f.numeric[:, column], [0.1, 0.25, 0.5, 0.75, 0.9]) for f in (own, rows))
        assert np.allclose(*quantiles, atol=0.2)


def test_naive_cells_have_nothing_in_common_and_are_uniform(made: Any, columns: Any) -> None:
    given = columns(OWN)
    given = replace(given, encoder=Encoder.fit(given.table, np.arange(OWN)))  # another one would clip other cells
    own, rows = given.features, made("naive", given, OWN + 4000)
    together = np.delete(cells(rows), 5, axis=1)  # 0 where its indicator, which is drawn by itself, says missing
    assert np.abs(np.corrcoef(together.T) - np.eye(together.shape[1])).max() < 0.07  # 4 standard deviations of 4,000 rows
    assert np.abs(np.corrcoef(own.numeric[:, :3].T) - np.eye(3)).max() > 0.4
    for column in range(3):
        values = own.numeric[:, column]
        parts = (rows.numeric[:, column] - values.min()) / (values.max() - values.min())
        assert 0 <= parts.min() <= parts.max() <= 1 + 1e-6
        assert np.abs(np.sort(parts) - np.arange(4000) / 4000).max() < 0.03  # Kolmogorov–Smirnov at 10⁻³
    assert np.bincount(rows.categorical[:, 1], minlength=5)[1:].min() > 900
    assert rows.numeric[:, -1].mean() == pytest.approx(0.5, abs=0.03)
    assert ((rows.numeric[:, 5] == 0) == (rows.numeric[:, 6] == 1)).all()


def test_a_smoothed_row_varies_as_the_rows_around_it_do(plain: Any) -> None:
    """On a plane in six columns: it stays near the plane, at about the distance from it that real rows have."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 2)) @ rng.normal(size=(2, 6)) + 0.05 * rng.normal(size=(1000, 6))
    own = plain(x).features
    rows = synthetic_rows(FEATURES["smoothed"](), own, Randomness(b"p" * 32))(np.arange(1000), Randomness(b"b" * 32)).numeric
    across = np.linalg.svd(own.numeric - own.numeric.mean(axis=0))[2][2:]  # directions off the plane
    spread = [(of - own.numeric.mean(axis=0)) @ across.T for of in (own.numeric, rows)]
    assert spread[1].std() < 2 * spread[0].std()
    assert rows.std(axis=0) == pytest.approx(own.numeric.std(axis=0), rel=0.07)
    for column in range(6):
        assert set(rows[:, column]) <= set(own.numeric[:, column])  # every number occurs


def test_half_of_the_categories_are_a_near_rows_and_a_tenth_any_rows(plain: Any) -> None:
    own = plain(np.arange(400)[:, None] / 100, np.arange(1200).reshape(400, 3), (1200,) * 3).features
    smoothed = synthetic_rows(FEATURES["smoothed"](), own, Randomness(b"p" * 32))
    sources = np.repeat(np.arange(400), 20)
    found = smoothed(sources, Randomness(b"b" * 32)).categorical - own.categorical[sources]
    apart = np.abs(found) // 3  # rows lie along a line
    assert (apart == 0).mean() == pytest.approx(0.45, abs=0.02)
    assert (apart > 20).mean() == pytest.approx(0.09, abs=0.02)


def test_a_copied_row_has_a_twin_and_a_smoothed_one_has_none(union: Any, columns: Any, randomness: Randomness) -> None:
    own, alignment = columns(OWN), union(OWN, SHARED)
    for strategy, twins in {"sampling": 1.0, "smoothed": 0.0}.items():
        used, source = fill_in(alignment, own.table, own.encoder, Missing(features=strategy), randomness)
        found = gaps(cells(used.take(source[~alignment.owned])), cells(own.features)) == 0
        assert found.mean() == twins


@pytest.mark.parametrize(("mixed", "scaling"), [(False, "standard"), (True, "standard"), (False, "auto"), (True, "quantile")])
def test_attacks_find_copies_and_random_values_and_not_smoothed_rows(
    mixed: bool, scaling: Scaling, union: Any, columns: Any, randomness: Randomness
) -> None:
    own, alignment = columns(OWN, mixed=mixed), union(OWN, SHARED)
    encoder = Encoder.fit(own.table, np.arange(0, OWN, 2), scaling, least_rows=10)
    features = encoder.transform(own.table)
    bottom = MlpBottom(InputSchema(features.numeric.shape[1], features.cardinalities), (32, 32), embedding_size=4)
    initialise(bottom, Randomness(b"w" * 32))
    found: dict[str, dict[str, float]] = {}
    for strategy in ("sampling", "smoothed", "naive"):
        used, source = fill_in(alignment, own.table, encoder, Missing(features=strategy), randomness, scaling)
        seen = used.take(source)
        with torch.no_grad():
            embedding = bottom(ModelInput(torch.from_numpy(seen.numeric), torch.from_numpy(seen.categorical)))
        step = [Batch(0, np.arange(len(embedding)), embedding)]
        found[strategy] = {
            name: follow(ATTACKS[name], step, ~alignment.owned).score() or 0
            for name in ("collinear", "distance_ratio", "near_duplicate", "same_step_twin", "spectral")
        }
    assert found["sampling"]["near_duplicate"] > 0.68
    assert found["sampling"]["same_step_twin"] > 0.68
    assert found["naive"]["near_duplicate"] < (0.1 if scaling == "standard" else 0.3)  # far from any other
    assert all(value == pytest.approx(0.5, abs=0.1) for value in found["smoothed"].values())


@pytest.mark.parametrize("strategy", ROWS)
def test_copied_cells_are_real_ones_to_the_last_bit(strategy: str, made: Any, columns: Any) -> None:
    """Rounded on the way from one scaling to another, they would be known from real ones."""
    own, rows = columns(OWN).features, made(strategy)
    for column in (4, 6):  # the small count, the indicator
        assert set(rows.numeric[:, column]) <= set(own.numeric[:, column])
    if strategy != "naive":
        usual = own.numeric[:, 3].min()
        near_it = np.abs(rows.numeric[:, 3] - usual) < 1e-5
        assert near_it.mean() > 0.5
        assert (rows.numeric[near_it, 3] == usual).all()


@pytest.mark.parametrize("strategy", ROWS)
def test_small_and_strange_tables(strategy: str, made: Any, plain: Any) -> None:
    one = made(strategy, plain([[1.5, 0]], [[2]], (3,)), 4)
    assert (cells(one) == [[1.5, 0, 2]]).all()  # there is nothing else to go by
    alike = made(strategy, plain(np.ones((5, 1)), np.ones((5, 1)), (2,)), 8)
    assert (cells(alike) == 1).all()
    two = made(strategy, plain([[1.0], [2.0]]), 50)
    assert set(two.numeric[:, 0]) == {1.0, 2.0}  # two values: nothing between them
    no_numbers = made(strategy, plain(np.zeros((60, 0)), np.arange(120).reshape(60, 2) % 7 + 1, (8, 8)), 90)
    assert no_numbers.numeric.shape == (30, 0)
    assert no_numbers.categorical.min() >= 1
    assert made(strategy, plain(np.zeros((3, 0))), 5).width == 0


def test_near_rows_are_the_nearest_that_differ(plain: Any, randomness: Randomness) -> None:
    rng = np.random.default_rng(0)
    x, codes = rng.normal(size=(200, 3)), rng.integers(0, 3, (200, 2))
    twice = plain(np.vstack([x, x]), np.vstack([codes, codes]), (3, 3)).features
    rows = nearest_rows(twice, randomness, 5)
    distance = np.square(x[:, None] - x).sum(axis=2) + (codes[:, None] != codes).sum(axis=2)
    np.fill_diagonal(distance, np.inf)
    expected = np.sqrt(np.sort(distance, axis=1)[:, :5])
    for copy in (slice(0, 200), slice(200, 400)):
        found = np.sqrt(np.take_along_axis(distance, rows[copy] % 200, axis=1))
        assert np.allclose(found, expected, atol=1e-4)


def test_near_rows_of_a_large_table_are_found_in_parts(plain: Any, randomness: Randomness) -> None:
    x = np.random.default_rng(0).normal(size=(3 * LEAF, 2))
    rows = nearest_rows(plain(x).features, randomness, 5)
    assert (np.sort(rows, axis=1)[:, 1:] != np.sort(rows, axis=1)[:, :-1]).all()
    exact = torch.cdist(torch.from_numpy(x), torch.from_numpy(x)).fill_diagonal_(torch.inf).argmin(dim=1).numpy()
    assert (rows[:, 0] == exact).mean() > 0.9  # the others lie at a border between parts


def test_atoms_are_cells_that_only_a_copy_fits() -> None:
    rng = np.random.default_rng(0)
    smooth, missing = rng.normal(size=1000), rng.normal(size=1000)
    missing[7] = 0
    mostly = np.where(rng.random(1000) < 0.5, -0.3, rng.normal(size=1000))
    flag, rare = rng.integers(0, 2, 1000), np.arange(1000) == 5
    found = atoms(np.stack([smooth, missing, mostly, flag, rare], axis=1).astype(np.float32))
    assert list(found.sum(axis=0)) == [0, 1, (mostly == -0.3).sum(), 1000, 1000]
    assert has_few_values(np.arange(30, dtype=np.float32).repeat(10))
    assert not has_few_values(np.arange(30, dtype=np.float32).repeat(2))


@pytest.mark.parametrize(("chosen", "found"), [((0.7, 0.8, 0.3), 0.7), (None, 0.56)])
def test_in_many_independent_columns_the_row_that_it_is_drawn_around_stands_out_only_if_it_counts_for_much(
    chosen: tuple[float, ...] | None, found: float, randomness: Randomness, monkeypatch: pytest.MonkeyPatch
) -> None:
    if chosen:
        for name, value in zip(("OWN", "TOGETHER", "APART"), chosen, strict=True):
            monkeypatch.setattr(smoothed, name, value)
        monkeypatch.setattr(smoothed, "NEAR", 20)
    numbers = randomness.derive("numbers").normal((2000, 24))
    own = Features(numbers, np.zeros((2000, 0), dtype=np.int64), ())
    sources = randomness.derive("sources").choices(2000, 1000)
    both = own.append(
        synthetic_rows(FEATURES["smoothed"](), own, randomness.derive("made"))(sources, randomness.derive("drawn"))
    )
    bottom = MlpBottom(InputSchema(24), (128, 128))
    initialise(bottom, Randomness(b"w" * 32))
    with torch.no_grad():
        rows = bottom(ModelInput.from_tensors(torch.from_numpy(both.numeric)))
    assert auc(np.arange(3000) >= 2000, distance_ratio.scores(rows).numpy()) == pytest.approx(found, abs=0.04)


@pytest.mark.parametrize(
    ("files", "attack", "found"),
    [
        (("motor_hetero_guest", "motor_hetero_host"), "distance_ratio", 0.30),
        (("vehicle_scale_hetero_guest", "vehicle_scale_hetero_host"), "collinear", 0.34),
    ],
)
def test_on_small_tables_smoothed_rows_are_found_and_the_audit_says_so(
    files: tuple[str, ...], attack: str, found: float, shared_data: Path, randomness: Randomness
) -> None:
    """A few hundred rows: real ones have nearer relatives, or lie further out."""
    cells = [_numbers(shared_data / "fate_small" / f"{name}.csv.gz") for name in files]
    own = Features(np.hstack(cells).astype(np.float32), np.zeros((len(cells[0]), 0), dtype=np.int64), ())
    sources = randomness.derive("sources").choices(len(own), len(own) // 2)
    both = own.append(
        synthetic_rows(FEATURES["smoothed"](), own, randomness.derive("made"))(sources, randomness.derive("drawn"))
    )
    bottom = MlpBottom(InputSchema(own.width), (128, 128))
    initialise(bottom, Randomness(b"w" * 32))
    with torch.no_grad():
        rows = bottom(ModelInput.from_tensors(torch.from_numpy(both.numeric)))
    judged = audit_equal_weights(rows, np.arange(len(both)) >= len(own), Randomness(b"a" * 32))
    assert judged.attacks[attack] == pytest.approx(found, abs=0.05)


def _numbers(path: Path) -> NDArray[np.float64]:
    """Standardised columns, without ids and labels."""
    with gzip.open(path, "rt") as file:
        table = list(csv.DictReader(file))
    names = [name for name in table[0] if name.lower() not in ("id", "y", "sid", "idx", "label", "")]
    values = np.array([[float(row[name]) for name in names] for row in table])
    return (values - values.mean(axis=0)) / values.std(axis=0)
