from __future__ import annotations

from statistics import NormalDist
from typing import get_args

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from vfl_node.data.features import Encoder
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.data.transforms import (
    CLIP,
    MOST_KNOTS,
    MOST_UNSCALED,
    Quantile,
    SignedLog,
    Standard,
    Transform,
    Unscaled,
    choose_scaling,
    fit,
    is_squeezed,
)
from vfl_node.job.names import Scaling

STEADY = settings(deadline=None, derandomize=True)

NAN = float("nan")

SCALINGS: tuple[Scaling, ...] = get_args(Scaling)
STORED: TypeAdapter[Transform] = TypeAdapter(Transform)

BOUND = {"standard": CLIP, "quantile": 5.4, "log": CLIP, "none": MOST_UNSCALED}

HARD = st.one_of(
    st.just(NAN),
    st.sampled_from([0.0, -0.0, 1.0, 1e308, -1e308, 5e-324, -5e-324, 1e-300]),  # ties, and the ends of what a float is
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-3, 3).map(float),
)


def array(values: list[float]) -> NDArray[np.float64]:
    return np.array(values, dtype=np.float64)


@STEADY
@given(st.sampled_from(SCALINGS), st.lists(HARD, max_size=30), st.lists(HARD, min_size=1, max_size=30))
def test_whatever_the_numbers_results_are_finite_bounded_and_ascend(
    scaling: Scaling, fitted: list[float], values: list[float]
) -> None:
    transform = fit(array(fitted), scaling)
    found = transform.apply(array(values))
    assert np.isfinite(found).all()
    assert (np.abs(found) <= BOUND[transform.method]).all()
    assert (found[np.isnan(values)] == 0).all()
    ordered = transform.apply(np.sort(array(values)[~np.isnan(values)]))
    assert (np.diff(ordered) >= -1e-9 * max(1.0, np.abs(ordered).max(initial=0))).all()  # a logarithm rounds


@STEADY
@given(st.sampled_from(SCALINGS), st.lists(HARD, max_size=30))
def test_what_is_stored_reads_back_to_the_last_bit(scaling: Scaling, fitted: list[float]) -> None:
    transform = fit(array(fitted), scaling)
    assert STORED.validate_json(STORED.dump_json(transform)) == transform


@STEADY
@given(st.sampled_from(SCALINGS), st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_undone_a_fitted_number_is_itself_up_to_rounding(scaling: Scaling, fitted: list[float]) -> None:
    values = array(fitted)
    transform = fit(values, scaling)
    assume(transform.method == "quantile" or np.abs(transform.apply(values)).max() < BOUND[transform.method])
    np.testing.assert_allclose(transform.undo(transform.apply(values)), values, rtol=1e-6, atol=1e-6 * np.abs(values).max())


@STEADY
@given(st.sampled_from(SCALINGS), st.sampled_from(SCALINGS), st.lists(HARD, min_size=1, max_size=30), st.integers(0, 30))
def test_a_copied_cell_becomes_what_another_encoder_makes_of_it_to_the_last_bit(
    one: Scaling, other: Scaling, values: list[float], fitted: int
) -> None:
    table = Table(Identifiers.from_items(b"%d" % row for row in range(len(values))), {"x": NumericColumn(array(values))})
    rows = np.arange(len(values))
    whole, some = Encoder.fit(table, rows, one), Encoder.fit(table, rows[:fitted], other)
    made, expected = whole.transform(table), some.transform(table).numeric
    found = whole.translate(made, some, table).numeric
    group = np.unique(made.numeric, axis=0, return_inverse=True)[1].ravel()
    alike = np.array([len({v for v, g in zip(values, group, strict=True) if g == of}) for of in group])
    assert found[alike == 1].tobytes() == expected[alike == 1].tobytes()
    assert set(found[:, 0].tolist()) <= set(expected[:, 0].tolist())  # of several cells with one encoding one stands for all


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("values", [[], [NAN, NAN], [7.0], [7.0] * 9, [-1e308] * 3, [0.0] * 4])
def test_a_column_that_does_not_vary_becomes_zero(scaling: Scaling, values: list[float]) -> None:
    transform = fit(array(values), scaling)
    if scaling != "none":
        np.testing.assert_allclose(transform.apply(array([*values, NAN])), 0, atol=1e-12)


def test_ranks_become_normal_scores_whatever_the_tail() -> None:
    rng = np.random.default_rng(0)
    values = np.exp(4 * rng.normal(size=20_000))
    transform = Quantile.fit(values)
    assert len(transform.knots) == MOST_KNOTS
    found = np.sort(transform.apply(values))
    expected = np.array([NormalDist().inv_cdf((k + 0.5) / 20_000) for k in range(20_000)])
    inner = slice(200, -200)
    np.testing.assert_allclose(found[inner], expected[inner], atol=0.03)
    assert transform.apply(array([-1, 1e300])).tolist() == [transform.scores[0], transform.scores[-1]]
    assert transform.scores[-1] == pytest.approx(NormalDist().inv_cdf(1 - 0.5 / 20_000))


def test_equal_values_share_their_middle_rank() -> None:
    values = array([0] * 60 + [1] * 30 + [5] * 10)
    found = Quantile.fit(values).apply(array([0, 1, 5, 3]))
    assert found[:3] == pytest.approx([NormalDist().inv_cdf(p) for p in (0.3, 0.75, 0.95)])
    assert found[3] == pytest.approx((found[1] + found[2]) / 2)  # never fitted: on the line between
    rng = np.random.default_rng(0)
    many = np.concatenate([np.zeros(5000), rng.exponential(size=5000)])
    assert Quantile.fit(many).apply(array([0])) == pytest.approx([NormalDist().inv_cdf(0.25)])


def test_a_signed_logarithm_keeps_sign_and_order() -> None:
    values = array([-1000, -10, -1, 0, 1, 10, 1000])
    transform = SignedLog.fit(values)
    assert (transform.unit, transform.mean) == (10, 0)
    assert transform.apply(values) * transform.sd == pytest.approx(np.sign(values) * np.log1p(np.abs(values) / 10))
    assert transform.apply(array([1e308])) == transform.apply(array([1e300])) == CLIP


def test_none_leaves_numbers_up_to_a_bound() -> None:
    assert fit(array([3, 4]), "none").apply(array([0.1, -5e6, 1e30])).tolist() == [0.1, -5e6, MOST_UNSCALED]


def test_auto_takes_quantiles_for_heavy_tails_logarithms_for_ties_and_leaves_the_others() -> None:
    rng = np.random.default_rng(0)
    columns = {
        "standard": [
            rng.normal(size=2000),
            rng.uniform(size=2000),
            rng.logistic(size=2000),
            rng.random(2000) < 0.001,
            rng.integers(0, 5, 2000),
            np.zeros(9),
            [],
        ],
        "quantile": [np.exp(2 * rng.normal(size=2000)), rng.standard_cauchy(2000), np.append(rng.normal(size=2000), 1e6)],
        "log": [np.where(rng.random(2000) < 0.95, 0, rng.exponential(size=2000)), rng.geometric(0.5, 2000) ** 4],
    }
    for method, like in columns.items():
        assert [choose_scaling(np.asarray(column, np.float64)) for column in like] == [method] * len(like)


def test_a_logarithm_cuts_no_fitted_value_off() -> None:
    values = np.append(np.zeros(9999), [3.0, 4.0])  # their distance is 70 standard deviations
    assert len(set(SignedLog.fit(values).apply(values).tolist())) == 3


@pytest.mark.parametrize(
    "stored",
    [
        {"method": "quantile", "knots": [1, 1], "scores": [0, 1]},
        {"method": "quantile", "knots": [1, 2], "scores": [0]},
        {"method": "quantile", "knots": [*range(258)], "scores": [*range(258)]},
        {"method": "standard", "mean": 0, "sd": 0},
        {"method": "log", "unit": 0, "mean": 0, "sd": 1},
        {"method": "sigmoid"},
    ],
)
def test_a_damaged_transform_is_refused(stored: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        STORED.validate_python(stored)


def test_each_has_a_method_of_its_own() -> None:
    assert {kind.model_fields["method"].default for kind in (Standard, Quantile, SignedLog, Unscaled)} == set(BOUND)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("one of 600", True),
        ("thirty of 600", True),
        ("sixty of 600", False),
        ("normal", False),
        ("exponential", False),
        ("log-normal", False),
        ("a flag of three rows", False),
        ("hardly ever anything", False),
        ("the same everywhere", False),
        ("nothing", False),
        ("huge", True),
    ],
)
def test_a_few_values_that_make_all_others_look_alike(name: str, found: bool) -> None:
    rng, rows = np.random.default_rng(0), np.arange(600)
    normal = rng.normal(size=600)
    values = {
        "one of 600": np.where(rows == 5, 999999999, normal),
        "thirty of 600": np.where(rows < 30, 999999999, normal),
        "sixty of 600": np.where(rows < 60, 999999999, normal),
        "normal": normal,
        "exponential": rng.exponential(size=600),
        "log-normal": np.exp(normal),
        "a flag of three rows": (rows < 3).astype(float),
        "hardly ever anything": np.where(rows < 20, rng.exponential(size=600), 0.0),
        "the same everywhere": np.full(600, 7.0),
        "nothing": np.empty(0),
        "huge": np.where(rows == 5, -1e308, normal * 1e300),
    }[name]
    assert is_squeezed(values) is found
