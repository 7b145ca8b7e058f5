"""The part of a table that takes part where a job says at most how many records may."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfl_node.data import sampling
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.sampling import sample
from vfl_node.data.tables import CategoricalColumn, NumericColumn, Table
from vfl_node.errors import DataError

STEADY = settings(deadline=None, derandomize=True, max_examples=50)
SECRET = b"s" * 32


def table(numbers: list[int], *, labels: bool = False) -> Table:
    values = np.array(numbers)
    return Table(
        Identifiers.from_items(b"text:%d" % number for number in numbers),
        {"value": NumericColumn(values / 2), "parity": CategoricalColumn(values % 2, ("even", "odd"))},
        (values % 2).astype(np.float32) if labels else None,
    )


def part(numbers: list[int], most: int | None, secret: bytes = SECRET) -> list[int]:
    """The numbers whose records take part, in their order."""
    return [int(id_.removeprefix(b"text:")) for id_ in sample(table(numbers), most, secret).ids]


def test_a_table_small_enough_is_taken_whole() -> None:
    whole = table([1, 2, 3])
    for most in (None, 3, 4):
        assert sample(whole, most, SECRET) is whole


def test_records_stay_whole_and_in_order() -> None:
    numbers = list(range(1000))
    taken = sample(table(numbers, labels=True), 300, SECRET)
    kept = part(numbers, 300)
    assert len(taken) == len(taken.ids) == len(kept) == 300
    assert kept == sorted(kept)
    value, parity = taken.columns["value"], taken.columns["parity"]
    assert isinstance(value, NumericColumn)
    assert isinstance(parity, CategoricalColumn)
    assert value.values.tolist() == [number / 2 for number in kept]
    assert [parity.levels[code] for code in parity.codes] == [("even", "odd")[number % 2] for number in kept]
    assert taken.labels is not None
    assert taken.labels.dtype == np.float32
    assert taken.labels.tolist() == [number % 2 for number in kept]


def test_it_is_the_same_in_every_job_with_a_partner_and_another_with_others() -> None:
    numbers = list(range(1000))
    shuffled = np.random.default_rng(0).permutation(numbers).tolist()
    assert part(numbers, 300) == part(numbers, 300) == sorted(part(shuffled, 300))
    other = set(part(numbers, 300, b"o" * 32))
    assert 60 < len(other & set(part(numbers, 300))) < 120  # 90 ± 6 of two independent draws


@STEADY
@given(st.sets(st.integers(0, 10_000), min_size=3, max_size=60), st.integers(0, 10_000), st.data())
def test_one_record_more_changes_one_member_at_most(numbers: set[int], new: int, data: st.DataObject) -> None:
    most = data.draw(st.integers(1, len(numbers) - 1))
    before, after = set(part(sorted(numbers), most)), set(part(sorted(numbers | {new}), most))
    assert len(before) == len(after) == most
    assert after - before <= {new}
    assert len(before - after) <= 1


def test_every_record_is_as_likely_as_another() -> None:
    counts = np.zeros(20)
    for seed in range(2000):
        counts[part(list(range(20)), 5, seed.to_bytes(32, "big"))] += 1
    assert counts.sum() == 2000 * 5
    assert abs(counts / 2000 - 0.25).max() < 0.05  # 5 standard errors


def test_a_small_part_is_taken_in_blocks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = list(range(50))
    whole = part(numbers, 20)
    monkeypatch.setattr(sampling, "_BATCH", 7)
    assert part(numbers, 20) == whole


def test_a_part_with_one_class_is_refused() -> None:
    numbers = [*range(0, 400, 2), 1]  # one odd
    with pytest.raises(DataError, match="among the 3 records that take part") as caught:
        sample(table(numbers, labels=True), 3, SECRET)
    assert caught.value.code == "E_ONE_CLASS"
    assert "align.at_most" not in caught.value.for_peer
