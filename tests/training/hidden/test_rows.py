"""Rows of hidden training: how long they are, whatever a table holds, and how each column enters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from vfl_node.crypto.shares.ring import FRACTION
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import CategoricalColumn, Column, DateColumn, NumericColumn, Table, rows_of
from vfl_node.errors import DataError, StateError
from vfl_node.job.names import LinearScaling
from vfl_node.training.hidden.frequent import find
from vfl_node.training.hidden.rows import RowEncoder, columns_of

STEADY = settings(deadline=None, derandomize=True, max_examples=60)
SCALINGS: tuple[LinearScaling, ...] = get_args(LinearScaling)
NAN = float("nan")
LONGEST = 1 + 2.0**-16


def numeric(values: Any) -> NumericColumn:
    return NumericColumn(np.array(values, dtype=np.float64))


def categorical(codes: Any, levels: int) -> CategoricalColumn:
    return CategoricalColumn(np.array(codes, np.int64), tuple(f"{level:04}" for level in range(levels)))


def table(columns: Mapping[str, Column], rows: int) -> Table:
    return Table(Identifiers.from_items(str(row).encode() for row in range(rows)), columns)


def subset(of: Table, rows: NDArray[np.int64]) -> Table:
    return table({name: rows_of(column, rows) for name, column in of.columns.items()}, len(rows))


def encoder(
    of: Table, scaling: LinearScaling = "standard", *, least: int = 0, bins: bool = False, bounded: bool = True
) -> RowEncoder:
    found = find(of, least)
    features = tuple(feature for each in found.entering.values() for feature in each)
    return RowEncoder.fit(of, features, found, scaling, bins=bins, bounded=bounded)


def lengths(fitted: RowEncoder, of: Table) -> NDArray[np.float64]:
    """Of the integers that enter shares."""
    integers = columns_of(fitted, of, active=False).view(np.int64)
    return np.linalg.norm(integers / 2.0**FRACTION, axis=1)


def usual(rows: int = 2000, seed: int = 0) -> Table:
    """Numbers, some of them missing or skewed, two categories, and dates."""
    rng = np.random.default_rng(seed)
    holes = np.where(rng.random(rows) < 0.2, NAN, rng.normal(50, 9, rows))
    dates = DateColumn(rng.integers(0, 4e8, rows).astype(float))
    columns = {
        "height": numeric(rng.normal(170, 10, rows)),
        "holes": numeric(holes),
        "skewed": numeric(rng.lognormal(0, 1, rows)),
        "place": categorical(rng.integers(-1, 6, rows), 6),
        "sex": categorical(rng.integers(0, 2, rows), 2),
        "since": dates,
    }
    return table(columns, rows)


HARD = st.one_of(
    st.just(NAN),
    st.sampled_from([0.0, -0.0, 1.0, 1e308, -1e308, 5e-324, 1e-300]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-3, 3).map(float),
)


SECONDS = st.one_of(st.just(NAN), st.integers(-(10**10), 10**10).map(float))


@st.composite
def tables(draw: Any) -> tuple[Table, Table]:
    """Two tables with the same columns: one to learn from, and one of other records."""
    kinds = draw(st.lists(st.sampled_from(["number", "category", "date"]), min_size=1, max_size=4))
    made = []
    for rows in (draw(st.integers(1, 30)), draw(st.integers(1, 12))):
        columns: dict[str, Column] = {}
        for place, kind in enumerate(kinds):
            if kind == "category":
                columns[f"c{place}"] = categorical(draw(st.lists(st.integers(-1, 3), min_size=rows, max_size=rows)), 4)
            elif kind == "date":
                seconds = draw(st.lists(SECONDS, min_size=rows, max_size=rows))
                columns[f"d{place}"] = DateColumn(np.array(seconds, np.float64))
            else:
                columns[f"n{place}"] = numeric(draw(st.lists(HARD, min_size=rows, max_size=rows)))
        made.append(table(columns, rows))
    return made[0], made[1]


@STEADY
@given(tables(), st.sampled_from(SCALINGS), st.booleans(), st.sampled_from([0, 3]))
def test_no_row_of_any_table_is_longer_than_1(of: tuple[Table, Table], scaling: LinearScaling, bins: bool, least: int) -> None:
    """Nor one of other records, as predictions are made of."""
    fitted = encoder(of[0], scaling, least=least, bins=bins)
    for each in of:
        assert lengths(fitted, each).max() <= LONGEST
        rows = fitted.transform(each, intercept=True)
        assert rows.shape == (len(each), fitted.width + 1)
        assert (rows[:, -1] == 0.5).all()
    assert RowEncoder.from_json(fitted.to_json()) == fitted


@STEADY
@given(tables(), st.sampled_from(SCALINGS))
def test_rows_without_a_bound_are_cut_off_at_5(of: tuple[Table, Table], scaling: LinearScaling) -> None:
    fitted = encoder(of[0], scaling, bounded=False)
    assert fitted.length is None
    for each in of:
        rows = fitted.transform(each, intercept=True)
        assert np.abs(rows).max(initial=0) <= 5
        assert (rows[:, -1] == 1).all()


@pytest.mark.parametrize("bins", [False, True])
@pytest.mark.parametrize(
    "columns",
    [
        {"huge": numeric([1e308, -1e308] * 500)},
        {"one far": numeric([0.0] * 999 + [1e300])},
        {"tiny": numeric([5e-324, 0.0] * 500)},
        {"same": numeric([3.0] * 1000)},
        {"nothing": numeric([NAN] * 1000), "none": categorical([-1] * 1000, 2)},
        {"one hot": categorical(np.arange(1000), 1000)},
        {"mostly zero": numeric([0.0] * 950 + [1.0] * 50)},
        {f"n{place}": numeric(np.random.default_rng(place).standard_cauchy(1000)) for place in range(60)},
    ],
    ids=lambda of: next(iter(of)) if isinstance(of, dict) else "",
)
def test_odd_tables(columns: dict[str, Column], bins: bool) -> None:
    of = table(columns, 1000)
    for scaling in SCALINGS:
        fitted = encoder(of, scaling, bins=bins)
        found = lengths(fitted, of)
        assert found.max(initial=0) <= LONGEST
        assert np.isfinite(fitted.transform(of)).all()


def test_one_record() -> None:
    assert encoder(table({"x": numeric([4.0]), "c": categorical([0], 1)}, 1)).transform(
        table({"x": numeric([4.0]), "c": categorical([0], 1)}, 1), intercept=True
    ).tolist() == [[0.5]]


@pytest.mark.parametrize("bins", [False, True])
def test_a_quarter_of_rows_is_shrunk(bins: bool) -> None:
    of = usual()
    fitted = encoder(of, least=20, bins=bins)
    found = lengths(fitted, of)
    assert np.count_nonzero(found > 1 - 1e-4) == pytest.approx(500, abs=3)
    assert found.max() <= LONGEST
    others = lengths(fitted, usual(seed=1))
    assert 400 < np.count_nonzero(others > 1 - 1e-4) < 600  # of other records: 500 ± 28, as quartiles of 2,000 are
    assert others.max() <= LONGEST


@pytest.mark.parametrize("bounded", [False, True])
def test_a_row_is_the_same_whatever_other_rows_are_read_with_it(bounded: bool) -> None:
    of = usual(300)
    fitted = encoder(of, bins=True, bounded=bounded)
    whole = columns_of(fitted, of, active=True)
    some = np.random.default_rng(1).permutation(300)[:77]
    assert np.array_equal(columns_of(fitted, subset(of, some), active=True), whole[some])
    for row in range(20):
        assert np.array_equal(columns_of(fitted, subset(of, np.array([row])), active=True)[0], whole[row])


def test_numbers_are_scaled_cut_off_at_3_and_marks_centred_and_not_divided() -> None:
    rng = np.random.default_rng(3)
    x, rare = rng.normal(50, 8, 500), np.arange(500) < 25
    x[100] = 50 + 8 * 5
    of = table({"x": numeric(x), "c": categorical(rare.astype(int), 2)}, 500)
    fitted = encoder(of)
    rows = fitted.transform(of)
    scaled = np.clip((x - x.mean()) / x.std(), -3, 3)
    plain = np.stack([scaled, rare - 0.05], axis=1)
    norms = np.linalg.norm(plain, axis=1)
    expected = plain / np.maximum(norms, np.quantile(norms, 0.75))[:, None]
    np.testing.assert_allclose(rows, expected, atol=2.0**-16)
    assert rows[100, 0] > 0.999  # cut, and shrunk
    assert (np.abs(rows) <= np.abs(expected) + 1e-12 + 2.0**-16).all()
    assert np.array_equal(rows * 2**FRACTION, np.rint(rows * 2**FRACTION))


def test_missing_numbers_are_the_mean_and_marked() -> None:
    x = np.array([1.0, 2.0, 3.0, NAN] * 100)
    of = table({"x": numeric(x)}, 400)
    rows = encoder(of, bounded=False).transform(of)
    assert rows[3].tolist() == [0.0, 1.0]
    assert rows[1].tolist() == [0.0, 0.0]
    bounded = encoder(of)
    assert (bounded.transform(of)[3::4] == bounded.transform(of)[3]).all()
    assert abs(bounded.transform(of).mean(axis=0)).max() < 0.01


def test_a_level_without_a_name_is_not_what_is_missing() -> None:
    codes = np.repeat([-1, 0, 1, 1], 50)
    rows = encoder(table({"c": CategoricalColumn(codes, ("", "a"))}, 200), bounded=False).transform(
        table({"c": CategoricalColumn(codes, ("", "a"))}, 200)
    )
    assert rows[::50].tolist() == [[1, 0], [0, 1], [0, 0], [0, 0]]


def test_levels_of_quantiles_stand_beside_numbers_at_half_weight() -> None:
    x = np.arange(400.0)
    x[::10] = NAN
    of = table({"x": numeric(x)}, 400)
    plain, bins = encoder(of, bounded=False), encoder(of, bins=True, bounded=False)
    assert (plain.width, bins.width) == (2, 10)
    one, other = plain.transform(of), bins.transform(of)
    np.testing.assert_allclose(other[:, 0], one[:, 0] / 2, atol=2.0**-17)
    assert np.array_equal(other[:, 1], one[:, 1])
    assert np.array_equal(other[:, 2:].sum(axis=1), ~np.isnan(x))
    assert other[:, 2:].sum(axis=0) == pytest.approx(np.full(8, 45), abs=1)


def test_numbers_are_left_as_they_are_up_to_16_and_none_is_refused() -> None:
    """A job that says so in order to hear whether larger ones are there hears nothing."""
    of = table({"x": numeric([0.5, 1.5, 2.5, 1e9] * 50)}, 200)
    rows = encoder(of, "none", bounded=False).transform(of)
    assert rows[:4, 0].tolist() == [0.5, 1.5, 2.5, 5.0]
    assert lengths(encoder(of, "none"), of).max() <= LONGEST


def test_new_records_need_the_columns_that_are_read_and_no_others() -> None:
    of = usual(200)
    fitted = encoder(of)
    with pytest.raises(DataError) as caught:
        fitted.transform(table({"height": of.columns["height"]}, 200))
    assert caught.value.code == "E_COLUMN"
    numbers, categories = (
        dict.fromkeys(("height", "holes", "skewed"), "numeric"),
        dict.fromkeys(("place", "sex"), "categorical"),
    )
    assert fitted.kinds == {**numbers, **categories, "since": "date"}
    new = table({**of.columns, "more": of.columns["height"], "place": categorical([7] * 200, 8)}, 200)  # a level never seen
    assert lengths(fitted, new).max() <= LONGEST


def test_what_is_stored_reads_back_and_damage_is_noticed() -> None:
    of = usual(300)
    fitted = encoder(of, bins=True)
    document = json.loads(fitted.to_json())
    assert np.array_equal(RowEncoder.from_json(fitted.to_json()).transform(of), fitted.transform(of))
    first, *rest = document["columns"]
    changes: list[dict[str, Any]] = [
        {"length": 0.0},
        {"length": "long"},
        {"weight": -1},
        {"means": document["means"][:2]},
        {"means": None},
        {"columns": [first | {"places": []}, *rest]},
        {"columns": [first | {"places": [-1]}, *rest]},
        {"columns": [first | {"places": [len(document["means"])]}, *rest]},
        {"columns": [first | {"codes": [1, 2]}, *rest]},
        {"columns": [first | {"encoding": {"kind": "other"}}, *rest]},
        {"more": 1},
    ]
    for text in ("", "[]", "{}", fitted.to_json()[:-9], *(json.dumps(document | change) for change in changes)):
        with pytest.raises(StateError) as caught:
            RowEncoder.from_json(text)
        assert caught.value.code == "E_STATE_CORRUPT", text[:200]


@pytest.mark.parametrize("version", [0, 4])
def test_another_version_is_refused(version: int) -> None:
    document = json.loads(encoder(usual(50)).to_json())
    with pytest.raises(StateError) as caught:
        RowEncoder.from_json(json.dumps(document | {"version": version}))
    assert caught.value.code == "E_STATE_VERSION"


def test_a_large_table_takes_its_matrix_and_little_more() -> None:
    """Eight times as much would be several copies of it."""
    import tracemalloc

    rng = np.random.default_rng(0)
    of = table({f"x{place}": numeric(rng.normal(size=20_000)) for place in range(40)}, 20_000)
    fitted, size = encoder(of), 20_000 * 40 * 8
    tracemalloc.start()
    fitted.transform(of)
    assert tracemalloc.get_traced_memory()[1] < 2 * size
    tracemalloc.stop()
