"""Bins and candidates for splits in words."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from vfl_node.data.bins import Cuts


def cut(holds: Any, *cuts: float) -> Cuts:
    return Cuts(name="x", holds=holds, cuts=cuts, left=tuple((*range(place + 1),) for place in range(len(cuts))))


def at(*moment: int) -> float:
    return datetime(*moment, tzinfo=timezone.utc).timestamp()  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("cuts", "words"),
    [
        ((), ("any", "missing")),
        ((0.5,), ("≤ 0.5", "> 0.5", "missing")),
        ((1 / 3, 2 / 3), ("≤ 0.3333", "0.3333 to 0.6667", "> 0.6667", "missing")),
        ((20240115.0, 20240116.0), ("≤ 20240115", "20240115 to 20240116", "> 20240116", "missing")),
        ((20240115.0, 20240115.25), ("≤ 20240115", "20240115 to 20240115.2", "> 20240115.2", "missing")),
        ((-12345.25, 1e20), ("≤ -12345", "-12345 to 1e+20", "> 1e+20", "missing")),
        ((1e-9, 1.00001e-9), ("≤ 1e-09", "1e-09 to 1.00001e-09", "> 1.00001e-09", "missing")),
        ((0.1, 0.1 + 2**-56), ("≤ 0.10000000000000001", "0.10000000000000001 to 0.10000000000000002")),
    ],
)
def test_numbers_have_the_digits_that_tell_cuts_apart(cuts: tuple[float, ...], words: tuple[str, ...]) -> None:
    assert cut("numeric", *cuts).describe_bins()[: len(words)] == words


@pytest.mark.parametrize(
    ("cuts", "words"),
    [
        ((at(2020, 9, 25), at(2020, 9, 26)), ("≤ 2020-09-25", "2020-09-25 to 2020-09-26", "> 2020-09-26", "missing")),
        ((at(1931, 1, 2, 12), at(2020, 1, 1)), ("≤ 1931-01-02 12:00", "1931-01-02 12:00 to 2020-01-01 00:00")),
        ((at(2020, 9, 25, 1, 2, 3) + 0.5,), ("≤ 2020-09-25 01:02:03", "> 2020-09-25 01:02:03", "missing")),
    ],
)
def test_dates_are_days_with_the_time_where_a_cut_is_within_one(cuts: tuple[float, ...], words: tuple[str, ...]) -> None:
    assert cut("date", *cuts).describe_bins()[: len(words)] == words


def test_splits_say_the_same() -> None:
    assert cut("date", at(2020, 9, 25)).describe(0) == "x ≤ 2020-09-25"
    assert cut("numeric", 20240115.0, 20240116.0).describe(1) == "x ≤ 20240116"
    assert cut("numeric", 1 / 3).describe(0) == "x ≤ 0.333333"
