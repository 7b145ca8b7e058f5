from __future__ import annotations

from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfl_node.data.date_formats import dates_in
from vfl_node.data.dates import part_of, seconds_of, varies
from vfl_node.data.tables import CategoricalColumn, DateColumn, NumericColumn

STEADY = settings(deadline=None, derandomize=True)

NOON = (datetime(2024, 2, 29, 12, 30, 15) - datetime(1970, 1, 1)).total_seconds()


def text(*values: str | None) -> CategoricalColumn:
    levels = tuple(sorted({value for value in values if value is not None}))
    return CategoricalColumn(np.array([-1 if value is None else levels.index(value) for value in values]), levels)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("1970-01-01", 0),
        ("1969-12-31", -86_400),
        ("2024-02-29T12:30:15", NOON),
        ("2024-02-29 12:30:15", NOON),
        ("2024-02-29T12:30", NOON - 15),
        ("2024-02-29T12:30:15.999999", NOON),
        ("2024-02-29T12:30:15Z", NOON),
        ("2024-02-29T12:30:15+02:00", NOON - 7200),
        ("2024-02-29T12:30:15-0130", NOON + 5400),
        ("2024-02-29T12:30+01", NOON - 15 - 3600),
    ],
)
def test_what_is_a_date(written: str, seconds: float) -> None:
    assert seconds_of([written]).tolist() == [seconds]


@pytest.mark.parametrize(
    "written",
    [
        "2024",
        "2024-02",
        "2024-02-30",
        "2023-02-29",
        "20240229",
        "29.02.2024",
        "2024-02-29T24:01",
        "12:30",
        "now",
        "NaT",
        "2024-2-9",
        "2024-02-29T12",
        "0000-01-01",
        "0000-00-00",
        "２０２４-02-29",
        "2024-02-29T12:30:15+2",
        "",
        "2024-02-29 ",
        "2024-02-29\n",
    ],
)
def test_what_is_none(written: str) -> None:
    assert seconds_of([written, "2024-02-29"]).tolist() == [np.inf, NOON // 86_400 * 86_400]


@STEADY
@given(st.lists(st.datetimes(), min_size=1))
def test_every_moment_is_found_with_its_parts(moments: list[datetime]) -> None:
    seconds = seconds_of([moment.isoformat() for moment in moments])
    assert seconds.tolist() == [(moment - datetime(1970, 1, 1)) // timedelta(seconds=1) for moment in moments]
    column = DateColumn(np.append(seconds, np.nan))
    for part, value in (
        ("month", lambda moment: f"{moment.month:02}"),
        ("weekday", lambda moment: str(moment.isoweekday())),
        ("hour", lambda moment: f"{moment.hour:02}"),
    ):
        found = part_of(column, part)
        assert isinstance(found, CategoricalColumn)
        assert [found.levels[code] for code in found.codes[:-1]] == list(map(value, moments))
        assert found.codes[-1] == -1
    days = part_of(column, "days")
    assert isinstance(days, NumericColumn)
    assert np.rint(days.values[:-1] * 86_400).tolist() == seconds.tolist()


@pytest.mark.parametrize(
    "pattern", ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S.%fZ"]
)
def test_dates_that_are_written_alike_are_read_as_each_by_itself(pattern: str) -> None:
    texts = [(datetime(1900, 2, 27) + timedelta(hours=7777 * k)).strftime(pattern) for k in range(200)]
    assert seconds_of(texts).tolist() == [seconds_of([text, "none"])[0] for text in texts]
    for wrong in ("0000-01-01", "2024-02-30", "2024-13-01", "2024-02-2x", "2024_02-20"):
        found = seconds_of([*texts, wrong + texts[0][10:]])
        assert found[:-1].tolist() == seconds_of(texts).tolist()
        assert np.isinf(found[-1])


def test_a_column_is_of_dates_if_nearly_all_its_values_are() -> None:
    days = [(datetime(2024, 1, 1, tzinfo=timezone.utc) + timedelta(days=k)).date().isoformat() for k in range(95)]
    found = dates_in(text(*days, *["soon"] * 5, None))
    assert found
    assert np.isinf(found.seconds).sum() == 5
    assert np.isnan(found.seconds).sum() == 1
    assert dates_in(text(*days, *["soon"] * 6)) is None
    assert dates_in(text("a", "b", None)) is None
    assert dates_in(text(None)) is None


def test_what_varies() -> None:
    assert varies(np.array([0, 1]))
    assert not varies(np.array([1, 1, -1]))
    assert not varies(np.array([-1]))
