"""Ordering and finding bucket by bucket is as Python has it, and no protocol sends other bytes for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfl_node.alignment.lists import buckets as module
from vfl_node.alignment.lists.buckets import BUCKET_BYTES, Buckets, bucket_bits, slice_bytes
from vfl_node.alignment.lists.columns import Given
from vfl_node.engines.contract import Engine, Inline
from vfl_node.engines.processes import Processes
from vfl_node.engines.threads import Threads
from vfl_node.errors import StateError


@pytest.fixture(
    scope="module", params=[Inline, lambda: Threads(2), lambda: Processes(2)], ids=["inline", "threads", "processes"]
)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    started = request.param()
    yield started
    started.close()


def rows_of(values: list[bytes], width: int) -> np.ndarray:
    return np.array([list(value) for value in values], np.uint8).reshape(-1, width)


def random_rows(count: int, seed: int, width: int = 32) -> np.ndarray:
    """Some of them twice."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 256, (count, width), np.uint8)
    rows[rng.integers(0, count, count // 50)] = rows[rng.integers(0, count, count // 50)]
    return rows


@pytest.mark.parametrize("bits", [0, 1, 6, 10])
def test_every_engine_orders_and_finds_as_python_does(engine: Engine, bits: int, tmp_path: Path) -> None:
    held, wanted = random_rows(3000, 1), random_rows(2000, 2)
    wanted[:500] = held[1000:1500]
    with mock.patch.object(module, "slice_bytes", return_value=700 * 32):
        one = Buckets(Given(held, 256), 32, bits, engine, tmp_path)
        other = Buckets(Given(wanted, 256), 32, bits, engine, tmp_path)
    values = [bytes(row) for row in held]
    first = {value: place for place, value in reversed(list(enumerate(values)))}
    with one, other:
        assert len(one._slices) == 4
        assert one.ascending().tolist() == sorted(range(3000), key=values.__getitem__)
        assert one.find(other).tolist() == [first.get(bytes(row), -1) for row in wanted]
        assert not one.are_distinct()
    unique = np.unique(held, axis=0)
    with Buckets(Given(unique, 256), 32, bits, engine, tmp_path) as distinct:
        assert distinct.are_distinct()
    assert not list(tmp_path.iterdir())


@settings(max_examples=50, deadline=None)
@given(data=st.data(), width=st.sampled_from([1, 2, 9, 32]), bits=st.integers(0, 10))
def test_few_different_values(data: st.DataObject, width: int, bits: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    pool = data.draw(st.lists(st.binary(min_size=width, max_size=width), min_size=1, max_size=5))
    held, wanted = (data.draw(st.lists(st.sampled_from(pool), max_size=30)) for _ in range(2))
    folder = tmp_path_factory.getbasetemp()
    with (
        mock.patch.object(module, "slice_bytes", return_value=7 * width),
        Buckets(Given(rows_of(held, width), 3), width, bits, Inline(), folder) as one,
        Buckets(Given(rows_of(wanted, width), 3), width, bits, Inline(), folder) as other,
    ):
        assert one.ascending().tolist() == sorted(range(len(held)), key=held.__getitem__)
        assert one.are_distinct() == (len(set(held)) == len(held))
        assert one.find(other).tolist() == [held.index(value) if value in held else -1 for value in wanted]


def test_buckets_fit_into_a_cache_until_there_are_very_many() -> None:
    assert [bucket_bits(rows, 32) for rows in (0, 1, 65_536, 65_537, 131_072, 131_073)] == [0, 0, 0, 1, 1, 2]
    assert bucket_bits(10**6, 32) == 4
    assert bucket_bits(10**9, 32) == bucket_bits(10**8, 32) == 10
    assert slice_bytes(0) == slice_bytes(6) == BUCKET_BYTES
    assert slice_bytes(10) == 16 * BUCKET_BYTES


def test_what_a_disk_changes_is_noticed(tmp_path: Path) -> None:
    with Buckets(Given(random_rows(1000, 3), 256), 32, 2, Inline(), tmp_path) as held:
        size = 1000 * (32 + module.PLACE_BYTES)
        for at in (0, 1000 * 32 - 1, 1000 * 32, size - 1):
            held._file.seek(at)
            (before,) = held._file.read(1)
            held._file.seek(at)
            held._file.write(bytes([before ^ 4]))
            with pytest.raises(StateError, match="changed") as caught:
                held.ascending()
            assert caught.value.code == "E_STATE_CORRUPT"
            held._file.seek(at)
            held._file.write(bytes([before]))
        assert len(held.ascending()) == 1000
        held._file.truncate(size - 1)
        with pytest.raises(StateError, match="changed"):
            held.ascending()


@pytest.mark.parametrize("protocol", ["psi", "psu", "apsi"])
def test_protocols_send_the_same_with_many_buckets(run_alignment, protocol: str) -> None:
    ids_a, ids_p = ([b"%d" % number for number in numbers] for numbers in (range(60), range(20, 100)))
    plain = run_alignment(protocol, ids_a, ids_p)
    with (
        mock.patch("vfl_node.alignment.lists.lists.bucket_bits", return_value=5),
        mock.patch.object(module, "slice_bytes", return_value=80),
    ):
        divided = run_alignment(protocol, ids_a, ids_p)
    assert plain.lists.keys() == divided.lists.keys()
    for step, rows in plain.lists.items():
        np.testing.assert_array_equal(rows, divided.lists[step])
    for role in ("active", "passive"):
        np.testing.assert_array_equal(getattr(plain, role).rows, getattr(divided, role).rows)
