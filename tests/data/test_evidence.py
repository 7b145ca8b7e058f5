"""Columns are replaced by weights of evidence, of any table, and encoders read these."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from vfl_node.data.bins import Cuts, Sorts
from vfl_node.data.design import LinearEncoder
from vfl_node.data.evidence import EvidenceColumns, KeptEvidence, WeighedColumn, weigh
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import CategoricalColumn, Column, DateColumn, NumericColumn, Table, values_of
from vfl_node.errors import DataError, StateError
from vfl_node.training.hidden import frequent
from vfl_node.training.hidden.rows import RowEncoder

NAN = np.nan


def table(**columns: Column) -> Table:
    count = len(values_of(next(iter(columns.values()))))
    return Table(Identifiers.from_items(str(row).encode() for row in range(count)), columns)


def numbers(*values: float) -> NumericColumn:
    return NumericColumn(np.array(values, np.float64))


INCOME = WeighedColumn(bins=Cuts(name="income", holds="numeric", cuts=(0.0, 10.0), left=()), weights=(-1.5, 0.25, 2.0, 0.125))
SINCE = WeighedColumn(bins=Cuts(name="since", holds="date", cuts=(86400.0,), left=()), weights=(1.0, -1.0, 0.0))
CITY = WeighedColumn(bins=Sorts(name="city", levels=("a", "c"), left=()), weights=(0.5, -0.5, 0.75, -2.0))
EVIDENCE = EvidenceColumns(job="counted", columns=(INCOME, SINCE, CITY))
GIVEN = table(
    other=numbers(1, 2, 3, 4, 5),
    income=NumericColumn(np.array([-3.0, 0.0, 5.0, 99.0, NAN]), scaling="log"),
    since=DateColumn(np.array([0.0, 86400.0, 86401.0, NAN, 1e9])),
    city=CategoricalColumn(np.array([0, 1, 2, -1, 3]), ("a", "b", "c", "d")),
)
WEIGHTS = {"income": [-1.5, -1.5, 0.25, 2.0, 0.125], "since": [1, 1, -1, 0, -1], "city": [0.5, 0.75, -0.5, -2.0, 0.75]}


def by_hand(of: dict[str, list[float]] = WEIGHTS) -> Table:
    return table(**{name: numbers(*values) for name, values in of.items()})


def test_each_value_has_the_weight_of_its_bin() -> None:
    """Ends of intervals belong to the lower one; missing values and levels without a bin have one of their own."""
    made = EVIDENCE.transform(GIVEN)
    assert list(made.columns) == ["income", "since", "city"]
    for name, column in made.columns.items():
        assert isinstance(column, NumericColumn)
        assert column.values.tolist() == WEIGHTS[name]
        assert column.scaling is None  # the owner's wish was for the numbers
    assert weigh(GIVEN, None) is GIVEN
    assert EVIDENCE.kinds == {"income": "numeric", "since": "date", "city": "categorical"}
    assert EVIDENCE.choose(["city"]).columns == (CITY,)
    made_of = {each.name: (each.transform, each.levels) for each in EVIDENCE.encoded(GIVEN)}
    assert made_of == {"other": (None, None), "income": ("cuts", None), "since": ("cuts", None), "city": (None, 2)}


@pytest.mark.parametrize(
    "given",
    [table(income=numbers(1)), table(income=GIVEN.columns["city"], since=GIVEN.columns["since"], city=GIVEN.columns["city"])],
)
def test_a_table_without_such_columns_is_refused(given: Table) -> None:
    with pytest.raises(DataError) as caught:
        EVIDENCE.transform(given)
    assert caught.value.code == "E_COLUMN"


@pytest.mark.parametrize("scaling", ["standard", "unit", "none"])
def test_a_regression_reads_what_it_would_of_weights_by_hand(scaling: Any) -> None:
    encoder, plain = LinearEncoder.fit(GIVEN, scaling, EVIDENCE), LinearEncoder.fit(by_hand(), scaling)
    assert encoder.columns == plain.columns
    assert encoder.dropped == ("other",)
    later = GIVEN.take(np.array([3, 1]))
    again = LinearEncoder.from_json(encoder.to_json())
    assert again == encoder
    assert np.array_equal(again.transform(later).integers, plain.transform(by_hand().take(np.array([3, 1]))).integers)
    assert again.kinds == EVIDENCE.kinds


@pytest.mark.parametrize("bounded", [True, False])
def test_hidden_training_reads_what_it_would_of_weights_by_hand(bounded: bool) -> None:
    """A column whose weights are all alike takes its place, of zeros, and is not needed to predict."""
    flat = INCOME.model_copy(update={"weights": (0.5,) * 4})
    evidence = EvidenceColumns(job="counted", columns=(flat, SINCE, CITY))
    of_hand = by_hand(WEIGHTS | {"income": [0.5] * 5})
    features = [feature for each in frequent.all_numbers(of_hand).values() for feature in each]
    found, how = frequent.find(of_hand, 0), {"bins": False, "bounded": bounded}
    encoder = RowEncoder.fit(GIVEN, features, found, "standard", **how, evidence=evidence)
    plain = RowEncoder.fit(of_hand, features, found, "standard", **how)
    again = RowEncoder.from_json(encoder.to_json())
    assert np.array_equal(again.transform(GIVEN), plain.transform(of_hand))
    assert (again.width, again.kinds) == (3, {"since": "date", "city": "categorical"})
    assert not again.transform(GIVEN)[:, 0].any()
    less = table(**{name: column for name, column in GIVEN.columns.items() if name in ("since", "city")})
    assert np.array_equal(again.transform(less), again.transform(GIVEN))


KEPT = KeptEvidence.from_counted(EVIDENCE, 0.25, bytes(32), noised=True)


def test_they_are_kept_to_the_last_bit() -> None:
    third = CITY.model_copy(update={"weights": (1 / 3, -1e-300, 0.1, np.pi)})
    kept = KeptEvidence.from_counted(EvidenceColumns(job="counted", columns=(third,)), 0.25, bytes(32), noised=True)
    assert KeptEvidence.from_json(kept.to_json()) == kept
    assert bytes(32).hex() not in kept.to_json()


def test_what_was_stored_before_counts_as_without_noise() -> None:
    """It did not say. What says so is believed."""
    stored = json.loads(KEPT.to_json())
    assert KeptEvidence.from_json(json.dumps(stored)).noised
    del stored["noised"]
    assert KeptEvidence.from_json(json.dumps(stored | {"version": 1})) == KEPT.model_copy(update={"noised": False})


@pytest.mark.parametrize(
    ("fraction", "split", "spared"),
    [
        (0.25, bytes(32), True),
        (0.1, bytes(32), True),
        (0.26, bytes(32), False),
        (0.25, b"\1" * 32, False),
        (0.25, None, False),
        (0.0, None, True),
    ],
)
def test_only_rows_that_were_held_out_may_be(fraction: float, split: bytes | None, spared: bool) -> None:
    assert KEPT.spares(fraction, split) is spared


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"version": 3}, "E_STATE_VERSION"),
        ({"held_out": 1.0}, "E_STATE_CORRUPT"),
        ({"split": None}, "E_STATE_CORRUPT"),
        (
            {"columns": {"job": "counted", "columns": [json.loads(CITY.model_dump_json()) | {"weights": [0.5]}]}},
            "E_STATE_CORRUPT",
        ),
    ],
)
def test_what_is_none_is_refused(change: dict[str, Any], code: str) -> None:
    with pytest.raises(StateError) as caught:
        KeptEvidence.from_json(json.dumps(json.loads(KEPT.to_json()) | change))
    assert caught.value.code == code


def test_a_number_without_end_is_refused() -> None:
    with pytest.raises(StateError):
        KeptEvidence.from_json(KEPT.to_json().replace("-1.5", "Infinity"))
