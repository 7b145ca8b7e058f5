from __future__ import annotations

import json
from collections.abc import Mapping
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfl_node.data.date_formats import dates_in
from vfl_node.data.features import Encoder, Features
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import CategoricalColumn, Column, DateColumn, NumericColumn, Table
from vfl_node.data.transforms import CLIP
from vfl_node.errors import DataError, StateError
from vfl_node.job.names import Scaling

STEADY = settings(deadline=None, derandomize=True)

NAN = float("nan")


def numeric(*values: float) -> NumericColumn:
    return NumericColumn(np.array(values, dtype=np.float64))


def categorical(*values: str | None) -> CategoricalColumn:
    levels = tuple(sorted({value for value in values if value is not None}))
    return CategoricalColumn(np.array([-1 if value is None else levels.index(value) for value in values]), levels)


def table(columns: Mapping[str, Column], rows: int) -> Table:
    return Table(Identifiers.from_items(str(row).encode() for row in range(rows)), columns)


def rows(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.int64)


def test_numbers_are_standardised_on_the_fitted_rows_only() -> None:
    given = table({"x": numeric(1, 3, 1000), "y": numeric(10, 30, 20)}, 3)
    features = Encoder.fit(given, rows(2)).transform(given)
    assert features.numeric.dtype == np.float32
    assert features.numeric.tolist() == [[-1, -1], [1, 1], [CLIP, 0]]
    assert features.categorical.shape == (3, 0)
    assert features.cardinalities == ()
    assert features.width == 2


def test_a_missing_number_is_the_mean_and_is_indicated_where_the_fitted_rows_have_one() -> None:
    given = table({"x": numeric(1, 3, NAN, NAN), "y": numeric(1, 3, 5, NAN)}, 4)
    features = Encoder.fit(given, rows(3)).transform(given)
    assert features.numeric[:, 0].tolist() == [-1, 1, 0, 0]
    assert features.numeric[3, 1] == 0
    assert features.numeric[:, 2:].tolist() == [[0], [0], [1], [1]]  # of x; y has none missing where it is fitted


def test_a_constant_column_and_one_without_values_become_zero() -> None:
    given = table({"x": numeric(0.1, 0.1, 0.1), "y": numeric(NAN, NAN, NAN)}, 3)
    features = Encoder.fit(given, rows(3)).transform(given)
    np.testing.assert_allclose(features.numeric[:, :2], 0, atol=1e-12)
    assert features.numeric[:, 2].tolist() == [1, 1, 1]


def test_categories_are_numbered_in_order_and_zero_is_what_was_never_met() -> None:
    given = table({"c": categorical("red", "blue", None, "red", "amber")}, 5)
    encoder = Encoder.fit(given, np.array([0, 1, 3]))  # without a missing value
    features = encoder.transform(given)
    assert features.categorical.tolist() == [[2], [1], [0], [2], [0]]
    assert features.categorical.dtype == np.int64
    assert features.cardinalities == (3,)
    later = table({"c": categorical("violet", "blue", "red", "amber")}, 4)  # other codes in the table
    assert encoder.transform(later).categorical.tolist() == [[0], [1], [2], [0]]


def test_what_is_missing_and_what_was_never_seen_are_apart_where_either_was_fitted() -> None:
    given = table({"c": categorical("red", "blue", None, "red", "amber")}, 5)
    features = Encoder.fit(given, rows(4)).transform(given)
    assert features.categorical.tolist() == [[2], [1], [0], [2], [3]]
    assert features.cardinalities == (4,)


def test_rare_levels_share_a_code_with_unseen_ones() -> None:
    given = table({"c": categorical(*"aaabbbbcd", None), "d": categorical(*"xxxxxyyyyy")}, 10)
    encoder = Encoder.fit(given, rows(8), least_rows=3)  # c is in one fitted row, d in none
    features = encoder.transform(given)
    assert features.categorical[:, 0].tolist() == [1, 1, 1, 2, 2, 2, 2, 3, 3, 0]
    assert features.categorical[:, 1].max() == 2
    assert features.cardinalities == (4, 3)
    assert Encoder.from_json(encoder.to_json()) == encoder
    every = Encoder.fit(given, rows(10))
    found = every.translate(every.transform(given), encoder, given)
    assert found.categorical.tolist() == features.categorical.tolist()
    back = encoder.translate(features, every, given)  # what was merged is unknown
    assert back.categorical[:, 0].tolist() == [1, 1, 1, 2, 2, 2, 2, 5, 5, 0]


def test_dates_are_days_and_the_parts_that_vary() -> None:
    texts = ["2024-01-01", "2024-01-31", "2024-02-29", None, "2024-02-29"]
    column = dates_in(categorical(*texts))
    assert column
    given = table({"x": numeric(1, 2, 3, 4, 5), "opened": column, "c": categorical(*"ababa")}, 5)
    encoder = Encoder.fit(given, rows(4), "none")
    features = encoder.transform(given)
    assert features.numeric.tolist() == [[1, 0, 0], [2, 30, 0], [3, 59, 0], [4, 0, 1], [5, 59, 0]]  # x, days, no date
    assert features.categorical.tolist() == [[1, 1, 1], [1, 2, 2], [2, 3, 1], [0, 0, 2], [2, 3, 1]]  # month, weekday, c
    assert features.cardinalities == (4, 5, 3)
    assert [column.part for column in encoder.columns] == [None, "days", "month", "weekday", None]
    assert Encoder.from_json(encoder.to_json()) == encoder


def test_copied_dates_are_encoded_to_the_last_bit_and_made_up_ones_have_the_parts_of_their_day() -> None:
    rng = np.random.default_rng(0)
    seconds = rng.integers(0, 2_000_000_000, 300).astype(np.float64)
    seconds[::7] = NAN
    given = table({"at": DateColumn(seconds), "c": categorical(*"abc" * 100)}, 300)
    for scaling in get_args(Scaling):
        whole, some = Encoder.fit(given, rows(300), scaling), Encoder.fit(given, rows(50), "auto", least_rows=10)
        found, expected = whole.translate(whole.transform(given), some, given), some.transform(given)
        assert found.categorical.tolist() == expected.categorical.tolist()
        assert found.numeric.tobytes() == expected.numeric.tobytes()
    made = whole.transform(given)
    made.numeric[1, 0], made.categorical[1] = 19_782.5 - whole.columns[0].transform.start, 0
    once = whole.translate(made, whole, given).take(np.array([1]))
    noon = table({"at": DateColumn(np.array([19_782.5 * 86400])), "c": categorical("a")}, 1)  # 2024-02-29
    assert once.categorical[0, :3].tolist() == whole.transform(noon).categorical[0, :3].tolist()


def test_a_table_with_text_in_the_place_of_dates_is_refused() -> None:
    encoder = Encoder.fit(table({"at": DateColumn(np.array([0.0, 1e9]))}, 2), rows(2))
    with pytest.raises(DataError, match="date column 'at'"):
        encoder.transform(table({"at": categorical("a", "b")}, 2))


def test_a_party_may_have_no_columns() -> None:
    features = Encoder.fit(table({}, 3), rows(3)).transform(table({}, 3))
    assert features.width == 0
    assert features.numeric.shape == features.categorical.shape == (3, 0)
    assert len(features.take(rows(2))) == 2


def test_take_gathers_rows() -> None:
    given = table({"x": numeric(1, 2, 3), "c": categorical("a", "b", "c")}, 3)
    features = Encoder.fit(given, rows(3)).transform(given)
    taken = features.take(np.array([2, 0, 2]))
    assert taken.numeric.tolist() == features.numeric[[2, 0, 2]].tolist()
    assert taken.categorical.tolist() == [[3], [1], [3]]
    assert taken.cardinalities == features.cardinalities


def test_json_keeps_every_bit_and_shows_what_it_is() -> None:
    given = table({"x": numeric(0.1, 1 / 3, NAN), "c": categorical("ü", None, 'a"b')}, 3)
    encoder = Encoder.fit(given, rows(3))
    again = Encoder.from_json(encoder.to_json())
    assert again == encoder
    assert again.transform(given).numeric.tobytes() == encoder.transform(given).numeric.tobytes()
    assert [column["kind"] for column in json.loads(encoder.to_json())["columns"]] == ["numeric", "categorical"]


def test_an_encoder_of_version_1_is_standardised_and_reads_as_it_did() -> None:
    document = {
        "columns": [
            {"kind": "numeric", "name": "x", "mean": 2.5, "sd": 0.5, "indicator": True},
            {"kind": "categorical", "name": "c", "levels": ["blue", "red"]},
        ]
    }
    encoder = Encoder.from_json(json.dumps(document))
    features = encoder.transform(table({"x": numeric(3, NAN, 99), "c": categorical("red", "violet", None)}, 3))
    assert features.numeric.tolist() == [[1, 0], [0, 1], [CLIP, 0]]
    assert features.categorical.tolist() == [[2], [0], [0]]
    assert features.cardinalities == (3,)
    assert Encoder.from_json(encoder.to_json()) == encoder


def test_an_encoder_says_its_version() -> None:
    encoder = Encoder.fit(table({"x": numeric(1, 2)}, 2), rows(2))
    document = json.loads(encoder.to_json())
    assert document["version"] == 6
    with pytest.raises(StateError, match="a later vfl-node") as caught:
        Encoder.from_json(json.dumps({**document, "version": 7}))
    assert caught.value.code == "E_STATE_VERSION"
    assert "train again" in caught.value.hint


def test_an_encoder_of_an_earlier_form_is_brought_up_to_date() -> None:
    class Later(Encoder):
        version = 7
        steps = {6: lambda old: {"columns": [{**column, "indicator": False} for column in old["columns"]]}}

    encoder = Encoder.fit(table({"x": numeric(1, NAN)}, 2), rows(2))
    later = Later.from_json(encoder.to_json())
    assert [column.indicator for column in (*encoder.columns, *later.columns)] == [True, False]
    assert json.loads(later.to_json())["version"] == 7


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"columns": [{"kind": "numeric", "name": "x", "mean": 0, "sd": 0, "indicator": false}]}'],
)
def test_damaged_json_is_refused(text: str) -> None:
    with pytest.raises(StateError) as caught:
        Encoder.from_json(text)
    assert caught.value.code == "E_STATE_CORRUPT"


@pytest.mark.parametrize("columns", [{}, {"x": categorical("a", "b")}])
def test_a_table_without_the_column_is_refused(columns: dict[str, Column]) -> None:
    encoder = Encoder.fit(table({"x": numeric(1, 2)}, 2), rows(2))
    with pytest.raises(DataError, match="numeric column 'x'") as caught:
        encoder.transform(table(columns, 2))
    assert caught.value.code == "E_COLUMN"


def test_rows_in_another_encoding_are_what_that_encoder_makes_of_them_to_the_last_bit() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(50, 7, 500)
    values[::50], values[1::50], values[3] = NAN, 1e4, -1e6  # missing, wild and wilder
    colours = np.where(rng.random(500) < 0.01, "rare", rng.choice(["a", "b"], 500)).tolist()
    given = table({"x": numeric(*values), "n": numeric(*rng.integers(0, 4, 500)), "c": categorical(*colours[:-1], None)}, 500)
    whole = Encoder.fit(given, rows(500))
    for some in (np.flatnonzero(np.abs(values - 50) < 30), np.arange(3), np.arange(0, 500, 2)):
        other = Encoder.fit(given, some)
        expected, found = other.transform(given), whole.translate(whole.transform(given), other, given)
        assert found.categorical.tolist() == expected.categorical.tolist()
        assert found.cardinalities == expected.cardinalities
        assert found.numeric.dtype == np.float32
        clipped = np.abs(whole.transform(given).numeric[:, 0]) == CLIP  # one stands for all of them
        assert found.numeric[~clipped].tobytes() == expected.numeric[~clipped].tobytes()
        assert set(found.numeric[clipped, 0]) <= set(expected.numeric[clipped, 0])


def test_numbers_that_stand_for_no_cell_are_scaled_and_clipped_anew() -> None:
    given = table({"x": numeric(0, 2, 10, 12), "c": categorical("a", "b", "a", None)}, 4)
    whole, some = Encoder.fit(given, rows(4)), Encoder.fit(given, rows(2))  # of mean 6 and 1
    made = Features(np.array([[-0.5], [0], [9.5]], np.float32), np.array([[0], [1], [2]]), (3,))
    found = whole.translate(made, some, given)
    np.testing.assert_allclose(found.numeric[:, 0], [6 - 0.5 * np.sqrt(26) - 1, 5, CLIP], rtol=1e-6)
    assert found.categorical.tolist() == [[0], [1], [2]]
    back = some.translate(found, whole, given)
    np.testing.assert_allclose(back.numeric[:2], made.numeric[:2], atol=1e-6)


def test_what_is_missing_stays_so_in_another_encoding() -> None:
    given = table({"x": numeric(1, 3, 5, NAN, 100)}, 5)
    whole, without, with_ = (Encoder.fit(given, of) for of in (rows(5), rows(3), np.array([0, 3])))
    made = Features(np.array([[0.7, 1], [0.7, 0]], np.float32), np.zeros((2, 0), np.int64), ())
    assert whole.translate(made, without, given).numeric[0].tolist() == [0]
    assert whole.translate(made, with_, given).numeric[0].tolist() == [0, 1]
    assert (whole.translate(made, with_, given).numeric[1] != 0).tolist() == [True, False]


def test_an_encoding_of_other_columns_is_refused() -> None:
    given = table({"x": numeric(1, 2), "y": numeric(1, 2)}, 2)
    both, one = Encoder.fit(given, rows(2)), Encoder.fit(table({"x": numeric(1, 2)}, 2), rows(2))
    assert both.translate(both.transform(given), one, given).width == 1
    with pytest.raises(DataError, match="E_COLUMN"):
        one.translate(one.transform(given), both, given)


@STEADY
@given(
    st.lists(st.one_of(st.just(NAN), st.floats(allow_nan=False, allow_infinity=False)), min_size=1, max_size=20),
    st.integers(0, 20),
    st.floats(-CLIP, CLIP, width=32),
)
def test_whatever_the_numbers_another_encoding_is_finite_and_bounded(values: list[float], fitted: int, cell: float) -> None:
    given = table({"x": numeric(*values)}, len(values))
    whole, some = Encoder.fit(given, rows(len(values))), Encoder.fit(given, rows(min(fitted, len(values))))
    made = whole.transform(given)
    made.numeric[0, 0] = cell
    assert (np.abs(whole.translate(made, some, given).numeric) <= CLIP).all()


@STEADY
@given(
    st.lists(st.one_of(st.just(NAN), st.floats(allow_nan=False, allow_infinity=False)), min_size=1, max_size=20),
    st.integers(0, 20),
)
def test_whatever_the_numbers_features_are_finite_and_bounded(values: list[float], fitted: int) -> None:
    given = table({"x": numeric(*values)}, len(values))
    features = Encoder.fit(given, rows(min(fitted, len(values)))).transform(given)
    assert (np.abs(features.numeric) <= CLIP).all()
