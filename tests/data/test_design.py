from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfl_node.data.date_formats import dates_in
from vfl_node.data.design import MOST, RESOLUTION, Design, LinearEncoder
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import CategoricalColumn, Column, NumericColumn, Table
from vfl_node.data.transforms import fit
from vfl_node.errors import DataError, StateError
from vfl_node.job.names import LinearScaling as Scaling

STEADY = settings(deadline=None, derandomize=True)

NAN = float("nan")
SCALINGS: tuple[Scaling, ...] = ("standard", "unit", "none")


def numeric(*values: float) -> NumericColumn:
    return NumericColumn(np.array(values, dtype=np.float64))


def categorical(*values: str | None) -> CategoricalColumn:
    levels = tuple(sorted({value for value in values if value is not None}))
    return CategoricalColumn(np.array([-1 if value is None else levels.index(value) for value in values]), levels)


def table(columns: Mapping[str, Column], rows: int) -> Table:
    return Table(Identifiers.from_items(str(row).encode() for row in range(rows)), columns)


def design(columns: Mapping[str, Column], rows: int, scaling: Scaling) -> Design:
    given = table(columns, rows)
    return LinearEncoder.fit(given, scaling).transform(given)


def test_standard_columns_have_mean_0_and_deviation_1_in_steps_of_2_to_the_minus_16() -> None:
    x = np.random.default_rng(0).normal(1e6, 250.0, 1000)
    made = design({"x": NumericColumn(x)}, 1000, "standard")
    assert made.integers.dtype == np.int64
    assert made.steps.tolist() == [2**-16]
    assert made.names == ("x",)
    np.testing.assert_allclose(made.values[:, 0], (x - x.mean()) / x.std(), atol=2**-17 + 1e-9)


def test_standard_cuts_off_at_ten_deviations() -> None:
    x = np.zeros(1000)
    x[7] = 1.0
    made = design({"x": NumericColumn(x)}, 1000, "standard")
    assert made.values.max() == 10
    assert made.integers.max() == 10 * RESOLUTION


def test_the_values_are_integers_times_steps() -> None:
    made = design({"x": numeric(3, 8, 1), "c": categorical("a", "b", "a")}, 3, "unit")
    assert made.values.dtype == np.float64
    assert made.values.tolist() == (made.integers * made.steps).tolist()
    assert len(made) == 3


def test_reports_show_no_level_of_a_category() -> None:
    made = design({"x": numeric(3, 8, 1), "c": categorical("a", "b", "a")}, 3, "unit")
    assert made.names == ("x", "c=b")
    assert made.shown == ("x", "c: a level")


def test_unit_keeps_pixels_as_they_are() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (50, 4)).astype(np.float64)
    pixels[0, 0] = 255
    made = design({f"p{j}": NumericColumn(pixels[:, j]) for j in range(4)}, 50, "unit")
    assert made.integers.tolist() == pixels.tolist()
    assert made.steps.tolist() == [1 / 255] * 4


@pytest.mark.parametrize("peak", [1, 3, 49, 255, 1000, 999_983, MOST])
def test_unit_keeps_every_integer_up_to_the_limit(peak: int) -> None:
    x = np.arange(-peak, peak + 1, max(1, peak // 1000), dtype=np.float64)
    x[-1] = peak
    made = design({"x": NumericColumn(x)}, len(x), "unit")
    assert made.integers[:, 0].tolist() == x.tolist()
    assert made.steps.tolist() == [1 / peak]


def test_unit_divides_all_columns_by_one_peak() -> None:
    made = design({"x": numeric(0.5, 0, -2), "y": numeric(1, -1, 0)}, 3, "unit")
    assert made.values.tolist() == [[0.25, 0.5], [0, -0.5], [-1, 0]]
    assert made.steps.tolist() == [2**-16] * 2


def test_unit_rounds_integers_beyond_the_limit() -> None:
    x = np.array([0, 12_345, -MOST - 1])
    made = design({"x": numeric(*x)}, 3, "unit")
    assert made.integers[:, 0].tolist() == np.rint(x / (MOST + 1) * RESOLUTION).tolist()
    assert made.steps.tolist() == [2**-16]


def test_unit_drops_a_column_that_is_nothing_beside_the_peak() -> None:
    encoder = LinearEncoder.fit(table({"x": numeric(0.5, 1e9), "y": numeric(1, 2)}, 2), "unit")
    assert encoder.dropped == ("y",)


def test_none_rounds_to_steps_and_refuses_what_is_too_large() -> None:
    made = design({"x": numeric(0.1, -16, 16, 3 * 2**-18)}, 4, "none")
    assert made.integers[:, 0].tolist() == [6554, -MOST, MOST, 1]
    with pytest.raises(DataError, match="column 'income'") as caught:
        LinearEncoder.fit(table({"x": numeric(1, 2), "income": numeric(3, -54321)}, 2), "none")
    assert caught.value.code == "E_OVERFLOW"
    assert "train.scaling" in caught.value.hint
    assert "54321" not in str(caught.value) + caught.value.for_peer


@pytest.mark.parametrize("scaling", SCALINGS)
def test_a_missing_number_is_0_and_is_marked(scaling: Scaling) -> None:
    made = design({"x": numeric(-1, NAN, 1), "y": numeric(-1, 0, 1)}, 3, scaling)
    assert made.names == ("x", "x missing", "y")
    assert made.integers[1, 0] == 0
    assert made.integers[:, 1].tolist() == [0, 1, 0]
    assert made.steps[1] == 1


@pytest.mark.parametrize("scaling", SCALINGS)
def test_each_level_is_a_column_but_the_most_frequent(scaling: Scaling) -> None:
    encoder = LinearEncoder.fit(table({"c": categorical("red", "blue", None, "red")}, 4), scaling)
    made = encoder.transform(table({"c": categorical("red", "blue", None, "red")}, 4))
    assert made.names == ("c missing", "c=blue")
    assert made.integers.tolist() == [[0, 0], [0, 1], [1, 0], [0, 0]]
    assert made.steps.tolist() == [1, 1]
    later = encoder.transform(table({"c": categorical("violet", "amber", "blue", None)}, 4))  # other codes in the table
    assert later.integers.tolist() == [[0, 0], [0, 0], [0, 1], [1, 0]]


def test_no_column_of_categories_follows_from_the_others() -> None:
    """Else the gradient of a rare level that is left out would follow from what is kept."""
    rng = np.random.default_rng(5)
    cells = {"c": rng.choice(list("abc"), 60), "d": rng.choice(list("xyz"), 60), "e": rng.choice(["u", "v", None], 60)}
    made = design({name: categorical(*of) for name, of in cells.items()}, 60, "standard")
    assert np.linalg.matrix_rank(np.column_stack([made.integers, np.ones(60)])) == made.integers.shape[1] + 1 == 7
    every = np.column_stack([of == level for of in cells.values() for level in {*of}]).astype(int)
    assert np.linalg.matrix_rank(every) < every.shape[1]  # as it would be with a column for each level


CONSTANT: dict[str, Column] = {
    "fives": numeric(0.1, 0.1, 0.1),
    "one level": categorical("a", "a", "a"),
    "nothing known": numeric(NAN, NAN, NAN),
    "x": numeric(1, 2, 3),
}
ZERO: dict[str, Column] = {
    "zeros": numeric(0, -0.0, 0),
    "no level": categorical(None, None, None),
}


@pytest.mark.parametrize("scaling", SCALINGS)
def test_what_carries_nothing_is_dropped_and_said(scaling: Scaling) -> None:
    given = table(CONSTANT | ZERO, 3)
    encoder = LinearEncoder.fit(given, scaling)
    always = set(ZERO) | {"one level"}
    assert set(encoder.dropped) == always | (set(CONSTANT) - {"x"} if scaling == "standard" else set())
    made = encoder.transform(given)
    assert made.integers.any(axis=0).all()
    assert ("fives" in made.names) == (scaling != "standard")
    if scaling == "standard":
        assert made.names == ("x",)


def test_a_constant_with_gaps_leaves_the_mark_of_its_gaps() -> None:
    encoder = LinearEncoder.fit(table({"x": numeric(5, NAN, 5), "c": categorical("a", None, "a")}, 3), "standard")
    made = encoder.transform(table({"x": numeric(5, NAN, 5), "c": categorical("a", None, "a")}, 3))
    assert made.names == ("x missing", "c missing")
    assert encoder.dropped == ()


@pytest.mark.parametrize("scaling", SCALINGS)
def test_a_party_may_have_no_columns(scaling: Scaling) -> None:
    for columns in ({}, ZERO):
        made = design(columns, 3, scaling)
        assert made.integers.shape == made.values.shape == (3, 0)
        assert made.steps.shape == (0,)
        assert made.names == ()


@pytest.mark.parametrize(("scaling", "most"), [("standard", 10), ("unit", 1), ("none", 16)])
def test_another_table_is_cut_off_at_the_range(scaling: Scaling, most: int) -> None:
    encoder = LinearEncoder.fit(table({"x": numeric(-1, 1, 0)}, 3), scaling)
    later = encoder.transform(table({"x": numeric(1e300, -1e300, NAN, 1, 0)}, 5))
    assert later.values[:, 0].tolist()[:3] == [most, -most, 0]  # a gap where the fitted table has none
    fitted = encoder.transform(table({"x": numeric(-1, 1, 0)}, 3))
    assert later.values[3:, 0].tolist() == fitted.values[1:, 0].tolist()


def test_the_design_depends_on_the_own_table_only_and_repeats_to_the_bit() -> None:
    rng = np.random.default_rng(2)
    given = table({"x": NumericColumn(rng.normal(size=500)), "y": NumericColumn(rng.lognormal(size=500))}, 500)
    for scaling in ("standard", "unit"):
        encoder = LinearEncoder.fit(given, scaling)
        expected = encoder.transform(given)
        restored = LinearEncoder.from_json(encoder.to_json())
        assert restored == encoder == LinearEncoder.fit(given, scaling)
        again = restored.transform(given)
        assert again.values.tobytes() == expected.values.tobytes()
        assert again.names == expected.names


def test_json_shows_what_it_is() -> None:
    given = table({"x": numeric(0.1, 1 / 3, NAN), "c": categorical("ü", None, 'a"b'), "z": numeric(0, 0, 0)}, 3)
    written = json.loads(LinearEncoder.fit(given, "standard").to_json())
    assert [column["kind"] for column in written["columns"]] == ["numeric", "missing", "categorical"]
    assert written["dropped"] == ["z"]


SCALE = {"kind": "numeric", "name": "x", "centre": 0, "unit": 1, "resolution": 1, "most": 1}


def test_the_undamaged_json_is_read() -> None:
    assert LinearEncoder.from_json(json.dumps({"columns": [SCALE], "dropped": []})).columns


def test_heavy_tails_become_normal_scores_or_logarithms_in_bounded_integers() -> None:
    rng = np.random.default_rng(0)
    columns = {
        "amount": NumericColumn(np.exp(3 * rng.normal(size=1000))),
        "zeros": NumericColumn(np.where(rng.random(1000) < 0.9, 0, np.exp(rng.normal(size=1000)))),
        "age": NumericColumn(rng.normal(50, 10, 1000)),
    }
    given = table(columns, 1000)
    encoder = LinearEncoder.fit(given, "auto")
    assert [column.method for column in encoder.columns] == ["quantile", "log", "standard"]
    assert LinearEncoder.from_json(encoder.to_json()) == encoder
    made = encoder.transform(given)
    assert made.steps.tolist() == [2**-16] * 3
    np.testing.assert_allclose(
        made.values[:, 0], fit(columns["amount"].values, "quantile").apply(columns["amount"].values), atol=2**-17
    )
    wild = table({name: NumericColumn(np.full(1, 1e308)) for name in columns}, 1)
    assert np.abs(encoder.transform(wild).integers).max() <= 10 * RESOLUTION < MOST
    wished = table({"age": replace(columns["age"], scaling="quantile")}, 1000)
    assert [column.method for column in LinearEncoder.fit(wished, "unit").columns] == ["quantile"]


@pytest.mark.parametrize("scaling", SCALINGS)
def test_dates_are_days_and_levels_of_the_parts_that_vary(scaling: Scaling) -> None:
    column = dates_in(categorical("2024-01-01", "2024-01-31", "2024-02-29", None))
    assert column
    given = table({"opened": column}, 4)
    encoder = LinearEncoder.fit(given, scaling)
    made = encoder.transform(given)
    assert made.names == ("opened", "opened missing", "opened.month=02", "opened.weekday=3", "opened.weekday=4")
    assert made.shown[2] == "opened.month: a level"
    assert made.integers[:, 1:].tolist() == [[0, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 1], [1, 0, 0, 0]]
    assert np.abs(made.integers).max() <= 10 * RESOLUTION
    assert LinearEncoder.from_json(encoder.to_json()).transform(given).integers.tolist() == made.integers.tolist()
    with pytest.raises(DataError, match="date column 'opened'"):
        encoder.transform(table({"opened": categorical(*"abcd")}, 4))


def test_an_encoder_of_version_1_reads_as_it_did() -> None:
    stored = {
        "columns": [
            {"kind": "numeric", "name": "x", "centre": 1.0, "unit": 2.0, "resolution": RESOLUTION, "most": MOST},
            {"kind": "categorical", "name": "c", "levels": ["a", "b"], "coded": [2]},
        ],
        "dropped": [],
    }
    made = LinearEncoder.from_json(json.dumps(stored)).transform(table({"x": numeric(5, NAN), "c": categorical("b", "z")}, 2))
    assert made.values.tolist() == [[2, 1], [0, 0]]


def test_a_later_version_is_refused() -> None:
    written = json.loads(LinearEncoder(columns=(), dropped=()).to_json())
    assert written["version"] == 5
    with pytest.raises(StateError, match="a later vfl-node") as caught:
        LinearEncoder.from_json(json.dumps({**written, "version": 6}))
    assert caught.value.code == "E_STATE_VERSION"


@pytest.mark.parametrize(
    "document",
    [
        "",
        "{}",
        "[]",
        json.dumps({"columns": [SCALE | {"unit": 0}], "dropped": []}),
        json.dumps({"columns": [SCALE | {"most": MOST + 1}], "dropped": []}),
        json.dumps({"columns": [SCALE | {"resolution": 0}], "dropped": []}),
        json.dumps({"columns": [SCALE | {"kind": "other"}], "dropped": []}),
        json.dumps({"columns": [SCALE]}),
    ],
)
def test_damaged_json_is_refused(document: str) -> None:
    with pytest.raises(StateError) as caught:
        LinearEncoder.from_json(document)
    assert caught.value.code == "E_STATE_CORRUPT"


@pytest.mark.parametrize("fitted", [numeric(1, 2), numeric(5, NAN), categorical("canary", "b")])
def test_a_table_without_the_column_is_refused(fitted: Column) -> None:
    encoder = LinearEncoder.fit(table({"x": fitted}, 2), "standard")
    kind, other = ("numeric", categorical("a", "b")) if isinstance(fitted, NumericColumn) else ("categorical", numeric(1, 2))
    for columns in ({}, {"x": other}):
        with pytest.raises(DataError, match=f"a {kind} column 'x'") as caught:
            encoder.transform(table(columns, 2))
        assert caught.value.code == "E_COLUMN"
        assert "canary" not in str(caught.value)
    assert len(encoder.transform(table({"x": fitted, "unknown": other}, 2))) == 2


def test_a_design_shows_its_shape_only() -> None:
    made = design({"c": categorical("canary", "b"), "x": numeric(31337, 2)}, 2, "standard")
    assert repr(made) == "Design(2 rows, 2 columns)"


@STEADY
@given(
    st.lists(st.one_of(st.just(NAN), st.floats(allow_nan=False, allow_infinity=False)), min_size=1, max_size=20),
    st.lists(st.one_of(st.just(NAN), st.floats(allow_nan=False, allow_infinity=False)), min_size=1, max_size=20),
    st.sampled_from(SCALINGS),
)
def test_whatever_the_numbers_integers_are_bounded(values: list[float], later: list[float], scaling: Scaling) -> None:
    given = table({"x": numeric(*values)}, len(values))
    if scaling == "none" and any(abs(value) > 16 for value in values):
        with pytest.raises(DataError, match="E_OVERFLOW"):
            LinearEncoder.fit(given, scaling)
        return
    encoder = LinearEncoder.fit(given, scaling)
    for made in (encoder.transform(given), encoder.transform(table({"x": numeric(*later)}, len(later)))):
        assert (np.abs(made.integers) <= MOST).all()
        assert (np.abs(made.values) <= {"standard": 10, "unit": 1, "none": 16}[scaling]).all()
    assert encoder.transform(given).integers.any(axis=0).all()


@pytest.mark.data
def test_real_pixels(shared_data: Path) -> None:
    with gzip.open(shared_data / "mnist" / "t10k-images-idx3-ubyte.gz", "rb") as packed:
        pixels = np.frombuffer(packed.read(), np.uint8, offset=16).reshape(-1, 784)[:, :392]
    given = table({f"p{j}": NumericColumn(pixels[:, j].astype(np.float64)) for j in range(392)}, len(pixels))
    encoder = LinearEncoder.fit(given, "unit")
    made = encoder.transform(given)
    blank = ~pixels.any(axis=0)
    assert 0 < blank.sum() < 100
    assert encoder.dropped == tuple(f"p{j}" for j in np.flatnonzero(blank))
    assert (made.integers == pixels[:, ~blank]).all()
    assert set(made.steps) == {1 / 255}
